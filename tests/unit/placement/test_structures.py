"""Tensors in data types that contain other data types, or each other, have places like any other."""

from __future__ import annotations

import numpy as np
import pytest

import inlay
from inlay.ir.printer import print_module
from inlay.machine.board_file import find_board
from tests.unit.placement.cases import planned, read

V = "Tensor[2, f32]"
EACH_OTHER = """
data A { A0, A1(V, B) }
data B { B0, B1(V, A) }
fn total(a: A, s: V) -> V {
  match a {
    A0() => s,
    A1(t, b) => match b { B0() => add(s, t), B1(u, c) => @total(c, add(add(s, t), u)) } }
}
fn main(x: V, y: V) -> V {
  let p = on(cpu1, tanh(x));
  let q = on(cpu1, neg(y));
  on(cpu1, neg(@total(A1(p, B1(q, A1(x, B1(f32[2](1, 2), A0())))), f32[2](0, 0))))
}
entry main("x", "y") -> ("z");
"""
INSIDE = """
data Pair { Pair(V, V) }
data Box { Empty, Box(Pair) }
data Many { Many(List[V], List[Pair]) }
fn main(x: V, y: V) -> V {
  let p = on(cpu1, tanh(x));
  let b = if (to_control(less(reduce_sum{axes=[0]}(x), f32(0)))) { Box(Pair(p, y)) }
          else { Box(Pair(y, f32[2](1, 2))) };
  let m = Many(Cons(x, Nil()), Cons(Pair(x, p), Nil()));
  let q = match m {
    Many(Cons(u, _), Cons(Pair(v, w), _)) => on(cpu1, add(u, mul(v, w))),
    _ => x };
  match b { Box(Pair(u, v)) => on(cpu1, add(q, sub(u, v))), _ => x }
}
entry main("x", "y") -> ("z");
"""
PROGRAMS = {"each other": EACH_OTHER, "inside": INSIDE}


@pytest.mark.llvm
@pytest.mark.parametrize("which", PROGRAMS)
def test_tensors_in_data_types(which: str):
    text = PROGRAMS[which].replace("V", V)
    one = inlay.compile(read(text.replace("cpu1", "cpu")), cache="none")
    two = inlay.compile(read(text), board="host_two", cache="none")
    for x in ([1.0, -3.0], [0.5, 0.25]):
        inputs = {"x": np.array(x, np.float32), "y": np.array([2.0, 3.0], np.float32)}
        np.testing.assert_array_equal(two.run(inputs)["z"], one.run(inputs)["z"])


@pytest.mark.parametrize("which", PROGRAMS)
def test_planned_data_types_plan_to_themselves(which: str):
    board = find_board("host_two")
    once = planned(read(PROGRAMS[which].replace("V", V)), board)
    assert print_module(planned(once, board)) == print_module(once)
