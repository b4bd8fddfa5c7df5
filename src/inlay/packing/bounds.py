"""Lower bounds: bytes that no plan can do without."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from math import gcd
from typing import NamedTuple

from inlay.packing.buffer import Buffer, align


class Bound(NamedTuple):
    """A lower bound and its reason: what lives at a moment needs so many bytes."""

    bytes: int
    moment: int | None


def max_live(buffers: Sequence[Buffer]) -> int:
    """Return the largest total size of buffers that live at one moment.

    Cost: n log n.
    """
    return _most(buffers, 1).bytes


def live_at(buffers: Iterable[Buffer], moment: int) -> list[Buffer]:
    """Return what lives at a moment, the largest first."""
    live = (b for b in buffers if b.takes_space and b.lower <= moment < b.upper)
    return sorted(live, key=lambda b: -b.size)


def critical_moment(buffers: Sequence[Buffer]) -> Bound:
    """Return the moment at which what lives needs the most bytes, and how many.

    All offsets are multiples of the greatest common divisor of the alignments. Of what lives at one
    moment each but the highest is therefore followed by the bytes up to the next multiple: the sum
    of the rounded sizes, less the most that the highest can save.

    Cost: n log n.
    """
    step = gcd(*(b.alignment for b in buffers if b.takes_space)) or 1
    plain = _most(buffers, 1)
    return plain if step == 1 else max(plain, _most(buffers, step), key=lambda bound: bound.bytes)


def _most(buffers: Sequence[Buffer], step: int) -> Bound:
    """Return the largest sum over what lives of sizes rounded to a step, less the largest rounding."""
    begin, end = 1, 0
    events: list[tuple[int, int, int]] = []
    for index, buffer in enumerate(buffers):
        if buffer.takes_space:
            events += [(buffer.lower, begin, index), (buffer.upper, end, index)]
    # At one moment what ends goes before what begins.
    live, best, moment = 0, 0, None
    saved: list[tuple[int, int]] = []  # a heap of what rounding adds, and when it ends
    for time, kind, index in sorted(events):
        size = buffers[index].size
        rounded = align(size, step)
        if kind == end:
            live -= rounded
            continue
        live += rounded
        heapq.heappush(saved, (size - rounded, buffers[index].upper))
        while saved[0][1] <= time:
            heapq.heappop(saved)
        if live + saved[0][0] > best:
            best, moment = live + saved[0][0], time
    return Bound(best, moment)
