//! type.arity 4:3
fn main<n>(x: Tensor[n, f32]) {
  let f = fn(a, b) { add(a, b) };
  f(x)
}
