//! type.rank-mismatch 3:3
fn main<n>(x: Tensor[n, 4, f32]) {
  check_shape(x, shape(n))
}
