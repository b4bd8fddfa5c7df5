//! type.no-arms 3:3
fn main(x: Tensor[4, f32]) {
  match x { }
}
