//! cell.full 4:3
fn main(x: Tensor[4, f32]) -> Tensor[4, f32] {
  let c = ref(x);
  put(c, neg(x));
  read(c)
}
