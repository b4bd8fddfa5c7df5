"""Place buffers in the order of their beginnings, looking only at those that live then.

Never needs all conflicting pairs, so it is what is left for very large problems; its plans are
usually larger than those of greedy orders by size.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Sequence

from inlay.packing.algorithms.greedy import order_by
from inlay.packing.buffer import Buffer, align


def place(buffers: Sequence[Buffer]) -> list[int]:
    """Return offsets: each buffer takes the smallest gap that fits among those alive.

    Cost: n log n, plus for each buffer the number of those alive.
    """
    offsets = [0] * len(buffers)
    live: list[tuple[int, int]] = []
    ends: list[tuple[int, int, int]] = []
    for index in order_by(buffers, "start"):
        buffer = buffers[index]
        if not buffer.takes_space:
            continue
        while ends and ends[0][0] <= buffer.lower:
            _, start, end = heapq.heappop(ends)
            del live[bisect_left(live, (start, end))]
        offset = _best_gap(buffer, live)
        offsets[index] = offset
        insort(live, (offset, offset + buffer.size))
        heapq.heappush(ends, (buffer.upper, offset, offset + buffer.size))
    return offsets


def _best_gap(buffer: Buffer, live: list[tuple[int, int]]) -> int:
    position = 0
    best: tuple[int, int] | None = None
    for start, end in live:
        offset = align(position, buffer.alignment)
        if offset + buffer.size <= start and (best is None or start - position < best[0]):
            best = (start - position, offset)
        position = end
    return best[1] if best is not None else align(position, buffer.alignment)
