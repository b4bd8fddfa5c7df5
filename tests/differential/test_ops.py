"""Every sample of every operator through every executor, against the reference."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest

from inlay.ops._define import OpDef, Pattern, Sample
from inlay.ops.table import table
from tests.differential.executors import EXECUTORS, Executor, prepare, sum_length
from tests.tolerance import assert_close


def cases() -> Iterator[object]:
    """Every executor with every sample, symbolic dims too; what is left out by default is slow."""
    count = 0
    for e, d in itertools.product(EXECUTORS, table()):
        if not e.supports(d):
            continue
        for s in d.samples():
            for symbolic in (False, True) if s.symbolic else (False,):
                count += 1
                many = d.pattern in (Pattern.ELEMENTWISE, Pattern.BROADCAST)
                skipped = (many and count % e.share) or (
                    e.share > 1 and s.symbolic and not symbolic
                )
                yield pytest.param(
                    e, d, s, symbolic,
                    id=f"{e.name}-{d.name}-{s.name}{'-symbolic' * symbolic}",
                    marks=[pytest.mark.slow] if skipped else [],
                )  # fmt: skip


@pytest.mark.parametrize(("executor", "d", "s", "symbolic"), list(cases()))
def test_executor_agrees_with_the_reference(
    executor: Executor, d: OpDef, s: Sample, symbolic: bool
) -> None:
    setup = prepare(d, s, symbolic=symbolic)
    expected = d.evaluate(s.attrs, *s.args)
    expected = expected if isinstance(expected, tuple) else (expected,)
    for actual, needed in zip(executor.run(setup), expected, strict=True):
        assert isinstance(needed, np.ndarray)
        assert_close(actual, needed, length=sum_length(setup), exact=s.exact)


def test_every_operator_runs_somewhere_and_has_samples() -> None:
    tensor = [d for d in table() if d.pattern is not Pattern.CONTROL]
    assert [d.name for d in tensor if not (d.compute or d.loops or d.decompose or d.foreign)] == []
    assert [d.name for d in tensor if not d.samples()] == []
