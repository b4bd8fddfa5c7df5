// No call of `sum` but the first is in tail position: each has something to do after it, and holds a
// tensor until then.
fn sum<int n>(n: int[n], x: Tensor[2, f32]) -> Tensor[2, f32] {
  if (int_less(int(n), int(1))) { x } else {
    let below = @sum(int(n - 1), x);
    if (int_equal(int(n % 100000), int(0))) { add(below, x) } else { below }
  }
}

fn count<int n>(n: int[n]) -> int {
  if (int_less(int(n), int(1))) { int(0) } else {
    let below: some int b. int[b] = @count(int(n - 1));
    int(b + 1)
  }
}

fn main<int n>(n: int[n], x: Tensor[2, f32]) { (@count(int(n)), @sum(int(n), x)) }

entry main("n", "x") -> ("count", "sum");
