"""Groups over a batch: what a sample gets does not depend on the batch it is in."""

from __future__ import annotations

import numpy as np
import pytest

from inlay.arith.expr import fresh
from inlay.base.diagnostics import UnsupportedError
from inlay.interp import loop as interp
from inlay.loop.verify import check
from inlay.lower.lower import lower
from inlay.lower.ops_to_loops import SampleBatch, ops_to_loops
from inlay.machine.target import Target
from inlay.ops._define import OpDef, Sample
from inlay.ops.table import table
from inlay.schedule.choose import decide
from tests.unit.lower.op_functions import function_of
from tests.unit.lower.test_ops_to_loops import LARGEST

TARGET = Target()
SAMPLES = 3


def small(s: Sample) -> bool:
    return 0 < sum(a.size for a in s.args if isinstance(a, np.ndarray)) <= LARGEST // SAMPLES


def arrays(s: Sample) -> int:
    return sum(isinstance(a, np.ndarray) for a in s.args)


CASES = [
    pytest.param(d, s, share, id=f"{d.name}{'-shared' * share}")
    for d in table()
    if d.compute is not None
    for s in [next(filter(small, d.samples()), None)]
    if s is not None
    for share in ([False, True] if arrays(s) > 1 else [False])
]


def variants(array: np.ndarray) -> list[np.ndarray]:
    """Return an array and two like it: rolled, and backwards."""
    flat = array.reshape(-1)
    return [a.reshape(array.shape) for a in (flat, np.roll(flat, 1), flat[::-1])]


@pytest.mark.sample(30)
@pytest.mark.parametrize(("d", "s", "share"), CASES)
def test_batch(d: OpDef, s: Sample, share: bool) -> None:
    made = function_of(d, s, symbolic=False)
    if made is None:
        pytest.skip("an operand or result that kernels do not have")
    function, inputs, _ = made
    shared = frozenset(range(1, len(inputs))) if share else frozenset[int]()
    one = lower(decide(ops_to_loops(function, table().definition), TARGET).function, TARGET)
    count = fresh("samples")
    many = ops_to_loops(function, table().definition, batch=SampleBatch(count, shared))
    check(many)
    many = lower(decide(many, TARGET).function, TARGET)
    check(many)
    varied = [[x] * SAMPLES if i in shared else variants(x) for i, x in enumerate(inputs)]
    batches = [x[0] if i in shared else np.stack(x) for i, x in enumerate(varied)]
    got = interp.run(many, batches, {count: SAMPLES})
    for sample in range(SAMPLES):
        want = interp.run(one, [x[sample] for x in varied], {})
        for g, w in zip(got, want, strict=True):
            np.testing.assert_array_equal(g.reshape(SAMPLES, -1)[sample], w.reshape(-1))


def test_operators_without_a_formula_are_refused() -> None:
    found = next(d for d in table() if d.compute is None and d.loops is not None)
    made = next(m for s in found.samples() if (m := function_of(found, s, symbolic=False)) is not None)
    with pytest.raises(UnsupportedError, match=r"loop\.no-rule"):
        ops_to_loops(made[0], table().definition, batch=SampleBatch(fresh("b"), frozenset()))
