"""Every operator through compute rule, schedule and lowering, evaluated against its reference."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import numpy as np
import pytest

from inlay.interp import loop as interp
from inlay.loop.verify import check
from inlay.lower.lower import lower
from inlay.lower.ops_to_loops import ops_to_loops
from inlay.machine.target import Target
from inlay.ops._define import FusionPattern, OpDef, Sample
from inlay.ops.table import table
from inlay.schedule.choose import decide
from tests.unit.lower.op_functions import function_of

TARGET = Target()
LARGEST = 600
"""Elements of a sample's inputs and outputs beyond which the evaluator is too slow for a test."""


def small(s: Sample) -> bool:
    return sum(a.size for a in s.args if isinstance(a, np.ndarray)) <= LARGEST


MOST = 1
"""Samples of an operator that run by default; element-wise ones have one for each pair of types."""


def cases() -> Iterator[object]:
    """The variant with symbols is the harder one; where there is none, sizes are known."""
    for d in table():
        if d.compute is None and d.loops is None:
            continue
        samples = [s for s in d.samples() if small(s)]
        drawn = set(Random(d.name).sample(range(len(samples)), min(MOST, len(samples))))
        for i, s in enumerate(samples):
            symbolic = bool(s.symbolic)
            yield pytest.param(
                d,
                s,
                symbolic,
                id=f"{d.name}-{s.name}{'-symbolic' * symbolic}",
                marks=[] if i in drawn else [pytest.mark.slow],
            )


def agree(got: np.ndarray, want: np.ndarray, d: OpDef, s: Sample) -> None:
    """Formats of floats have a relative tolerance; sums also one in the last digits of the terms."""
    assert got.dtype == want.dtype and got.shape == want.shape
    rtol = {"float16": 4e-3, "bfloat16": 2e-2, "float32": 2e-5, "float64": 1e-9}.get(want.dtype.name)
    if rtol is None:
        np.testing.assert_array_equal(got, want)
        return
    got, want = got.astype(np.float64), want.astype(np.float64)
    atol = rtol * max(_largest(want), 1e-3)
    if d.pattern in (FusionPattern.REDUCTION, FusionPattern.CONTRACTION):
        terms = max(_largest(a) for a in s.args if isinstance(a, np.ndarray))
        atol = max(atol, 4 * terms * 2.0**-24)
    np.testing.assert_allclose(got, want, rtol=rtol, atol=atol)


def _largest(a: np.ndarray) -> float:
    wide = np.abs(a.astype(np.float64))
    return float(np.max(wide, initial=0, where=np.isfinite(wide)))


@pytest.mark.sample(80)
@pytest.mark.parametrize(("d", "s", "symbolic"), list(cases()))
def test_operator(d: OpDef, s: Sample, symbolic: bool) -> None:
    made = function_of(d, s, symbolic=symbolic)
    if made is None:
        pytest.skip("an operand or result that kernels do not have")
    function, inputs, values = made
    f = ops_to_loops(function, table().definition)
    check(f)
    lowered = lower(decide(f, TARGET).function, TARGET)
    check(lowered)
    expected = d.evaluate(s.attrs, *s.args)
    expected = expected if isinstance(expected, tuple) else (expected,)
    env = {dim: values[dim] for dim in lowered.dims}
    for got, want in zip(interp.run(lowered, inputs, env), expected, strict=True):
        agree(got.reshape(want.shape), want, d, s)
