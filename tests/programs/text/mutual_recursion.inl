// Global functions that call each other, in tail position and not; and local ones through a cell.
fn even<int n>(n: int[n]) -> bool { if (int_less(int(n), int(1))) { true } else { @odd(int(n - 1)) } }

fn odd<int n>(n: int[n]) -> bool { if (int_less(int(n), int(1))) { false } else { @even(int(n - 1)) } }

fn rise<int n, d>(n: int[n], x: Tensor[d, f32]) -> Tensor[d, f32] {
  if (int_less(int(n), int(1))) { x } else { add(@fall(int(n - 1), x), x) }
}

fn fall<int n, d>(n: int[n], x: Tensor[d, f32]) -> Tensor[d, f32] {
  if (int_less(int(n), int(1))) { x } else { mul(@rise(int(n - 1), x), x) }
}

fn main<int n, d>(n: int[n], x: Tensor[d, f32]) {
  let knot = ref(fn(k: int, y: Tensor[d, f32]) -> Tensor[d, f32] { y });
  let halve = fn(k: int, y: Tensor[d, f32]) -> Tensor[d, f32] {
    let k: some int k. int[k] = k;
    if (int_less(int(k), int(1))) { y } else {
      let other = read(knot);
      other(int(k - 1), mul(y, f32(0.5)))
    }
  };
  let step = fn(k: int, y: Tensor[d, f32]) -> Tensor[d, f32] {
    let k: some int k. int[k] = k;
    if (int_less(int(k), int(1))) { y } else { halve(int(k - 1), add(y, x)) }
  };
  write(knot, step);
  (@even(int(n)), @rise(int(n % 8), x), step(int(n), x))
}

entry main("n", "x") -> ("even", "rise", "knot");
