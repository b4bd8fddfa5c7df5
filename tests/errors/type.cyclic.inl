//! type.cyclic 3:27
fn main<n>(x: Tensor[n, f32]) {
  let twice = fn(again) { again(again) };
  x
}
