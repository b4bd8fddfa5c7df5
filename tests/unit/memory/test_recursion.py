"""Blocks of functions that call themselves: one for each activation, and nothing of another one in it.

A function over trees works before, between and behind its calls of itself, with values that are alive over
both, so that two activations in the same bytes would show. Trees and bodies are drawn, and run in all modes
under the race detector, after a call whose values are all NaN; activations may run at the same time.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlay.analysis.infer_types import infer_types
from inlay.api import compilation
from inlay.interp.tensor import evaluate
from inlay.ir.parser import parse_module
from inlay.memory.activations import IN_RESULT, TAKEN
from inlay.memory.called import GIVEN
from inlay.ops.table import table
from inlay.runtime.session import executable_of
from tests.examples import examples
from tests.unit.memory.test_shared_bytes import RUNS

pytestmark = pytest.mark.llvm

SHAPE = "Tensor[4, 8, f32]"
PROGRAM = """
data Tree {{ Leaf(int), Node(Tree, Tree) }}

fn walk(t: Tree, x: {shape}, w: Tensor[4, 4, f32]) -> {shape} {{
  match t {{
    Leaf(k) => clip{{low=-3.0, high=3.0}}(add(x, matmul(w, x))),
    Node(a, b) => {{
      {before}
      let left = @walk(a, {first}, w);
      {between}
      let right = @walk(b, {second}, w);
      {behind}
      clip{{low=-3.0, high=3.0}}({last})
    }},
  }}
}}

fn main(x: {shape}, w: Tensor[4, 4, f32]) -> {shape} {{ @walk({tree}, x, w) }}
"""
MAKES = (
    "clip{{low=-3.0, high=3.0}}(matmul(w, {0}))",
    "clip{{low=-3.0, high=3.0}}(add({0}, {1}))",
    "sub({0}, clip{{low=-3.0, high=3.0}}({1}))",
    "neg({0})",
)
TREES = st.recursive(st.just("Leaf(int(0))"), lambda x: st.builds("Node({}, {})".format, x, x), max_leaves=9)


@st.composite
def programs(draw) -> str:
    """Return a program that walks a tree."""
    names = ["x"]

    def lets(prefix: str) -> str:
        made = list[str]()
        for k in range(draw(st.integers(1, 3))):
            operands = [draw(st.sampled_from(names[-4:])) for _ in range(2)]
            made.append(f"let {prefix}{k} = {draw(st.sampled_from(MAKES)).format(*operands)};")
            names.append(f"{prefix}{k}")
        return " ".join(made)

    def one() -> str:
        return f"clip{{low=-3.0, high=3.0}}({draw(st.sampled_from(names))})"

    before, first = lets("a"), one()
    names.append("left")
    between, second = lets("b"), one()
    names.append("right")
    behind = lets("c")
    last = f"add({names[-1]}, sub(left, {draw(st.sampled_from(names))}))"
    return PROGRAM.format(
        shape=SHAPE,
        before=before,
        first=first,
        between=between,
        second=second,
        behind=behind,
        last=last,
        tree=draw(TREES),
    )


@settings(max_examples=examples(3))
@given(programs(), st.integers(0, 99))
def test_activations_have_bytes_of_their_own(text: str, seed: int):
    random = np.random.default_rng(seed)
    arrays = [random.integers(-1, 2, s).astype(np.float32) for s in ((4, 8), (4, 4))]
    module = infer_types(parse_module(text, table()))
    expected = np.asarray(evaluate(module, arrays))
    for plan in ("serial", "parallel"):
        compiled = compilation(module, plan=plan, cache="none", threads=2)
        for run in RUNS:
            exe = executable_of(compiled.program, settings=run)
            exe(*(np.full(a.shape, np.nan, np.float32) for a in arrays))
            for _ in range(2):
                np.testing.assert_array_equal(exe(*arrays), expected, err_msg=f"{plan}, {run.mode}\n{text}")


def test_an_activation_has_one_block():
    text = PROGRAM.format(
        shape=SHAPE,
        before="let early = tanh(matmul(w, x)); let down = tanh(matmul(w, early));",
        first="down",
        between="let c = tanh(matmul(w, left));",
        second="c",
        behind="let d = tanh(matmul(w, right));",
        last="add(early, d)",
        tree="Node(Leaf(int(0)), Leaf(int(0)))",
    )
    plans = compilation(infer_types(parse_module(text, table())), cache="none", threads=1).report.plans
    (walk,) = [p for p in plans if p.name == "walk"]
    assert [part.memory for part in walk.parts] == [""]
    # `early` lives to the end and is in the block; what is given to another activation has its own bytes.
    assert "early" in {name for m in walk.parts[0].members for name in m.names}
    assert {c.why for c in walk.counted} <= {TAKEN, IN_RESULT, GIVEN}
