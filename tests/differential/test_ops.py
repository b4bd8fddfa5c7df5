"""Every sample of every operator through every executor, against the reference."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from random import Random

import numpy as np
import pytest

from inlay.ops._define import FusionPattern, OpDef, Sample
from inlay.ops.table import table
from tests.differential.executors import EXECUTORS, Executor, prepare, sum_length
from tests.tolerance import assert_close

Variant = tuple[Sample, bool]
"""A sample, and whether its sizes are symbols."""


def cases() -> Iterator[object]:
    """Every executor with every sample, symbolic dims too: for each operator some, and the rest, slow.

    A few of each operator are drawn for the executors that take long, of those with symbolic dims
    where there are any; `test_ops_to_loops` draws more, from the same samples.
    """
    for e, d in itertools.product(EXECUTORS, table()):
        if not e.supports(d):
            continue
        variants = [(s, v) for s in d.samples() for v in ((False, True) if s.symbolic else (False,))]
        hard = [i for i, (s, v) in enumerate(variants) if v == bool(s.symbolic)]
        drawn = set(hard)
        if e.most is not None and len(hard) > e.most:
            drawn = set(Random(d.name).sample(hard, e.most))
        rest = [i for i in range(len(variants)) if i not in drawn]
        for name, part, marks in (("some", sorted(drawn), ()), ("rest", rest, (pytest.mark.slow,))):
            if part:
                members = [variants[i] for i in part]
                yield pytest.param(e, d, members, id=f"{e.name}-{d.name}-{name}", marks=marks)


@pytest.mark.sample(120)
@pytest.mark.parametrize(("executor", "d", "variants"), list(cases()))
def test_executor_agrees_with_the_reference(
    executor: Executor, d: OpDef, variants: Sequence[Variant]
) -> None:
    for s, symbolic in variants:
        try:
            agree(executor, d, s, symbolic=symbolic)
        except Exception as failure:
            failure.add_note(f"sample {s.name}{', symbolic' * symbolic}")
            raise


def agree(executor: Executor, d: OpDef, s: Sample, *, symbolic: bool) -> None:
    setup = prepare(d, s, symbolic=symbolic)
    expected = d.evaluate(s.attrs, *s.args)
    expected = expected if isinstance(expected, tuple) else (expected,)
    for actual, needed in zip(executor.run(setup), expected, strict=True):
        assert isinstance(needed, np.ndarray)
        assert_close(actual, needed, length=sum_length(setup), exact=s.exact)


def test_every_operator_runs_somewhere_and_has_samples() -> None:
    tensor = [d for d in table() if d.pattern is not FusionPattern.CONTROL]
    assert [d.name for d in tensor if not (d.compute or d.loops or d.decompose or d.foreign)] == []
    assert [d.name for d in tensor if not d.samples()] == []
