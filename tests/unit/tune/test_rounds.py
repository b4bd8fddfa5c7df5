"""Times in turns: a machine that slows down slows all, and two copies of one program say how quiet it is."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from inlay.tune.rounds import timed


def machine(speed: Callable[[int], float]) -> Callable[[float], Callable[[], float]]:
    """Return what makes programs of so many nanoseconds on a machine whose speed changes with each call."""
    calls = [0]

    def program(ns: float) -> Callable[[], float]:
        def run() -> float:
            calls[0] += 1
            return ns * speed(calls[0])

        return run

    return program


def test_shares_are_right_on_a_machine_that_slows_down() -> None:
    program = machine(lambda call: 1 + call / 500)
    found = timed(program(1e6), [program(0.5e6), program(2e6)], rounds=9)
    assert [ns / found.default_ns for ns in found.ns] == pytest.approx([0.5, 2.0], rel=0.03)
    assert found.noise < 0.03


def test_two_copies_of_the_default_say_how_loud_it_is() -> None:
    loud = timed(*_programs(lambda call: 1 + 0.5 * (call * 7919 % 13) / 13), rounds=9)
    quiet = timed(*_programs(lambda _call: 1.0), rounds=9)
    assert quiet.noise == 0.0
    assert loud.noise > 0.05


def _programs(speed: Callable[[int], float]) -> tuple[Callable[[], float], list[Callable[[], float]]]:
    program = machine(speed)
    return program(1e6), [program(1e6)]


def test_a_moment_of_one_round_does_not_count() -> None:
    program = machine(lambda call: 50.0 if 40 <= call < 44 else 1.0)
    found = timed(program(1e6), [program(0.9e6)], rounds=9)
    assert found.ns[0] / found.default_ns == pytest.approx(0.9)
