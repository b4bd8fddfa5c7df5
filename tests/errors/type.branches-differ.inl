//! type.branches-differ 3:3
fn main<n>(c: bool, x: Tensor[n, f32], y: Tensor[n, n, f32]) {
  if (c) { x } else { y }
}
