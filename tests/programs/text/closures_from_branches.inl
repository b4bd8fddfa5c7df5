// A branch returns a function that returns a function; each captures what its arm computed.
fn make<n>(up: bool, x: Tensor[n, f32]) -> fn(Tensor[n, f32]) -> fn(Tensor[n, f32]) -> Tensor[n, f32] {
  if (up) {
    let double = add(x, x);
    fn(y: Tensor[n, f32]) { fn(z: Tensor[n, f32]) { add(mul(double, y), z) } }
  } else {
    fn(y: Tensor[n, f32]) {
      let below = sub(y, x);
      let inner = if (int_less(int(n), int(3))) { fn(z: Tensor[n, f32]) { sub(below, z) } } else {
        fn(z: Tensor[n, f32]) { mul(mul(below, z), x) }
      };
      inner
    }
  }
}

fn main<n>(flag: Tensor[bool], x: Tensor[n, f32], y: Tensor[n, f32]) {
  let up = to_control(flag);
  let outer = @make(up, x);
  let first = outer(y);
  let second = outer(x);
  let twice = fn(f: fn(Tensor[n, f32]) -> Tensor[n, f32], v: Tensor[n, f32]) { f(f(v)) };
  (first(x), second(y), twice(first, y))
}

entry main("flag", "x", "y") -> ("a", "b", "c");
