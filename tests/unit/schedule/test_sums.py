"""Sums in blocks: the law, the order, and the errors that the module promises."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest

import inlay
from inlay.arith.dtype import F32
from inlay.arith.expr import Int
from inlay.importers.onnx.graph import import_model
from inlay.loop import te
from inlay.loop.from_te import from_te
from inlay.loop.func import LoopFunction
from inlay.loop.printer import print_function
from inlay.loop.scalar import ReduceOp
from inlay.machine.target import Target
from inlay.ops.table import table
from inlay.schedule.choose import schedule
from inlay.schedule.rules.sums import BLOCK
from tests.unit.schedule.programs import dim, gave_up, hold_law

TARGET = Target()
HALF_ULP = 2.0**-24


def reduction(
    shape: tuple[Int | int, ...], axes: tuple[int, ...], op: ReduceOp = ReduceOp.SUM
) -> LoopFunction:
    x = te.placeholder(shape, F32, "x")
    over = {a: te.reduce_axis(f"k{a}", shape[a]) for a in axes}
    kept = [d for d in range(len(shape)) if d not in axes]

    def body(*i: Int) -> te.ScalarValue:
        at = dict(zip(kept, i, strict=True)) | over
        return te.reduce_over(op, list(over.values()), x[tuple(at[d] for d in range(len(shape)))])

    return from_te("f", [x], [te.compute([shape[d] for d in kept], body, name="y")])


@pytest.mark.sample(1)
@pytest.mark.parametrize("n", [BLOCK, BLOCK + 1, 127, pytest.param(2500, marks=pytest.mark.slow)])
@pytest.mark.parametrize("columns", [3, 9])
def test_known_sizes(n: int, columns: int) -> None:
    for shape, axis in (((n, columns), 0), ((columns, n), 1)):
        f = reduction(shape, (axis,))
        s = schedule(f, TARGET)
        assert gave_up(s) == []
        hold_law(f, s)


@pytest.mark.sample(1)
@pytest.mark.parametrize("columns", [3, 9])
def test_symbolic_sizes(columns: int) -> None:
    n = dim("n")
    for shape, axis in (((n, columns), 0), ((columns, n), 1)):
        f = reduction(shape, (axis,))
        s = schedule(f, TARGET)
        assert gave_up(s) == []
        hold_law(f, s, (0,), (1,), (BLOCK,), (BLOCK + 1,), (4200,))


@pytest.mark.slow
def test_several_loops_that_do_not_merge() -> None:
    n, m = dim("n"), dim("m")
    f = reduction((n, 3, m, 9), (0, 2))
    s = schedule(f, TARGET)
    assert gave_up(s) == []
    hold_law(f, s, (0, 2), (2, 0), (3, 65), (130, 2))
    f = reduction((70, 2, 70, 9), (0, 2))
    hold_law(f, schedule(f, TARGET))


def totals(f: LoopFunction) -> int:
    """Count the accumulators that a schedule allocates inside its loops."""
    return print_function(schedule(f, TARGET).function).count("alloc")


def test_short_sums_and_extremes_stay_as_they_are() -> None:
    short, long = totals(reduction((BLOCK, 8), (0,))), totals(reduction((BLOCK + 1, 8), (0,)))
    assert long == short + 1
    assert totals(reduction((dim("n"), 8), (0,))) == short + 2
    assert totals(reduction((5000, 8), (0,), ReduceOp.MAX)) == short


MODEL = """
<ir_version: 9, opset_import: ["" : 18]>
sums (float[{n}, 9] x, float[1, 2, {n}, 3] image) => (down, along, whole, means, softmax, pooled)
<int64[1] first = {{0}}, int64[1] last = {{1}}>
{{
  down = ReduceSum <keepdims = 0> (x, first)
  t = Transpose <perm = [1, 0]> (x)
  along = ReduceSum <keepdims = 0> (t, last)
  whole = ReduceSum <keepdims = 0> (x)
  means = ReduceMean <keepdims = 0> (x, first)
  softmax = Softmax <axis = 0> (x)
  pooled = GlobalAveragePool (image)
}}
"""


@pytest.mark.llvm
@pytest.mark.parametrize("size", ["n", "100000"])
def test_errors_stay_within_the_bound(size: str) -> None:
    """Of 100,000 numbers of one sign: one after the other they would be off by far more."""
    module = import_model(onnx.parser.parse_model(MODEL.format(n=size)), table())
    random = np.random.default_rng(3)
    x = random.random((100_000, 9), np.float32)
    image = random.random((1, 2, 100_000, 3), np.float32)
    found = inlay.compile(module, threads=1).run({"x": x, "image": image})
    again = inlay.compile(module, threads=2).run({"x": x, "image": image})
    exact = x.astype(np.float64)
    weights = np.exp(exact - exact.max(0))
    needed = {
        "down": exact.sum(0),
        "along": exact.sum(0),
        "whole": exact.sum(),
        "means": exact.mean(0),
        "softmax": weights / weights.sum(0),
        "pooled": image.astype(np.float64).mean((2, 3), keepdims=True),
    }
    # 2 * 64 + 100000 / 64**2 additions, a few roundings more for quotients and exponentials.
    for name, value in needed.items():
        np.testing.assert_allclose(found[name], value, rtol=(153 + 8) * HALF_ULP, err_msg=name)
        np.testing.assert_array_equal(found[name], again[name], err_msg=name)
