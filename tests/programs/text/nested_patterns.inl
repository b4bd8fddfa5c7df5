// Expressions as data: patterns look two levels deep, overlap, and fall through to later rows.
data Expression {
  Leaf(Tensor[f32]), Negative(Expression), Sum(Expression, Expression), Product(Expression, Expression)
}

fn simplify(e: Expression) -> Expression {
  match e {
    Negative(Negative(x)) => @simplify(x),
    Sum(Negative(x), Negative(y)) => Negative(Sum(@simplify(x), @simplify(y))),
    Sum(x, Negative(Sum(y, z))) => Sum(Sum(@simplify(x), Negative(@simplify(y))), Negative(@simplify(z))),
    Product(Negative(x), Negative(y)) => Product(@simplify(x), @simplify(y)),
    Product(Sum(x, y), Leaf(_)) => match e {
      Product(_, k) => Sum(Product(@simplify(x), k), Product(@simplify(y), k)),
      other => other,
    },
    Sum(x, y) => Sum(@simplify(x), @simplify(y)),
    other => other,
  }
}

fn value(e: Expression) -> Tensor[f32] {
  match e {
    Leaf(x) => x,
    Negative(x) => neg(@value(x)),
    Sum(x, y) => add(@value(x), @value(y)),
    Product(x, y) => mul(@value(x), @value(y)),
  }
}

fn size(e: Expression) -> int {
  match e {
    Leaf(_) => int(1),
    Negative(x) => {
      let a: some int a. int[a] = @size(x);
      int(a + 1)
    },
    Sum(x, y) => {
      let a: some int a. int[a] = @size(x);
      let b: some int b. int[b] = @size(y);
      int(a + b + 1)
    },
    Product(x, y) => {
      let a: some int a. int[a] = @size(x);
      let b: some int b. int[b] = @size(y);
      int(a + b + 1)
    },
  }
}

fn main(a: Tensor[f32], b: Tensor[f32]) {
  let x = Leaf(a);
  let y = Leaf(b);
  let first = Product(Negative(Negative(Sum(x, y))), y);
  let second = Sum(Sum(Negative(x), Negative(y)), Negative(Sum(x, y)));
  let whole = Sum(Negative(Negative(Product(Sum(x, y), y))), Sum(Product(Negative(x), Negative(first)), second));
  let simple = @simplify(whole);
  (@value(whole), @value(simple), @size(whole), @size(simple))
}

entry main("a", "b") -> ("value", "simple", "size", "smaller");
