"""Loops get buffers for what they carry, and only where nothing else may see them."""

from __future__ import annotations

import numpy as np
import pytest

from inlay.analysis.infer_types import infer_types
from inlay.ir.parser import parse_module
from inlay.ops.table import table
from inlay.passes.contract import PassContext
from inlay.transforms import to_anf
from tests.python_kernels import compile_with_python_kernels, run_program
from tests.unit.bytecode.disasm import listing

X = np.array([1, 2, -3, 4], np.float32)


def run(body: str, n: int) -> tuple[list[np.ndarray], int]:
    """Return the outputs of a loop, and how many storages each of its turns makes."""
    text = "fn main<int n, d>(n: int[n], x: Tensor[4, f32], z: Tensor[d, f32]) {" + body + "}"
    module = infer_types(parse_module(text, table()))
    module = to_anf.PASS.run(module, PassContext(table()))
    found = []
    for plan in (False, True):
        program, lowered = compile_with_python_kernels(module, plan=plan)
        found.append(run_program(program, lowered, [np.array(n), X, X]))
    for a, b in zip(*found, strict=True):
        assert np.array_equal(a, b)
    turn = listing(program).partition("\nL")[2].partition("JUMP L")[0]
    return found[1], turn.count("STORAGE") + turn.count("ALLOCATE")


SIMPLE = """
  let loop = fn<i>(i: int[i], h: Tensor[4, f32]) {
    if (int_less(int(i), int(n))) { loop(int(i + 1), sub(x, h)) } else { h }
  };
  loop(int(0), x)
"""


@pytest.mark.parametrize("n", [0, 1, 2, 5])
def test_a_turn_makes_no_storage(n: int):
    (found,), made = run(SIMPLE, n)
    assert np.array_equal(found, 0 * X if n % 2 else X)
    assert made == 0


def test_turns_that_hand_a_value_on_leave_its_buffers():
    (h, g), made = run(
        """
  let loop = fn<i>(i: int[i], h: Tensor[4, f32], g: Tensor[4, f32]) {
    if (int_less(int(i), int(n))) {
      if (int_equal(int(i % 3), int(1))) { loop(int(i + 1), h, add(g, h)) } else {
        loop(int(i + 1), add(h, x), sub(g, h))
      }
    } else { (h, g) }
  };
  loop(int(0), x, x)
""",
        7,
    )
    expected_h, expected_g = X, X
    for i in range(7):
        if i % 3 == 1:
            expected_g = expected_g + expected_h
        else:
            expected_h, expected_g = expected_h + X, expected_g - expected_h
    assert np.array_equal(h, expected_h)
    assert np.array_equal(g, expected_g)
    assert made == 0


def test_loops_in_loops_have_their_own():
    (found,), _ = run(
        """
  let outer = fn<i>(i: int[i], h: Tensor[4, f32], kept: Tensor[4, f32]) {
    if (int_less(int(i), int(n))) {
      let inner = fn<j>(j: int[j], g: Tensor[4, f32]) {
        if (int_less(int(j), int(3))) { inner(int(j + 1), add(g, x)) } else { g }
      };
      let low = inner(int(0), h);
      outer(int(i + 1), low, sub(low, kept))
    } else { add(h, kept) }
  };
  outer(int(0), x, x)
""",
        3,
    )
    h, kept = X, X
    for _ in range(3):
        h = h + 3 * X
        kept = h - kept
    assert np.array_equal(found, h + kept)


KEPT = {
    "swapped with another": (
        "(i: int[i], h: Tensor[4, f32], g: Tensor[4, f32])",
        "loop(int(i + 1), sub(g, h), h)",
        "sub(h, g)",
        "x, x",
        lambda h, g: (g - h, h),
    ),
    "in a cell": (
        "(i: int[i], h: Tensor[4, f32], r: Ref[Tensor[4, f32]])",
        "let old = read(r); write(r, h); loop(int(i + 1), sub(old, h), r)",
        "sub(h, read(r))",
        "x, ref(x)",
        lambda h, g: (g - h, h),
    ),
    "in a list of two": (
        "(i: int[i], h: Tensor[4, f32], p: (Tensor[4, f32], Tensor[4, f32]))",
        "loop(int(i + 1), sub(p.1, h), (h, h))",
        "sub(h, p.0)",
        "x, (x, x)",
        lambda h, g: (g - h, h),
    ),
    "by a closure": (
        "(i: int[i], h: Tensor[4, f32], f: fn(Tensor[4, f32]) -> Tensor[4, f32])",
        "loop(int(i + 1), sub(f(h), x), fn(y: Tensor[4, f32]) { sub(h, y) })",
        "f(h)",
        "x, fn(y: Tensor[4, f32]) { sub(x, y) }",
        lambda h, g: (g - h - X, h),
    ),
}


@pytest.mark.parametrize("name", KEPT)
def test_what_is_kept_is_not_written_over(name: str):
    params, again, end, start, step = KEPT[name]
    body = f"""
  let loop = fn<i>{params} {{
    if (int_less(int(i), int(n))) {{ {again} }} else {{ {end} }}
  }};
  loop(int(0), {start})
"""
    for n in range(5):
        (found,), made = run(body, n)
        h, g = X, X
        for _ in range(n):
            h, g = step(h, g)
        assert np.array_equal(found, g - h if name == "by a closure" else h - g), n
        assert made == 1


@pytest.mark.parametrize("start", ["x", "s"])
def test_what_is_made_before_the_loop_needs_no_buffer(start: str):
    (found,), made = run(
        f"""
  let s = tanh(x);
  let loop = fn<i>(i: int[i], h: Tensor[4, f32]) {{
    if (int_less(int(i), int(n))) {{ loop(int(i + 1), s) }} else {{ h }}
  }};
  loop(int(0), {start})
""",
        3,
    )
    assert np.array_equal(found, np.tanh(X))
    assert made == 0


def test_what_is_made_in_the_turn_around_needs_no_buffer():
    (found,), _ = run(
        """
  let outer = fn<j>(j: int[j], g: Tensor[4, f32]) -> Tensor[4, f32] {
    if (int_less(int(j), int(n))) {
      let s = add(g, x);
      let loop = fn<i>(i: int[i], h: Tensor[4, f32]) -> Tensor[4, f32] {
        if (int_less(int(i), int(n))) { loop(int(i + 1), s) } else { outer(int(j + 1), h) }
      };
      loop(int(0), g)
    } else { g }
  };
  outer(int(0), x)
""",
        3,
    )
    assert np.array_equal(found, 4 * X)


def test_what_leaves_the_loop_is_kept_by_closures_all_the_same():
    """The result of the loop is what a function mentions that runs after the next turns."""
    (h, first), _ = run(
        """
  let cell = ref(fn(a: Tensor[4, f32]) -> Tensor[4, f32] { a });
  let loop = fn<i>(i: int[i], h: Tensor[4, f32]) {
    if (int_less(int(i), int(n))) {
      let f = fn(a: Tensor[4, f32]) -> Tensor[4, f32] { add(a, h) };
      if (int_equal(int(i), int(2))) { write(cell, f); loop(int(i + 1), add(h, x)) } else {
        loop(int(i + 1), add(h, x))
      }
    } else { h }
  };
  let h = loop(int(0), x);
  let f = read(cell);
  (h, f(x))
""",
        6,
    )
    assert np.array_equal(h, 7 * X)
    assert np.array_equal(first, 4 * X)
