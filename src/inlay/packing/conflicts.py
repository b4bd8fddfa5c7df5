"""Which buffers live at the same time."""

from __future__ import annotations

from collections.abc import Sequence

from inlay.packing.buffer import Buffer


def conflicts(buffers: Sequence[Buffer], *, limit: int) -> list[list[int]] | None:
    """Return for each buffer those that conflict with it, or None beyond ``limit`` pairs.

    Cost: n log n, plus the number of pairs.
    """
    found: list[list[int]] = [[] for _ in buffers]
    begin, end = 1, 0
    events: list[tuple[int, int, int]] = []
    for index, buffer in enumerate(buffers):
        if buffer.takes_space:
            events += [(buffer.lower, begin, index), (buffer.upper, end, index)]
    live: dict[int, None] = {}
    pairs = 0
    for _, kind, index in sorted(events):
        if kind == end:
            del live[index]
            continue
        pairs += len(live)
        if pairs > limit:
            return None
        for other in live:
            found[other].append(index)
        found[index].extend(live)
        live[index] = None
    return found
