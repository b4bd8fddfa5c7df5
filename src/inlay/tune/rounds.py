"""Times of several programs that do the same, in turns.

In each round all of them run, the default twice as if it were two programs: a slow moment of the machine
hits all, and how far the two are apart is what a difference must exceed. Of a program in a round the
least time of some calls counts, over the rounds the median of its share of the default's time.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

Run = Callable[[], float]
"""Runs a program once, and returns its nanoseconds."""
FEWEST_CALLS = 2
MOST_CALLS = 50
ROUND_NS = 2_000_000
"""Time that one program has in a round, about."""


@dataclass(frozen=True, slots=True)
class Timed:
    """Times in the same rounds.

    Attributes:
        default_ns: median over the rounds.
        noise: how far two copies of the default were apart, as a share.
        ns: of each of the others, in order: their median shares of the default's time, times that.
    """

    default_ns: float
    noise: float
    ns: tuple[float, ...]


def timed(default: Run, others: Sequence[Run], rounds: int) -> Timed:
    """Return the times of programs against the default.

    Args:
        default: what the others are held against.
        others: programs.
        rounds: how many, at least one.
    """
    first = min(default(), default())
    calls = max(FEWEST_CALLS, min(MOST_CALLS, int(ROUND_NS / max(first, 1.0))))
    for run in others:
        run()
    found: list[list[float]] = []
    for turn in range(rounds):
        order = [default, *others, default]
        times = [0.0] * len(order)
        # Every other round backwards, so that nobody always follows the same one.
        for i in range(len(order))[:: -1 if turn % 2 else 1]:
            times[i] = min(order[i]() for _ in range(calls))
        found.append(times)
    usual = [(t[0] + t[-1]) / 2 for t in found]
    apart = [t[-1] / t[0] for t in found]
    shares = [
        statistics.median(t[i] / u for t, u in zip(found, usual, strict=True))
        for i in range(1, len(others) + 1)
    ]
    middle = statistics.median(usual)
    return Timed(middle, _noise(apart), tuple(middle * s for s in shares))


def _noise(ratios: Sequence[float]) -> float:
    """Return how far ratios that should be 1 are from it: their median, and half of their middle half."""
    ordered = sorted(ratios)
    quarter = len(ordered) // 4
    spread = ordered[-1 - quarter] - ordered[quarter]
    return max(abs(statistics.median(ordered) - 1), spread / 2)
