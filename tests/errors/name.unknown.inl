//! name.unknown 5:11
//! name.unknown 6:4
//! name.unknown 6:18
fn main<n>(x: Tensor[n, f32]) {
  let y = convolve(x);
  @missing(x, y, z)
}
