//! type.not-a-function 3:3
fn main(x: Tensor[4, f32]) {
  x(x)
}
