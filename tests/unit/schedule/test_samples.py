"""No rule gives up half-way on an operator: nothing takes the function then, and it stays serial loops."""

from __future__ import annotations

from dataclasses import replace

import pytest

from inlay.lower.ops_to_loops import ops_to_loops
from inlay.machine.target import Target
from inlay.ops._define import OpDef
from inlay.ops.table import table
from inlay.schedule.choose import schedule
from tests.unit.lower.op_functions import function_of
from tests.unit.schedule.programs import gave_up

TARGETS = {f"{size} bytes": replace(Target(), vector_bytes=size) for size in (16, 32, 64)}
COMPUTED = [pytest.param(d, id=d.name) for d in table() if d.compute is not None]


@pytest.mark.sample(8)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("d", COMPUTED)
def test_some_rule_takes_each_sample(d: OpDef, target: str) -> None:
    for sample in d.samples():
        for symbolic in {False, bool(sample.symbolic)}:
            if (made := function_of(d, sample, symbolic=symbolic)) is not None:
                s = schedule(ops_to_loops(made[0], table().definition), TARGETS[target])
                assert s.rule or not gave_up(s), (sample.name, gave_up(s))
