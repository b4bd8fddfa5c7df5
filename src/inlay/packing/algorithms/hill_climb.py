"""Improve the order of first fit by moving buffers at the peak forward.

A plan is as large as its highest end. The buffers that end there, and those that force them up,
are placed too late in the order; exchanging one of them with an earlier one, and placing all again,
gives a neighbor. It is kept if it is not larger, now and then even if it is, and the best plan seen
is the result. The choice is seeded: the same input gives the same plan.

Source: the idea is that of the hill-climb allocator in TVM's unified static memory planner and of
the Ethos-U compiler; written anew.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from inlay.packing.algorithms import greedy
from inlay.packing.buffer import Buffer, peak_of


def place(
    buffers: Sequence[Buffer],
    neighbors: Sequence[Sequence[int]],
    order: Sequence[int],
    *,
    bound: int,
    steps: int,
) -> list[int]:
    """Return the offsets of the best order found.

    Args:
        buffers: what to place.
        neighbors: for each, those it conflicts with.
        order: where to start.
        bound: peak at which to stop, because no plan is smaller.
        steps: budget, counted in placements of one buffer.
    """
    generator = random.Random(0)
    current = list(order)
    offsets = greedy.place(buffers, neighbors, current)
    peak = best_peak = peak_of(buffers, offsets)
    best = offsets
    for _ in range(steps // max(len(buffers), 1)):
        if best_peak <= bound:
            break
        candidate = _neighbor(buffers, neighbors, current, offsets, peak, generator)
        found = greedy.place(buffers, neighbors, candidate)
        found_peak = peak_of(buffers, found)
        # A slightly larger plan may lead out of a dead end.
        if found_peak <= peak or generator.random() < 0.02:
            current, offsets, peak = candidate, found, found_peak
        if found_peak < best_peak:
            best, best_peak = found, found_peak
    return best


def _neighbor(
    buffers: Sequence[Buffer],
    neighbors: Sequence[Sequence[int]],
    order: list[int],
    offsets: list[int],
    peak: int,
    generator: random.Random,
) -> list[int]:
    """Exchange a buffer at the peak, or one right below such, with one placed before it."""
    top = [i for i, b in enumerate(buffers) if b.takes_space and offsets[i] + b.size == peak]
    high = generator.choice(top)
    below = [other for other in neighbors[high] if offsets[other] + buffers[other].size <= offsets[high]]
    if below and generator.random() < 0.5:
        high = generator.choice(below)
    at = order.index(high)
    candidate = list(order)
    earlier = [k for k in range(at) if order[k] in set(neighbors[high])] or list(range(at))
    if not earlier:
        to = generator.randrange(len(order))
    else:
        to = generator.choice(earlier)
    if generator.random() < 0.5:
        candidate[at], candidate[to] = candidate[to], candidate[at]
    else:
        candidate.insert(min(to, at), candidate.pop(max(to, at)))
    return candidate
