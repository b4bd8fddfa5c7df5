// The data types that every program may use, and what one does with them.
// `ir.prelude` adds what a module uses; nothing here knows an operator beyond those of the IR.

data Option<'a> { None, Some('a) }
data List<'a> { Nil, Cons('a, List['a]) }
data Tree<'a> { Rose('a, List[Tree['a]]) }

fn option.map<'a, 'b>(f: fn('a) -> 'b, x: Option['a]) -> Option['b] {
  match x {
    None() => None['b](),
    Some(value) => Some['b](f(value)),
  }
}

fn option.get<'a>(x: Option['a], otherwise: 'a) -> 'a {
  match x {
    None() => otherwise,
    Some(value) => value,
  }
}

fn option.value<'a>(x: Option['a]) -> 'a {
  match x {
    None() => @option.value(check_at_least{low=1, why="values in an option"}(x, int(0))),
    Some(value) => value,
  }
}

fn list.map<'a, 'b>(f: fn('a) -> 'b, xs: List['a]) -> List['b] {
  match xs {
    Nil() => Nil['b](),
    Cons(x, rest) => {
      let first = f(x);
      Cons['b](first, @list.map(f, rest))
    },
  }
}

fn list.fold_left<'a, 'b>(f: fn('b, 'a) -> 'b, start: 'b, xs: List['a]) -> 'b {
  match xs {
    Nil() => start,
    Cons(x, rest) => @list.fold_left(f, f(start, x), rest),
  }
}

fn list.fold_right<'a, 'b>(f: fn('a, 'b) -> 'b, xs: List['a], last: 'b) -> 'b {
  match xs {
    Nil() => last,
    Cons(x, rest) => f(x, @list.fold_right(f, rest, last)),
  }
}

fn list.filter<'a>(keep: fn('a) -> bool, xs: List['a]) -> List['a] {
  match xs {
    Nil() => Nil['a](),
    Cons(x, rest) => if (keep(x)) { Cons['a](x, @list.filter(keep, rest)) } else {
      @list.filter(keep, rest)
    },
  }
}

fn list.reverse<'a>(xs: List['a]) -> List['a] {
  @list.reverse_onto(xs, Nil['a]())
}

fn list.reverse_onto<'a>(xs: List['a], done: List['a]) -> List['a] {
  match xs {
    Nil() => done,
    Cons(x, rest) => @list.reverse_onto(rest, Cons['a](x, done)),
  }
}

fn list.append<'a>(xs: List['a], ys: List['a]) -> List['a] {
  @list.reverse_onto(@list.reverse(xs), ys)
}

fn list.zip<'a, 'b>(xs: List['a], ys: List['b]) -> List[('a, 'b)] {
  match (xs, ys) {
    (Cons(x, more_xs), Cons(y, more_ys)) => Cons[('a, 'b)]((x, y), @list.zip(more_xs, more_ys)),
    (_, _) => Nil[('a, 'b)](),
  }
}

fn list.length<'a>(xs: List['a]) -> int {
  @list.count(xs, int(0))
}

fn list.count<'a>(xs: List['a], so_far: some int n. int[n]) -> int {
  match xs {
    Nil() => so_far,
    Cons(_, rest) => @list.count(rest, int(n + 1)),
  }
}

fn list.nth<'a>(xs: List['a], index: some int i. int[i]) -> Option['a] {
  match xs {
    Nil() => None['a](),
    Cons(x, rest) => if (int_equal(int(i), int(0))) { Some['a](x) } else {
      @list.nth(rest, int(i - 1))
    },
  }
}

// Positions may count from the end, as -1 for the last element; one that is outside stops the program.

fn list.position(length: some int n. int[n], index: some int i. int[i]) -> int {
  if (int_less(int(i), int(0))) { int(n + i) } else { int(i) }
}

fn list.at<'a>(xs: List['a], index: some int i. int[i]) -> 'a {
  let length: some int n. int[n] = @list.length(xs);
  let place: some int k. int[k] = @list.position(int(n), int(i));
  let low = check_at_least{low=0, why="position in a list"}(xs, int(k));
  let inside = check_at_least{low=1, why="elements from a position in a list on"}(low, int(n - k));
  @list.get(inside, int(k))
}

fn list.get<'a>(xs: List['a], index: some int i. int[i]) -> 'a {
  match xs {
    Nil() => @list.get(check_at_least{low=1, why="elements of a list"}(xs, int(0)), int(i)),
    Cons(x, rest) => if (int_equal(int(i), int(0))) { x } else { @list.get(rest, int(i - 1)) },
  }
}

fn list.rest<'a>(xs: List['a]) -> List['a] {
  match xs {
    Nil() => xs,
    Cons(_, rest) => rest,
  }
}

fn list.insert<'a>(xs: List['a], index: some int i. int[i], x: 'a) -> List['a] {
  let length: some int n. int[n] = @list.length(xs);
  let place: some int k. int[k] = @list.position(int(n), int(i));
  let low = check_at_least{low=0, why="position to insert at"}(xs, int(k));
  let inside = check_at_least{low=0, why="elements from a position to insert at on"}(low, int(n - k));
  @list.insert_after(Nil['a](), inside, int(k), x)
}

fn list.insert_after<'a>(
  before: List['a], rest: List['a], index: some int i. int[i], x: 'a
) -> List['a] {
  match rest {
    Nil() => @list.reverse_onto(before, Cons['a](x, rest)),
    Cons(first, more) => if (int_equal(int(i), int(0))) {
      @list.reverse_onto(before, Cons['a](x, rest))
    } else {
      @list.insert_after(Cons['a](first, before), more, int(i - 1), x)
    },
  }
}

fn list.erase<'a>(xs: List['a], index: some int i. int[i]) -> List['a] {
  let length: some int n. int[n] = @list.length(xs);
  let place: some int k. int[k] = @list.position(int(n), int(i));
  let low = check_at_least{low=0, why="position to erase at"}(xs, int(k));
  let inside = check_at_least{low=1, why="elements from a position to erase at on"}(low, int(n - k));
  @list.erase_after(Nil['a](), inside, int(k))
}

fn list.erase_after<'a>(
  before: List['a], rest: List['a], index: some int i. int[i]
) -> List['a] {
  match rest {
    Nil() => @list.reverse(before),
    Cons(first, more) => if (int_equal(int(i), int(0))) {
      @list.reverse_onto(before, more)
    } else {
      @list.erase_after(Cons['a](first, before), more, int(i - 1))
    },
  }
}

// Join all elements with `f`, which is associative: neighbours first, so that each element takes part
// in as many joins as the length has binary digits. An empty list stops the program.
fn list.combine<'a>(xs: List['a], f: fn('a, 'a) -> 'a) -> 'a {
  match xs {
    Nil() => @list.combine(check_at_least{low=1, why="elements to join"}(xs, int(0)), f),
    Cons(x, rest) => match rest {
      Nil() => x,
      Cons(_, _) => @list.combine(@list.combine_pairs(xs, f, Nil['a]()), f),
    },
  }
}

fn list.combine_pairs<'a>(xs: List['a], f: fn('a, 'a) -> 'a, done: List['a]) -> List['a] {
  match xs {
    Nil() => @list.reverse(done),
    Cons(x, rest) => match rest {
      Nil() => @list.reverse(Cons['a](x, done)),
      Cons(y, more) => @list.combine_pairs(more, f, Cons['a](f(x, y), done)),
    },
  }
}

fn tree.map<'a, 'b>(f: fn('a) -> 'b, tree: Tree['a]) -> Tree['b] {
  match tree {
    Rose(value, children) => {
      let root = f(value);
      let below = fn(child: Tree['a]) -> Tree['b] { @tree.map(f, child) };
      Rose['b](root, @list.map(below, children))
    },
  }
}

fn tree.fold<'a, 'b>(f: fn('a, List['b]) -> 'b, tree: Tree['a]) -> 'b {
  match tree {
    Rose(value, children) => {
      let below = fn(child: Tree['a]) -> 'b { @tree.fold(f, child) };
      f(value, @list.map(below, children))
    },
  }
}
