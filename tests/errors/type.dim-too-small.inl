//! type.dim-too-small 3:3
fn main(x: Tensor[3, f32]) {
  zeros{dtype=f32}(shape(2 - 5))
}
