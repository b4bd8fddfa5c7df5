"""Transposed convolutions become plain ones, with the same values and no product too many."""

from __future__ import annotations

import numpy as np
import pytest

import inlay
from inlay.analysis.infer_types import infer_types
from inlay.api import compilation
from inlay.arith.dtype import F32
from inlay.arith.expr import fresh, to_int
from inlay.interp.tensor import evaluate
from inlay.ir.builder import Builder
from inlay.ir.expr import Call, Expr, OpRef
from inlay.ir.make import const
from inlay.ir.module import Module
from inlay.ir.types import TensorType
from inlay.ir.walk import postorder
from inlay.ops._samples import noise
from inlay.ops.table import table
from inlay.ops.transposed_convolution import ConvTransposeAttrs

CASES = [
    # input, weights, attributes, number of convolutions (0: it stays)
    ((2, 3, 4, 5), (3, 4, 2, 2), ConvTransposeAttrs((2, 2)), 1),
    ((1, 3, 4, 5), (3, 2, 3, 3), ConvTransposeAttrs((2, 2), (1, 1, 1, 1), (), 1, (1, 1)), 4),
    ((1, 4, 5), (4, 3, 4), ConvTransposeAttrs((2,), (1, 1), (), 2), 1),
    ((1, 6, 3, 4), (6, 1, 5, 2), ConvTransposeAttrs((3, 1), (1, 0, 2, 0), (), 6), 2),
    ((1, 2, 3, 2, 4), (2, 3, 3, 2, 2), ConvTransposeAttrs((2, 1, 2)), 2),
    ((1, 2, 5), (2, 2, 3), ConvTransposeAttrs((1,), (2, 2)), 1),
    ((1, 2, 5), (2, 2, 2), ConvTransposeAttrs((3,)), 0),  # a phase without taps
    ((1, 2, 5), (2, 2, 3), ConvTransposeAttrs((2,), (), (2,)), 0),  # dilated
]


def program(shape, w: np.ndarray, attrs) -> Module:
    """A call on inputs whose batch and lengths are symbols."""
    b = Builder()
    dims = [to_int(fresh(f"d{i}")) if i != 1 else to_int(n) for i, n in enumerate(shape)]
    x = b.param("x", TensorType(tuple(dims), F32))
    y: Expr = b.emit(table().definition("conv_transpose").op, (x, const(w)), attrs)
    return infer_types(Module(functions={"main": b.function(y)}))


def decomposed(shape, w: np.ndarray, attrs) -> tuple[Expr | None, int]:
    b = Builder()
    x = b.param("x", TensorType(tuple(map(to_int, shape)), F32))
    definition = table().definition("conv_transpose")
    made = definition.decompose(b, attrs, (x, const(w)))
    if made is None:
        return None, 0
    calls = [e for e in postorder(b.finish(made)) if isinstance(e, Call)]
    found = [c for c in calls if isinstance(c.callee, OpRef) and c.callee.op.name == "conv"]
    return made, len(found)


@pytest.mark.parametrize(("shape", "taps", "attrs", "count"), CASES)
def test_phases(shape, taps, attrs, count):
    w = noise(taps, F32, seed="w")
    made, found = decomposed(shape, w, attrs)
    assert found == count
    want = table().definition("conv_transpose").evaluate(attrs, np.zeros(shape, np.float32), w)
    assert made is None or tuple(d.value for d in made.type.shape) == want.shape


@pytest.mark.sample(2)
@pytest.mark.llvm
@pytest.mark.parametrize("case", [1, 2, 3, 4, 6])
def test_weights_that_are_computed(case):
    """All taps of each element, and a test for each, would be a square of the strides as much."""
    shape, taps, attrs, count = CASES[case]
    b = Builder()
    x, w = (b.param(n, TensorType(tuple(map(to_int, s)), F32)) for n, s in (("x", shape), ("w", taps)))
    module = infer_types(
        Module(functions={"main": b.function(b.emit(table().definition("conv_transpose").op, (x, w), attrs))})
    )
    given = noise(shape, F32, seed="x"), noise(taps, F32, seed="w")
    found = compilation(module, cache="none", threads=1).module
    assert any("conv_transpose" in name for name in found.kernels) == (count == 0)
    np.testing.assert_allclose(
        inlay.compile(module, threads=1)(*given), evaluate(module, given), rtol=1e-5, atol=1e-5
    )


@pytest.mark.llvm
@pytest.mark.parametrize("case", [1, 3])
def test_values_and_infinities(case):
    shape, taps, attrs, _ = CASES[case]
    module = program(shape, noise(taps, F32, seed="w"), attrs)
    x = noise(shape, F32, seed="x")
    x.flat[[0, 7]] = np.inf, -np.inf
    want = evaluate(module, (x,))
    np.testing.assert_allclose(inlay.compile(module, threads=1)(x), want, rtol=1e-5, atol=1e-5)
    assert np.isfinite(want).any()
