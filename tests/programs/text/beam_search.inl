// Beam search of a given width over a table of transition scores: hypotheses are values of a data
// type in a list that is kept sorted, best first.
data Beam { Beam(Tensor[f32], List[int], some int t. int[t]) }

fn better(a: Beam, b: Beam) -> bool {
  match (a, b) {
    (Beam(x, _, _), Beam(y, _, _)) => to_control(greater(x, y)),
  }
}

// Insert into a sorted list and keep so many.
fn keep(new: Beam, beams: List[Beam], width: some int w. int[w]) -> List[Beam] {
  if (int_less_equal(int(w), int(0))) { Nil[Beam]() } else {
    match beams {
      Nil() => Cons[Beam](new, Nil[Beam]()),
      Cons(best, rest) => if (@better(new, best)) {
        Cons[Beam](new, @take(beams, int(w - 1)))
      } else {
        Cons[Beam](best, @keep(new, rest, int(w - 1)))
      },
    }
  }
}

fn take(beams: List[Beam], count: some int c. int[c]) -> List[Beam] {
  match beams {
    Nil() => Nil[Beam](),
    Cons(best, rest) => if (int_less_equal(int(c), int(0))) { Nil[Beam]() } else {
      Cons[Beam](best, @take(rest, int(c - 1)))
    },
  }
}

fn expand<v>(
  beam: Beam, scores: Tensor[v, v, f32], found: List[Beam], width: some int w. int[w]
) -> List[Beam] {
  match beam {
    Beam(score, tokens, last: some int t. int[t]) => {
      let row = get_row(scores, int(t));
      let loop = fn(i: some int i. int[i], kept: List[Beam]) -> List[Beam] {
        if (int_less(int(i), int(v))) {
          let next = add(score, get_row(row, int(i)));
          loop(int(i + 1), @keep(Beam(next, Cons[int](int(i), tokens), int(i)), kept, int(w)))
        } else {
          kept
        }
      };
      loop(int(0), found)
    },
  }
}

fn search<v>(
  beams: List[Beam], scores: Tensor[v, v, f32], width: some int w. int[w], steps: some int s. int[s]
) -> List[Beam] {
  if (int_less_equal(int(s), int(0))) { beams } else {
    let step = fn(found: List[Beam], beam: Beam) -> List[Beam] {
      @expand(beam, scores, found, int(w))
    };
    @search(@list.fold_left(step, Nil[Beam](), beams), scores, int(w), int(s - 1))
  }
}

fn tokens_of<n>(tokens: List[int], so_far: Tensor[n, i64]) -> some m. Tensor[m, i64] {
  match tokens {
    Nil() => so_far,
    Cons(t, rest) => @tokens_of(rest, push_row(so_far, to_tensor(t))),
  }
}

fn main<v, int k, int s>(scores: Tensor[v, v, f32], width: int[k], steps: int[s]) {
  let start = Cons[Beam](Beam(f32(0.0), Nil[int](), int(0)), Nil[Beam]());
  match @search(start, scores, int(k), int(s)) {
    Cons(Beam(score, tokens, _), Cons(Beam(second, _, _), _)) => {
      (score, @tokens_of(@list.reverse(tokens), i64[0]()), second)
    },
    Cons(Beam(score, tokens, _), Nil()) => {
      (score, @tokens_of(@list.reverse(tokens), i64[0]()), score)
    },
    Nil() => (f32(0.0), i64[0](), f32(0.0)),
  }
}

entry main("scores", "width", "steps") -> ("score", "tokens", "second");
