//! type.dynamic-rank 3:26
fn main<n>(x: Tensor[8, f32], s: Tensor[n, i64]) {
  let target: shape[8] = to_control(s);
  x
}
