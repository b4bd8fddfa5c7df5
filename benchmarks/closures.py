"""Calls of functions that are values, on two threads against one: maps, folds, trees, private cells.

    python benchmarks/closures.py [--json]

Each program calls a *cell* 63 times: a loop over a product of a row with an n x n matrix, whose end its
data says, so that nobody can go on inside of it. `map` and `fold` call it through the prelude, `apply`
through a function of the program that takes functions, `branch` through a closure that data picks; in
`private` the loop keeps its state in a cell of its own. `fold` walks a tree of six levels: its longest path
leaves 63 / 33 = 1.9 for two threads.

One thread in sequential mode takes turns with two threads as they are by default, each in a process of its
own, as in `overlap.py`. Outputs must be equal to the bit. `ceiling` is what two processes of one thread that
begin at once get, each the whole program.
`cell us` is what a call of the cell takes on one thread; `best` and `median` are the ratios of times.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping

import numpy as np

from measure import Report
from overlap import TIME, asked, started

ROUNDS = 20
DEPTH = 6
ITEMS = 2**DEPTH - 1
TURNS = 1

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
  let at1 = fn(x: ROW) -> Tree[ROW] { Rose(x, Nil[Tree[ROW]]()) };LEVELS
  @tree.fold(grow, atLAST(@list.at(xs, int(0))))"""
_LEVEL = """
  let at{k} = fn(x: ROW) -> Tree[ROW] {{
    Rose(x, Cons(at{below}(x), Cons(at{below}(neg(x)), Nil[Tree[ROW]]())))
  }};"""
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
    levels = "".join(_LEVEL.format(k=k, below=k - 1) for k in range(2, DEPTH + 1))
    fold = _FOLD.replace("LEVELS", levels).replace("LAST", str(DEPTH))
    return {
        "map": _text(n, plain),
        "private": _text(n, plain, cell=_IN_CELL),
        "apply": _text(n, "\n  @each(cell, xs)", before=_APPLY),
        "branch": _text(n, _BRANCH),
        "fold": _text(n, fold, result="ROW"),
    }


def main() -> None:
    """Print the table."""
    columns = ["program", "n", "cell us", "1 thread us", "2 threads us", "best", "median", "ceiling"]
    report = Report("closures", columns)
    rng = np.random.default_rng(0)
    for n in (64, 128, 256, 320, 352, 512, 600, 700):
        w = (rng.standard_normal((n, n)) / np.sqrt(n)).astype(np.float32)
        rows = [rng.standard_normal((1, n)).astype(np.float32) for _ in range(ITEMS)]
        inputs = [w, np.float32(TURNS), rows]
        for name, text in programs(n).items():
            one, expected = started(text, inputs, threads=1, mode="sequential")
            two, found = started(text, inputs, threads=2)
            np.testing.assert_equal(found, expected)
            beside, _ = started(text, inputs, threads=1, mode="sequential")
            times = [(asked(TIME, one), asked(TIME, two), asked(TIME, one, beside)) for _ in range(ROUNDS)]
            ones, twos, boths = zip(*times, strict=True)
            best = min(ones) / min(twos)
            median = statistics.median(ones) / statistics.median(twos)
            cell = min(ones) / ITEMS
            ceiling = 2 * min(ones) / min(boths)
            report.row(name, n, cell * 1e6, min(ones) * 1e6, min(twos) * 1e6, best, median, ceiling)
            for link in (one, two, beside):
                link.send("")


if __name__ == "__main__":
    main()
