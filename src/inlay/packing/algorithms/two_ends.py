"""Place buffers in the order of their beginnings within a goal, from both ends of what is free.

In a chain each buffer lives beside the one before and the one behind it: one at the bottom and the next one
at the top fit within the largest sum of two, where first fit leaves gaps that are too small. In general a
buffer goes to that end of a free range whose neighbor lives longest, so that what becomes free when the
other neighbor ends is in one piece. Of the ranges that are large enough, it takes one that it fills, else
one whose neighbor ends when it does.

It finds nothing where a buffer has no room, and nothing above the goal.
"""

from __future__ import annotations

from inlay.packing.algorithms.interface import Found, Task
from inlay.packing.buffer import align

MOST_PAIRS = 1_000_000
"""Conflicting pairs beyond which it takes too long."""

_FOREVER = 1 << 62
"""When the ends of the memory end."""


def run(task: Task) -> Found:
    """Place. Cost: for each buffer the number of those alive."""
    instance, unit = task.instance, task.instance.unit
    if instance.pairs > MOST_PAIRS:
        return Found(None, 0)
    buffers, offsets = instance.buffers, [0] * len(instance.buffers)
    live: list[tuple[int, int, int]] = []  # offset, end, and when it is free again, by offset
    order = sorted(range(len(buffers)), key=lambda i: (buffers[i].lower, -buffers[i].upper, -buffers[i].size))
    for index in order:
        b = buffers[index]
        live = [x for x in live if x[2] > b.lower]
        place = _place(live, b.size // unit, max(b.alignment // unit, 1), b.upper, task.goal)
        if place is None:
            return Found(None, len(order))
        number, offsets[index] = place
        live.insert(number, (offsets[index], offsets[index] + b.size // unit, b.upper))
    return Found(offsets, len(order))


def _place(
    live: list[tuple[int, int, int]], size: int, step: int, until: int, goal: int
) -> tuple[int, int] | None:
    """Return where a buffer goes among those alive, and its offset; None where it has no room."""
    best: tuple[tuple[bool, int, int], int, int] | None = None
    begin, below = 0, _FOREVER
    for number, (end, after, above) in enumerate((*live, (goal, goal, _FOREVER))):
        low, high = align(begin, step), (end - size) // step * step
        if low <= high:
            offset = low if below >= above else high
            key = (end - begin != size, abs(max(below, above) - until), end - begin)
            if best is None or key < best[0]:
                best = key, number, offset
        begin, below = after, above
    return None if best is None else best[1:]
