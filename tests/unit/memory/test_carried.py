"""What loops carry has its place in blocks: drawn loops are run in all modes under the race detector.

A turn computes from what is carried and what is outside, and jumps with parameters in any order, with some
of them twice, with what it made, and with what was made before the loop. Values are read behind the loop and
in turns, so that bytes which are given away too early show; the first call leaves NaN in all of them.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlay.analysis.infer_types import infer_types
from inlay.api import compilation, explain
from inlay.interp.tensor import evaluate
from inlay.ir.parser import parse_module
from inlay.ops.table import table
from inlay.runtime.session import executable_of
from tests.examples import examples
from tests.unit.memory.test_shared_bytes import RUNS

pytestmark = pytest.mark.llvm

SIZE = "Tensor[4, 8, f32]"
MAKES = ("matmul(w, {0})", "neg({0})", "sub({0}, {1})", "clip{{low=-3.0, high=3.0}}(add({0}, {1}))")


def made(draw, names: list[str], prefix: str, most: int) -> list[str]:
    """Draw lets over names, and put theirs among those."""
    lines = list[str]()
    for k in range(draw(st.integers(1, most))):
        operands = draw(st.sampled_from(names)), draw(st.sampled_from(names))
        lines.append(f"let {prefix}{k} = {draw(st.sampled_from(MAKES)).format(*operands)};")
        names.append(f"{prefix}{k}")
    return lines


@st.composite
def loops(draw) -> str:
    """Return a program with a loop, perhaps with one in it, of a number of turns that may be an input."""
    before = ["x", "z"]
    lines = made(draw, before, "a", 4)
    count, turns = draw(st.integers(1, 3)), draw(st.sampled_from(("n", "2", "3", "5")))
    params = [f"p{k}" for k in range(count)]
    inside = [*params, draw(st.sampled_from(before))]
    turn = made(draw, inside, "t", 4)
    if draw(st.booleans()):
        turn.append(
            f"let inner = fn<j>(j: int[j], g: {SIZE}, f: {SIZE}) {{ if (int_less(int(j), int(2))) {{"
            f" inner(int(j + 1), sub(f, {draw(st.sampled_from(inside))}), g) }} else {{ (g, f) }} }};"
            f" let both = inner(int(0), {draw(st.sampled_from(inside))}, {draw(st.sampled_from(inside))});"
            f" let t9 = clip{{low=-3.0, high=3.0}}(both.{draw(st.integers(0, 1))});"
        )
        inside.append("t9")
    give = st.sampled_from([*inside, *params, *inside[-2:]])
    again = ", ".join(
        f"clip{{low=-3.0, high=3.0}}({x})" if x[0] == "t" else x for x in (draw(give) for _ in params)
    )
    start = ", ".join(draw(st.sampled_from([*before, before[-1]])) for _ in params)
    types = ", ".join(f"{p}: {SIZE}" for p in params)
    after = [*before[-2:], *(f"r.{k}" for k in range(count))]
    ends = made(draw, after, "e", 3)
    results = ", ".join(draw(st.lists(st.sampled_from(after[-4:]), min_size=1, max_size=2, unique=True)))
    return f"""
fn main<int n>(x: {SIZE}, z: {SIZE}, w: Tensor[4, 4, f32], n: int[n]) {{
  {" ".join(lines)}
  let loop = fn<i>(i: int[i], {types}) {{
    if (int_less(int(i), int({turns}))) {{
      {" ".join(turn)}
      loop(int(i + 1), {again})
    }} else {{ ({", ".join(params)}, int(i)) }}
  }};
  let r = loop(int(0), {start});
  {" ".join(ends)}
  ({results}, neg({after[-1]}))
}}
"""


@settings(max_examples=examples(4))
@given(loops(), st.integers(0, 99), st.integers(0, 4))
def test_carrying_in_blocks_changes_nothing(text: str, seed: int, turns: int):
    random = np.random.default_rng(seed)
    shapes = ((4, 8), (4, 8), (4, 4))
    arrays = [random.integers(-1, 2, s).astype(np.float32) for s in shapes]
    module = infer_types(parse_module(text, table()))
    expected = evaluate(module, [*arrays, turns])
    for plan in ("serial", "parallel"):
        program = compilation(module, plan=plan, cache="none", threads=2).program
        for run in RUNS:
            exe = executable_of(program, settings=run)
            exe(*(np.full(s, np.nan, np.float32) for s in shapes), 4)
            for _ in range(2):
                for found, wanted in zip(exe(*arrays, turns), expected, strict=True):
                    np.testing.assert_array_equal(found, wanted, err_msg=f"{plan}, {run.mode}\n{text}")


STATES = """
fn main(x: Tensor[5, 1, 64, f32], h0: Tensor[1, 64, f32], w: Tensor[64, 64, f32]) {
  let a = tanh(h0);
  let loop = fn<i>(i: int[i], h: Tensor[1, 64, f32], c: Tensor[1, 64, f32]) {
    if (int_less(int(i), int(5))) {
      let n = add(matmul(h, w), get_row(x, int(i)));
      let d = tanh(add(matmul(n, w), c));
      loop(int(i + 1), sigmoid(n), d)
    } else { (h, c) }
  };
  let r = loop(int(0), a, h0);
  add(tanh(matmul(r.0, w)), r.1)
}
"""


def test_states_of_a_loop_are_in_the_block_and_one_takes_the_bytes_it_began_with():
    account = explain(parse_module(STATES, table()), view="memory", threads=1).accounts[0]
    # The first `h` and its buffer, two buffers of `c` (which begins with an input), and a product.
    assert account.block == account.lower_bound == 5 * 256
    assert account.peak == account.block + 256  # the result
    program = compilation(parse_module(STATES, table()), cache="none", threads=1).program
    exe = executable_of(program, threads=1)
    exe(*(np.ones(s, np.float32) for s in ((5, 1, 64), (1, 64), (64, 64))))
    assert exe.usage().peak_bytes == account.peak
