// An object made of closures over one cell; effects happen in the order that is written.
fn counter<d>(start: Tensor[d, f32]) -> (fn(Tensor[d, f32]) -> Tensor[d, f32], fn() -> Tensor[d, f32]) {
  let cell = ref(start);
  let step = fn(x: Tensor[d, f32]) -> Tensor[d, f32] {
    let old = read(cell);
    write(cell, add(old, x));
    old
  };
  let get = fn() -> Tensor[d, f32] { read(cell) };
  (step, get)
}

fn main<int n, d>(n: int[n], x: Tensor[d, f32]) {
  let one = @counter(x);
  let two = @counter(neg(x));
  let step = one.0;
  let loop = fn<i>(i: int[i]) {
    if (int_less(int(i), int(n))) {
      let before = step(x);
      let other = two.0;
      other(before);
      loop(int(i + 1))
    } else {
      ()
    }
  };
  loop(int(0));
  let get = one.1;
  let last = two.1;
  let a = get();
  let before = step(mul(a, a));
  (a, last(), before, get())
}

entry main("n", "x") -> ("a", "b", "before", "after");
