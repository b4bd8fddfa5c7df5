// A loop in place: no frame, whatever the number of turns.
fn main<int n>(n: int[n], x: Tensor[4, f32]) {
  let loop = fn<i>(i: int[i], sum: Tensor[4, f32], most: Tensor[4, f32]) {
    if (int_less(int(i), int(n))) {
      let next = sub(x, sum);
      loop(int(i + 1), next, maximum(most, next))
    } else {
      (sum, most)
    }
  };
  loop(int(0), x, x)
}

entry main("n", "x") -> ("sum", "most");
