"""The portfolio: several algorithms, the smallest plan, always checked.

    plan([Buffer("a", 0, 2, 64), Buffer("b", 1, 3, 128)]).offsets

The effort is counted in steps, not in seconds, so the same buffers give the same plan on every
machine. Greedy orders are tried first and often reach the lower bound, which ends the search.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from inlay.base.diagnostics import InternalError, error
from inlay.packing import bounds
from inlay.packing.algorithms import greedy, hill_climb, linear_scan
from inlay.packing.buffer import Buffer, Plan, peak_of
from inlay.packing.check import violations
from inlay.packing.conflicts import conflicts

MAX_PAIRS = 4_000_000
"""Conflicting pairs beyond which only algorithms that do not need them are used."""
STEPS = 10_000
"""Default budget of the search, in placements of one buffer (about 1 us to 20 us each)."""


def plan(
    buffers: Sequence[Buffer],
    *,
    capacity: int | None = None,
    steps: int = STEPS,
    algorithm: str | None = None,
) -> Plan:
    """Return the smallest plan found.

    Args:
        buffers: what to pack; ids are for messages.
        capacity: bytes there are; None for no limit.
        steps: budget of the search; 0 for the greedy orders only.
        algorithm: use only this one (`first_fit.size`, `best_fit.area`, `linear_scan`,
            `hill_climb`, ...).

    Raises:
        CompileError: `memory.over-capacity`, with what lives at the critical moment.
    """
    for buffer in buffers:
        assert buffer.size >= 0, f"buffer {buffer.id} has a size"
        assert buffer.alignment >= 1, f"buffer {buffer.id} has an alignment"
    bound = bounds.max_live(buffers)
    best: tuple[int, list[int], str] | None = None
    for name, offsets in _attempts(buffers, bound, steps, algorithm):
        peak = peak_of(buffers, offsets)
        if best is None or peak < best[0]:
            best = (peak, offsets, name)
        if peak == bound:
            break
    if best is None:
        known = ", ".join(names())
        raise error("name.unknown", f"there is no algorithm {algorithm!r}; there are {known}")
    if wrong := violations(buffers, best[1]):
        raise InternalError(f"the memory plan is wrong: {wrong[0]}", where=best[2])
    if capacity is not None and best[0] > capacity:
        raise _over_capacity(buffers, best[0], bound, capacity)
    return Plan(tuple(best[1]), best[0], bound, best[2])


def names() -> list[str]:
    """Return the names of the algorithms."""
    fits = [f"{rule}_fit.{order}" for order in greedy.ORDERS for rule in ("first", "best")]
    return [*fits, "linear_scan", "hill_climb"]


def _attempts(
    buffers: Sequence[Buffer], bound: int, steps: int, algorithm: str | None
) -> Iterator[tuple[str, list[int]]]:
    def wanted(name: str) -> bool:
        return algorithm is None or algorithm == name

    neighbors = conflicts(buffers, limit=MAX_PAIRS)
    best: tuple[int, str] | None = None
    if neighbors is not None:
        for order in greedy.ORDERS:
            positions = greedy.order_by(buffers, order)
            for rule in ("first", "best"):
                name = f"{rule}_fit.{order}"
                if not wanted(name):
                    continue
                offsets = greedy.place(buffers, neighbors, positions, rule)
                peak = peak_of(buffers, offsets)
                if best is None or peak < best[0]:
                    best = (peak, order)
                yield name, offsets
    if wanted("linear_scan"):
        yield "linear_scan", linear_scan.place(buffers)
    if neighbors is not None and wanted("hill_climb") and (steps or algorithm):
        start = greedy.order_by(buffers, best[1] if best is not None else "size")
        found = hill_climb.place(buffers, neighbors, start, bound=bound, steps=steps or STEPS)
        yield "hill_climb", found


def _over_capacity(buffers: Sequence[Buffer], peak: int, bound: int, capacity: int) -> Exception:
    moment, live = bounds.critical(buffers)
    notes = [
        f"{b.id}: {b.size} bytes, from {b.lower} to {b.upper}"
        for b in sorted(live, key=lambda b: -b.size)[:10]
    ]
    if bound > capacity:
        why = f"at moment {moment} there live {bound} bytes, so no plan exists"
    else:
        why = f"the best plan found needs {peak}; at least {bound} are needed"
    return error(
        "memory.over-capacity",
        f"the buffers do not fit {capacity} bytes: {why}",
        notes=[f"what lives at moment {moment}:", *notes],
        hint="give a larger memory, or smaller sizes",
    )
