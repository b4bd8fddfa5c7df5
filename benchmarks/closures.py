"""Calls of functions that are values, on two threads against one: maps, folds, trees, private cells.

    python benchmarks/closures.py [--json]

Each program calls a loop over a product of a row with an n x n matrix; when it ends its data says, so
that nobody can go on inside of it. `map` and `fold` call it through the prelude, `apply` through a
function of the program that takes functions, `branch` through a closure that data picks; in `private`
the loop keeps its state in a cell of its own. One thread in sequential mode and two threads in parallel mode
take turns, as in `overlap.py`; outputs must be equal to the bit.
`ceiling` is what two processes of one thread that begin at once get, each the whole program.
`step us` is what a turn of the loop takes on one thread; `best` and `median` are the ratios of times.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping

import numpy as np

from measure import Report
from overlap import TIME, asked, started

ROUNDS = 30
ITEMS = 15
TURNS = 8

_LOOP = """
    let go = fn(h: ROW, k: Tensor[f32]) -> ROW {
      if (to_control(less(f32(0.0), k))) {
        let y = tanh(matmul(h, w));
        go(y, sub(sub(k, f32(1.0)), mul(f32(0.0), reduce_sum{axes=[0, 1], keepdims=false}(y))))
      } else { h }
    };
    go(x, turns)"""
_IN_CELL = """
    let state = ref(x);
    let go = fn(k: Tensor[f32]) -> ROW {
      if (to_control(less(f32(0.0), k))) {
        let y = tanh(matmul(read(state), w));
        write(state, y);
        go(sub(sub(k, f32(1.0)), mul(f32(0.0), reduce_sum{axes=[0, 1], keepdims=false}(y))))
      } else { read(state) }
    };
    go(turns)"""
_APPLY = """
fn each(f: fn(ROW) -> ROW, xs: List[ROW]) -> List[ROW] {
  match xs {
    Nil() => xs,
    Cons(x, rest) => {
      let y = f(x);
      let others = @each(f, rest);
      Cons(y, others)
    },
  }
}
"""
_BRANCH = """
  let other = fn(x: ROW) -> ROW { cell(neg(x)) };
  let picked = if (to_control(less(f32(0.0), turns))) { cell } else { other };
  @list.map(picked, xs)"""
_FOLD = """
  let grow = fn(x: ROW, below: List[ROW]) -> ROW {
    match below {
      Cons(a, Cons(b, _)) => cell(add(x, add(a, b))),
      _ => cell(x),
    }
  };
  let leaf = fn(x: ROW) -> Tree[ROW] { Rose(x, Nil[Tree[ROW]]()) };
  let node = fn(x: ROW, a: Tree[ROW], b: Tree[ROW]) -> Tree[ROW] {
    Rose(x, Cons(a, Cons(b, Nil[Tree[ROW]]())))
  };
  let x = @list.at(xs, int(0));
  let three = fn(x: ROW) -> Tree[ROW] { node(x, leaf(x), leaf(neg(x))) };
  let seven = fn(x: ROW) -> Tree[ROW] { node(x, three(x), three(neg(x))) };
  @tree.fold(grow, node(x, seven(x), seven(neg(x))))"""
_PROGRAM = """BEFORE
fn main(w: Tensor[N, N, f32], turns: Tensor[f32], xs: List[ROW]) -> RESULT {
  let cell = fn(x: ROW) -> ROW {CELL
  };BODY
}

entry main("w", "turns", "xs") -> ("y");
"""


def _text(n: int, body: str, *, cell: str = _LOOP, before: str = "", result: str = "List[ROW]") -> str:
    parts = {"BEFORE": before, "CELL": cell, "BODY": body, "RESULT": result, "ROW": "Tensor[1, N, f32]"}
    text = _PROGRAM
    for name, part in parts.items():
        text = text.replace(name, part)
    return text.replace("N,", f"{n},")


def programs(n: int) -> Mapping[str, str]:
    """Return the texts of the programs over rows of n, each of which calls `ITEMS` loops."""
    plain = "\n  @list.map(cell, xs)"
    return {
        "map": _text(n, plain),
        "private": _text(n, plain, cell=_IN_CELL),
        "apply": _text(n, "\n  @each(cell, xs)", before=_APPLY),
        "branch": _text(n, _BRANCH),
        "fold": _text(n, _FOLD, result="ROW"),
    }


def main() -> None:
    """Print the table."""
    columns = ["program", "n", "step us", "1 thread us", "2 threads us", "best", "median", "ceiling"]
    report = Report("closures", columns)
    rng = np.random.default_rng(0)
    for n in (64, 192, 256, 512):
        w = (rng.standard_normal((n, n)) / np.sqrt(n)).astype(np.float32)
        rows = [rng.standard_normal((1, n)).astype(np.float32) for _ in range(ITEMS)]
        inputs = [w, np.float32(TURNS), rows]
        for name, text in programs(n).items():
            one, expected = started(text, inputs, threads=1, mode="sequential")
            two, found = started(text, inputs, threads=2, mode="parallel")
            np.testing.assert_equal(found, expected)
            beside, _ = started(text, inputs, threads=1, mode="sequential")
            times = [(asked(TIME, one), asked(TIME, two), asked(TIME, one, beside)) for _ in range(ROUNDS)]
            ones, twos, boths = zip(*times, strict=True)
            best = min(ones) / min(twos)
            median = statistics.median(ones) / statistics.median(twos)
            step = min(ones) / ITEMS / TURNS
            ceiling = 2 * min(ones) / min(boths)
            report.row(name, n, step * 1e6, min(ones) * 1e6, min(twos) * 1e6, best, median, ceiling)
            for link in (one, two, beside):
                link.send("")


if __name__ == "__main__":
    main()
