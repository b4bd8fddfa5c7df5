//! parse.bad-attribute 3:14
fn main<n>(x: Tensor[n, 4, f32]) {
  reduce_sum{axis=1}(x)
}
