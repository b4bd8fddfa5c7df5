"""Calls that run whole on other threads, where they end early: nothing of them is left, and the next call is right."""

from __future__ import annotations

import io

import numpy as np
import pytest

import inlay
from inlay.base.diagnostics import DeadlineError, RunError
from inlay.runtime.session import Executable

pytestmark = pytest.mark.llvm

# Walks a row until its data says so, and then reads a row at a place that each item says.
WALK = """
  let walk = fn(x: Tensor[1, 64, f32]) -> Tensor[1, 64, f32] {
    let go = fn(h: Tensor[1, 64, f32], k: Tensor[f32]) -> Tensor[1, 64, f32] {
      if (to_control(less(f32(0.0), k))) {
        let y = tanh(matmul(h, w));
        go(y, sub(sub(k, f32(1.0)), mul(f32(0.0), reduce_sum{axes=[0, 1], keepdims=false}(y))))
      } else { gather{axis=0}(h, at) }
    };
    go(x, turns)
  };"""
HEAD = (
    """
fn main(w: Tensor[64, 64, f32], turns: Tensor[f32], rows: List[Tensor[1, 64, f32]], at: Tensor[1, i64])
    -> RESULT {"""
    + WALK
)
END = """
}

entry main("w", "turns", "rows", "at") -> ("y");
"""
PROGRAM = HEAD.replace("RESULT", "List[Tensor[1, 64, f32]]") + "\n  @list.map(walk, rows)" + END
# A tree of 127 nodes: more than is copied for a call, its parts are less.
FOLD = (
    HEAD.replace("RESULT", "Tensor[1, 64, f32]")
    + """
  let grow = fn(x: Tensor[1, 64, f32], below: List[Tensor[1, 64, f32]]) -> Tensor[1, 64, f32] {
    match below {
      Cons(a, Cons(b, _)) => walk(add(x, sub(a, b))),
      _ => walk(x),
    }
  };
  let plant = fn(x: Tensor[1, 64, f32], depth: some int d. int[d]) -> Tree[Tensor[1, 64, f32]] {
    if (int_less(int(d), int(1))) { Rose(x, Nil[Tree[Tensor[1, 64, f32]]]()) } else {
      let left = plant(neg(x), int(d - 1));
      let right = plant(add(x, x), int(d - 1));
      Rose(x, Cons(left, Cons(right, Nil[Tree[Tensor[1, 64, f32]]]())))
    }
  };
  @tree.fold(grow, plant(@list.at(rows, int(0)), int(6)))"""
    + END
)
ITEMS = 8
CALLS = 100
MOST_TAKEN = 1 << 17
"""Bytes that all these calls may add: another delegate is opened late, but nothing is added by each call."""


def compiled(program: str = PROGRAM, **options: object) -> Executable:
    return inlay.compile(io.StringIO(program), **options)


def inputs(turns: float, at: int = 0) -> dict[str, object]:
    rng = np.random.default_rng(3)
    return {
        "w": (rng.standard_normal((64, 64)) / 8).astype(np.float32),
        "turns": np.float32(turns),
        "rows": [rng.standard_normal((1, 64)).astype(np.float32) for _ in range(ITEMS)],
        "at": np.array([at]),
    }


@pytest.mark.parametrize(
    ("options", "turns", "at", "error", "reason"),
    [({"timeout": 0.003}, 1e9, 0, DeadlineError, "run.deadline"), ({}, 6, 7, RunError, "run.check-failed")],
    ids=["deadline", "failure"],
)
def test_calls_that_end_early_leave_nothing(options, turns, at, error, reason):
    exe = compiled(threads=2, mode="parallel")
    expected = compiled(threads=1, mode="sequential").run(inputs(20))["y"]
    for _ in range(20):  # the functions are known to be long by then, so their calls are delegated
        np.testing.assert_equal(exe.run(inputs(20))["y"], expected)
    before = exe.usage().taken_bytes
    for _ in range(CALLS):
        with pytest.raises(error) as caught:
            exe.run(inputs(turns, at), **options)
        assert caught.value.ids == (reason,)
        np.testing.assert_equal(exe.run(inputs(20))["y"], expected)
    assert exe.usage().taken_bytes <= before + MOST_TAKEN


def test_parts_of_a_tree_that_is_too_large_to_copy():
    exe = compiled(FOLD, threads=2, mode="parallel")
    expected = compiled(FOLD, threads=1, mode="sequential").run(inputs(20))["y"]
    for _ in range(60):
        np.testing.assert_equal(exe.run(inputs(20))["y"], expected)
