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
