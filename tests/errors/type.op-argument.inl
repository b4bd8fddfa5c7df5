//! type.op-argument 3:19
fn main(x: Tensor[4, f32], s: bool) {
  let f = fn(t) { to_tensor(t) };
  f(x)
}
