// Functions are arguments, results, fields of data and elements of lists.
fn compose<'a>(fs: List[fn('a) -> 'a]) -> fn('a) -> 'a {
  @list.fold_right(fn(f: fn('a) -> 'a, g: fn('a) -> 'a) { fn(x: 'a) { f(g(x)) } }, fs, fn(x: 'a) { x })
}

fn powers<d>(n: some int n. int[n], x: Tensor[d, f32]) -> List[fn(Tensor[d, f32]) -> Tensor[d, f32]] {
  if (int_less(int(n), int(1))) { Nil[fn(Tensor[d, f32]) -> Tensor[d, f32]]() } else {
    let half = mul(x, f32(0.5));
    Cons[fn(Tensor[d, f32]) -> Tensor[d, f32]](
      fn(y: Tensor[d, f32]) { sub(mul(y, half), x) }, @powers(int(n - 1), half)
    )
  }
}

fn main<int n, d>(n: int[n], x: Tensor[d, f32]) {
  let fs = @powers(int(n), x);
  let all = @compose(fs);
  let each = @list.map(fn(f: fn(Tensor[d, f32]) -> Tensor[d, f32]) { f(x) }, fs);
  let total = @list.fold_left(fn(a: Tensor[d, f32], b: Tensor[d, f32]) { add(a, b) }, x, each);
  let add3 = fn(a: Tensor[d, f32]) { fn(b: Tensor[d, f32]) { fn(c: Tensor[d, f32]) { sub(add(a, b), c) } } };
  (all(x), total, add3(x)(total)(x))
}

entry main("n", "x") -> ("composed", "total", "curried");
