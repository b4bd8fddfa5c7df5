"""The portfolio: several algorithms, the smallest plan, always checked.

    plan([Buffer("a", 0, 2, 64), Buffer("b", 1, 3, 128)]).offsets

The effort is counted in steps, not in seconds, so the same buffers give the same plan on every
machine. Greedy orders are tried first and often reach the lower bound, which ends the search.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from inlay.base.diagnostics import InternalError
from inlay.packing.algorithms import greedy, hill_climb, linear_scan
from inlay.packing.bounds import max_live
from inlay.packing.buffer import Buffer, Plan, peak_of
from inlay.packing.check import violations
from inlay.packing.conflicts import conflicts

MAX_PAIRS = 4_000_000
"""Conflicting pairs beyond which only algorithms that do not need them are used."""
STEPS = 10_000
"""Default budget of the search, in placements of one buffer (about 1 us to 20 us each)."""


def plan(buffers: Sequence[Buffer], *, steps: int = STEPS) -> Plan:
    """Return the smallest plan found.

    Args:
        buffers: what to pack; ids are for messages.
        steps: budget of the search; 0 for the greedy orders only.
    """
    for buffer in buffers:
        assert buffer.size >= 0, f"buffer {buffer.id} has a size"
        assert buffer.alignment >= 1, f"buffer {buffer.id} has an alignment"
    bound = max_live(buffers)
    best: tuple[int, list[int], str] | None = None
    for name, offsets in attempts(buffers, bound, steps):
        peak = peak_of(buffers, offsets)
        if best is None or peak < best[0]:
            best = (peak, offsets, name)
        if peak == bound:
            break
    assert best is not None, "there is an algorithm for any number of buffers"
    if wrong := violations(buffers, best[1]):
        raise InternalError(f"the memory plan is wrong: {wrong[0]}", where=best[2])
    return Plan(tuple(best[1]), best[0], bound)


def attempts(buffers: Sequence[Buffer], bound: int, steps: int) -> Iterator[tuple[str, list[int]]]:
    """Yield what each algorithm finds, with its name, the quick ones first."""
    neighbors = conflicts(buffers, limit=MAX_PAIRS)
    best: tuple[int, str] | None = None
    if neighbors is not None:
        for order in greedy.ORDERS:
            positions = greedy.order_by(buffers, order)
            for rule in ("first", "best"):
                offsets = greedy.place(buffers, neighbors, positions, rule)
                peak = peak_of(buffers, offsets)
                if best is None or peak < best[0]:
                    best = (peak, order)
                yield f"{rule}_fit.{order}", offsets
    yield "linear_scan", linear_scan.place(buffers)
    if neighbors is not None and steps:
        start = greedy.order_by(buffers, best[1] if best is not None else "size")
        yield "hill_climb", hill_climb.place(buffers, neighbors, start, bound=bound, steps=steps)
