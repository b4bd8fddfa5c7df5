"""The independent checker: whether offsets are a plan. It shares nothing with the algorithms."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence

from inlay.packing.buffer import Buffer


def violations(
    buffers: Sequence[Buffer], offsets: Sequence[int], *, capacity: int | None = None
) -> list[str]:
    """Return what is wrong with offsets, one sentence each; nothing if they are a plan.

    Checked: one offset for each buffer, none negative, each aligned, each within the capacity, and
    no two that live at one moment share a byte.

    Cost: n log n comparisons (and the shifting of a sorted list of what lives at a moment).
    """
    if len(offsets) != len(buffers):
        return [f"{len(buffers)} buffers have {len(offsets)} offsets"]
    found: list[str] = []
    for buffer, offset in zip(buffers, offsets, strict=True):
        if offset < 0:
            found.append(f"buffer {buffer.id} is at {offset}")
        if offset % buffer.alignment:
            found.append(f"buffer {buffer.id} at {offset} is not aligned to {buffer.alignment}")
        if capacity is not None and buffer.takes_space and offset + buffer.size > capacity:
            found.append(
                f"buffer {buffer.id} ends at {offset + buffer.size}, beyond the {capacity} there are"
            )
    return found + _overlaps(buffers, offsets)


def _overlaps(buffers: Sequence[Buffer], offsets: Sequence[int]) -> list[str]:
    """Sweep over time; what lives is kept sorted by place, so only neighbors can overlap."""
    begin, end = 1, 0
    events: list[tuple[int, int, int]] = []
    for index, buffer in enumerate(buffers):
        if buffer.takes_space:
            events += [(buffer.lower, begin, index), (buffer.upper, end, index)]
    live: list[tuple[int, int, int]] = []
    found: list[str] = []
    for _, kind, index in sorted(events):
        place = (offsets[index], offsets[index] + buffers[index].size, index)
        if kind == end:
            del live[bisect_left(live, place)]
            continue
        at = bisect_left(live, place)
        # While nothing overlapped so far, only the neighbor below can reach up to here.
        for other in (*live[max(at - 1, 0) : at], *_following(live, at, place[1])):
            if other[0] < place[1] and place[0] < other[1]:
                a, b = buffers[other[2]], buffers[index]
                found.append(
                    f"buffers {a.id} at [{other[0]}, {other[1]}) and {b.id} at "
                    f"[{place[0]}, {place[1]}) live at the same time"
                )
        insort(live, place)
    return found


def _following(live: list[tuple[int, int, int]], start: int, limit: int) -> list[tuple[int, int, int]]:
    found: list[tuple[int, int, int]] = []
    for index in range(start, len(live)):
        if live[index][0] >= limit:
            break
        found.append(live[index])
    return found
