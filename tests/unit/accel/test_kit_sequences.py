"""Streams of several matches that are wrong are found out by the kit: matches by themselves are right."""

from __future__ import annotations

import pytest

from inlay.accel import keep, merge
from inlay.accel.backend import AcceleratorBackend
from inlay.accel.kit import SEQUENCES, Checked, checks
from inlay.accel.kit_order import tokens, without
from inlay.accel.resident import Kept
from inlay.accelerators import strawberry

TRIALS = 10


def found(backend: AcceleratorBackend, trials: int = TRIALS) -> list[Checked]:
    """Return the checks of a description that hold no streams of several matches, and that of those last."""
    made = [
        c for c in checks(backend, trials, 0) if isinstance(c, Checked) and "instruction" not in c.section
    ]
    assert all(not c.failure for c in made[:-1])
    return made


def fresh() -> AcceleratorBackend:
    """A back end that remembers no streams."""
    return AcceleratorBackend("strawberry", strawberry.Strawberry)


@pytest.mark.llvm
def test_values_stay_in_streams_that_are_right() -> None:
    last = found(fresh())[-1]
    assert last.section == SEQUENCES
    assert not last.failure
    assert last.trials == TRIALS // 5
    assert "values stay in 0 of" not in last.what


def without_a_token(arch, commands):
    """Order commands, and forget that one waits for another."""
    stream, timing = in_order(arch, commands)
    return tuple(without(stream, *tokens(stream)[-1])), timing


in_order = merge.in_order
FAULTS = {
    "tiles over what stays": (keep, "rooms_of", lambda *_: {}),
    "room that is given away too early": (Kept, "upper", property(lambda k: k.lower + 1)),
    "a token too few": (merge, "in_order", without_a_token),
}


@pytest.mark.llvm
@pytest.mark.sample(1)
@pytest.mark.parametrize("fault", FAULTS)
def test_faults_of_what_stays_are_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*FAULTS[fault])
    last = found(fresh(), 25)[-1]
    assert last.section == SEQUENCES
    assert last.failure
    assert "requantize" in last.program
