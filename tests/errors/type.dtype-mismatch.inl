//! type.dtype-mismatch 3:3
fn main<n>(x: Tensor[n, f32], y: Tensor[n, i64]) {
  add(x, y)
}
