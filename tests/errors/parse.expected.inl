//! parse.expected 3:13
fn main<n>(x: Tensor[n, f32]) {
  let y = (x;
  x
}
