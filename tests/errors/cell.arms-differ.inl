//! cell.arms-differ 5:14
fn main(x: Tensor[4, f32], k: Tensor[i64]) -> Tensor[4, f32] {
  let n: some int n. int[n] = to_control(k);
  let c = ref(x);
  let done = if (int_less(int(n), int(3))) { take(c) } else { x };
  put(c, neg(done));
  read(c)
}
