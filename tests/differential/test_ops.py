"""Every sample of every operator through every executor, against the reference."""

from __future__ import annotations

import numpy as np
import pytest

from inlay.ops._define import OpDef, Sample
from inlay.ops.table import table
from tests.differential.executors import EXECUTORS, Executor, prepare, sum_length
from tests.tolerance import assert_close

CASES = [
    pytest.param(e, d, s, symbolic, id=f"{e.name}-{d.name}-{s.name}{'-symbolic' * symbolic}")
    for d in table()
    for e in EXECUTORS
    if e.supports(d)
    for s in d.samples()
    for symbolic in ((False, True) if s.symbolic else (False,))
]


@pytest.mark.parametrize(("executor", "d", "s", "symbolic"), CASES)
def test_executor_agrees_with_the_reference(
    executor: Executor, d: OpDef, s: Sample, symbolic: bool
) -> None:
    setup = prepare(d, s, symbolic=symbolic)
    expected = d.evaluate(s.attrs, *s.args)
    expected = expected if isinstance(expected, tuple) else (expected,)
    for actual, needed in zip(executor.run(setup), expected, strict=True):
        assert isinstance(needed, np.ndarray)
        assert_close(actual, needed, length=sum_length(setup), exact=s.exact)


def test_every_operator_runs_somewhere() -> None:
    stranded = [
        d.name
        for d in table()
        if d.pattern != "control" and not (d.compute or d.loops or d.decompose)
    ]
    assert not stranded
