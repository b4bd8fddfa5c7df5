"""Streams of several matches that are wrong are found out by the kit: matches by themselves are right."""

from __future__ import annotations

import pytest

from inlay.accel import keep, merge
from inlay.accel.backend import AcceleratorBackend
from inlay.accel.kit import SEQUENCES, Checked, check_sequences
from inlay.accel.kit_order import tokens, without
from inlay.accel.resident import Kept
from inlay.accelerators import strawberry


def found(trials: int) -> Checked:
    """Return what becomes of streams of several matches, of a back end that remembers none."""
    return check_sequences(AcceleratorBackend("strawberry", strawberry.Strawberry), trials, 0)


@pytest.mark.llvm
@pytest.mark.slow
def test_values_stay_in_streams_that_are_right() -> None:
    made = found(1)
    assert made.section == SEQUENCES
    assert not made.failure
    assert made.trials == 1
    assert "values stay in 0 of" not in made.what


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
@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_faults_of_what_stays_are_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*FAULTS[fault])
    made = found(5)
    assert made.section == SEQUENCES
    assert made.failure
    assert "requantize" in made.program
