"""A constant comes to a device in whatever position it stands, and needs no copy for it.

Each program is compiled for the host alone and for two devices, and gives the same.
"""

from __future__ import annotations

import numpy as np
import pytest

import inlay
from inlay.ir.module import Module
from inlay.ir.printer import print_module
from inlay.machine.board_file import find_board
from tests.unit.placement.cases import planned, read

V = "Tensor[2, f32]"
BELOW = "to_control(less(reduce_sum{axes=[0]}(x), f32(0)))"
K = "f32[2](3, 4)"
POSITIONS = {
    "the start of a loop": """
        let go = fn<i>(i: int[i], h: V) -> V {
          if (int_less(int(i), int(3))) { go(int(i + 1), on(D, tanh(h))) } else { h }
        };
        add(go(int(0), K), x)""",
    "what a loop carries on": """
        let go = fn<i>(i: int[i], h: V) -> V {
          if (int_less(int(i), int(3))) { go(int(i + 1), K) } else { on(D, tanh(h)) }
        };
        go(int(0), x)""",
    "a value of a branch": """
        let h = if (BELOW) { on(D, tanh(x)) } else { K };
        on(D, tanh(h))""",
    "both values of a branch": """
        let h = if (BELOW) { f32[2](1, 2) } else { K };
        on(D, add(h, x))""",
    "a field of a tuple": """
        let pair = fn(a: V, b: V) -> (V, V) { (on(D, tanh(a)), on(D, neg(b))) };
        let t = (K, x);
        let u = pair(t.0, t.1);
        add(u.0, u.1)""",
    "a tuple that is an argument": """
        let f = fn(t: (V, V)) -> V { on(D, add(t.0, t.1)) };
        f((K, x))""",
    "a tuple out of a branch": """
        let t = if (BELOW) { (K, x) } else { (x, K) };
        on(D, sub(t.0, t.1))""",
    "an argument of a call": """
        let f = fn(a: V, b: V) -> V { on(D, add(a, b)) };
        f(K, x)""",
    "an invariant argument": """
        let go = fn<i>(i: int[i], h: V, k: V) -> V {
          if (int_less(int(i), int(3))) { go(int(i + 1), add(on(D, mul(h, k)), k), k) } else { h }
        };
        go(int(0), x, K)""",
    "a closure": """
        let k = K;
        let f = fn(a: V) -> V { on(D, add(a, k)) };
        let g = if (BELOW) { f } else { fn(a: V) -> V { k } };
        on(D, neg(g(x)))""",
    "an element of a list": """
        let xs = Cons(K, Cons(x, Nil()));
        match xs { Cons(a, Cons(b, _)) => on(D, sub(a, b)), _ => x }""",
    "the content of a cell": """
        let c = ref(K);
        let y = on(D, add(read(c), x));
        let _ = write(c, f32[2](5, 6));
        add(y, on(D, neg(read(c))))""",
    "a result": """
        let f = fn(a: V) -> V { K };
        on(D, neg(f(x)))""",
    "an annotation": """
        let k = on(D, K);
        let f = fn(a: V) -> V { a };
        add(on(D, neg(f(k))), k)""",
    "an operand of a view": "on(D, add(on(D, reshape(f32[1, 2](3, 4), shape(2))), x))",
    "both here and there": """
        let k = K;
        let go = fn<i>(i: int[i], h: V) -> V {
          if (int_less(int(i), int(3))) { go(int(i + 1), on(D, add(h, k))) } else { h }
        };
        add(neg(k), go(int(0), k))""",
}


def program(body: str, far: str) -> Module:
    """Return a program with a body whose annotations are for a device."""
    text = body.replace("D,", f"{far},").replace("K", K).replace("BELOW", BELOW)
    return read(f'fn main(x: V) -> V {{ {text} }} entry main("x") -> ("y");'.replace("V", V))


@pytest.mark.sample(8)
@pytest.mark.llvm
@pytest.mark.parametrize("position", POSITIONS)
def test_constants_come_to_a_device(position: str):
    one = inlay.compile(program(POSITIONS[position], "cpu"), cache="none")
    two = inlay.compile(program(POSITIONS[position], "cpu1"), board="host_two", cache="none")
    for x in ([1.0, -3.0], [-0.5, 0.25]):
        inputs = {"x": np.array(x, np.float32)}
        np.testing.assert_array_equal(two.run(inputs)["y"], one.run(inputs)["y"])


@pytest.mark.parametrize("position", POSITIONS)
def test_placed_constants_plan_to_themselves(position: str):
    board = find_board("host_two")
    once = planned(program(POSITIONS[position], "cpu1"), board)
    assert print_module(planned(once, board)) == print_module(once)


def test_constants_are_where_they_are_needed_and_not_copied():
    body = """
        let go = fn<i>(i: int[i], h: V) -> V {
          if (int_less(int(i), int(3))) { go(int(i + 1), on(D, add(h, K))) } else { h }
        };
        go(int(0), K)"""
    text = print_module(planned(program(body, "cpu1"), find_board("host_two")))
    assert "go(int(0), f32[2](3.0, 4.0) @cpu1)" in text  # where the loop has it
    assert "add(h, f32[2](3.0, 4.0)) @cpu1" in text  # an operand is where the operation runs
    assert "device_copy" not in text
