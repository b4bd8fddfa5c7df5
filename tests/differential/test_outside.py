"""Indices outside their axes stop the program, with the same words in every executor."""

from __future__ import annotations

import numpy as np
import pytest

import inlay
from inlay.analysis.infer_types import infer_types
from inlay.api import compilation
from inlay.arith.dtype import F32
from inlay.base.diagnostics import RunError
from inlay.interp.tensor import evaluate
from inlay.ir.parser import parse_module
from inlay.ops._samples import ints, noise
from inlay.ops.table import table
from inlay.runtime.session import executable_of
from tests.unit.bytecode.disasm import listing

X = noise((5, 3), F32, seed="outside")
ONE = np.ones(2, np.float32)
DYNAMIC = "x: Tensor[m, n, f32]"
STATIC = "x: Tensor[5, 3, f32], i: Tensor[2, 2, i64]"
TUPLES = f"{DYNAMIC}, i: Tensor[k, 2, i64]"
PROGRAMS = {
    "gather": (f"<m, n, k>({DYNAMIC}, i: Tensor[k, i64]) -> Tensor[k, n, f32]", "(x, i)"),
    "gather_last": (f"<m, n, k>({DYNAMIC}, i: Tensor[k, i64]) -> Tensor[m, k, f32]", "{axis=1}(x, i)"),
    "gather_elements": (f"({STATIC}) -> Tensor[2, 2, f32]", "(x, i)"),
    "gather_nd": (f"<m, n, k>({TUPLES}) -> Tensor[k, f32]", "(x, i)"),
    "scatter_elements": (
        f"({STATIC}, u: Tensor[2, 2, f32]) -> Tensor[5, 3, f32]",
        '{combine="add"}(x, i, u)',
    ),
    "scatter_nd": (f"<m, n, k>({TUPLES}, u: Tensor[k, f32]) -> Tensor[m, n, f32]", "(x, i, u)"),
}
UPDATES = {"scatter_elements": (np.ones((2, 2), np.float32),), "scatter_nd": (ONE,)}
CASES = [
    ("gather", ints(0, 4, -5), ""),
    ("gather", ints(0, 5, 1), "found index 5, needed one of an axis of 5"),
    ("gather", ints(0, -6), "found index -6, needed one of an axis of 5"),
    ("gather", ints(2**62, 0), f"found index {2**62}, needed one of an axis of 5"),
    ("gather", ints(-(2**63), 2**63 - 1), f"found index {-(2**63)}, needed one of an axis of 5"),
    ("gather", ints(), ""),
    ("gather_last", ints(2, -3), ""),
    ("gather_last", ints(1, 3), "found index 3, needed one of an axis of 3"),
    ("gather_elements", ints(4, -5, 0, 0).reshape(2, 2), ""),
    ("gather_elements", ints(0, 0, 0, 7).reshape(2, 2), "index 7, needed one of an axis of 5"),
    ("gather_nd", ints(4, 2, -5, -3).reshape(2, 2), ""),
    ("gather_nd", ints(0, 2, 2, 3).reshape(2, 2), "found index 3, needed one of an axis of 3"),
    ("scatter_elements", ints(0, 1, 4, -5).reshape(2, 2), ""),
    ("scatter_elements", ints(0, 1, 4, -9).reshape(2, 2), "index -9, needed one of an axis of 5"),
    ("scatter_nd", ints(0, 1, 4, -3).reshape(2, 2), ""),
    ("scatter_nd", ints(0, 1, 5, 0).reshape(2, 2), "found index 5, needed one of an axis of 5"),
]


def outcome(work):
    try:
        return work()
    except RunError as stopped:
        return f"{stopped.ids[0]}: {stopped.diagnostics[0].message}"


@pytest.mark.parametrize(("name", "index", "message"), CASES)
def test_outside(name, index, message):
    operator, (signature, call) = name.removesuffix("_last"), PROGRAMS[name]
    module = infer_types(parse_module(f"fn main{signature} {{ {operator}{call} }}", table()))
    program = compilation(module).program
    given = (X, index, *UPDATES.get(name, ()))
    found = [outcome(lambda: evaluate(module, given))]
    for engine in ("native", "python"):
        found.append(outcome(lambda e=engine: executable_of(program, engine=e)(*given)))
    if not message:
        for result in found[1:]:
            np.testing.assert_array_equal(result, found[0])
        return
    assert found[0] == found[1] == found[2]
    assert found[0].startswith(f"run.check-failed: {operator}: ")
    assert message in found[0]


def test_constant_indices_that_are_inside_cost_nothing():
    text = "fn main(x: Tensor[5, 3, f32]) -> Tensor[2, 3, f32] { gather(x, i64[2](-5, 4)) }"
    program = compilation(infer_types(parse_module(text, table()))).program
    assert "CHECK " not in listing(program)


def test_a_constant_index_into_what_may_be_empty_is_checked():
    text = "fn main<n>(x: Tensor[n, 3, f32]) -> Tensor[1, 3, f32] { gather(x, i64[1](0)) }"
    exe = inlay.compile(infer_types(parse_module(text, table())))
    np.testing.assert_array_equal(exe(X), X[:1])
    with pytest.raises(RunError, match="found index 0, needed one of an axis of 0 elements"):
        exe(X[:0])
