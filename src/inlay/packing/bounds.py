"""Lower bounds: bytes that no plan can do without."""

from __future__ import annotations

from collections.abc import Sequence

from inlay.packing.buffer import Buffer


def max_live(buffers: Sequence[Buffer]) -> int:
    """Return the largest total size of buffers that live at one moment.

    Cost: n log n.
    """
    events: list[tuple[int, int]] = []
    for buffer in buffers:
        if buffer.takes_space:
            events += [(buffer.lower, buffer.size), (buffer.upper, -buffer.size)]
    # At one moment what ends goes before what begins: negative sizes sort first.
    live = most = 0
    for _, change in sorted(events):
        live += change
        most = max(most, live)
    return most


def critical(buffers: Sequence[Buffer]) -> tuple[int, list[Buffer]]:
    """Return the first moment at which most bytes live, and the buffers that live then."""
    bound = max_live(buffers)
    moments = sorted({buffer.lower for buffer in buffers if buffer.takes_space})
    events = sorted(
        event
        for buffer in buffers
        if buffer.takes_space
        for event in ((buffer.lower, buffer.size), (buffer.upper, -buffer.size))
    )
    live = position = 0
    for moment in moments:
        while position < len(events) and events[position][0] <= moment:
            live += events[position][1]
            position += 1
        if live == bound:
            return moment, [b for b in buffers if b.takes_space and b.lower <= moment < b.upper]
    return 0, []
