"""Place buffers one by one in a given order, each into a gap between those placed before.

`first_fit` takes the lowest gap that is large enough, `best_fit` the smallest. Orders that put
large or long-lived buffers first do well, because small ones fit into what is left between them.

Source: the "greedy by size" family of Pisarchyk and Lee, "Efficient Memory Management for Deep
Neural Net Inference" (2020).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from inlay.packing.buffer import Buffer, align

Rule = Literal["first", "best"]

ORDERS: dict[str, Callable[[Buffer], tuple[int, ...]]] = {
    "size": lambda b: (-b.size, b.lower - b.upper),
    "area": lambda b: (-b.size * (b.upper - b.lower),),
    "length": lambda b: (b.lower - b.upper, -b.size),
    "start": lambda b: (b.lower, -b.size),
}
"""Sort keys by name."""


def order_by(buffers: Sequence[Buffer], name: str) -> list[int]:
    """Return the positions of the buffers in an order of `ORDERS`; ties keep theirs."""
    key = ORDERS[name]
    return sorted(range(len(buffers)), key=lambda index: key(buffers[index]))


def place(
    buffers: Sequence[Buffer], neighbors: Sequence[Sequence[int]], order: Sequence[int], rule: Rule = "first"
) -> list[int]:
    """Return offsets.

    Args:
        buffers: what to place.
        neighbors: for each, those it conflicts with.
        order: positions of all buffers.
        rule: which gap is taken.

    Cost: the sum over buffers of k log k for k placed neighbors.
    """
    offsets = [-1] * len(buffers)
    for index in order:
        buffer = buffers[index]
        if not buffer.takes_space:
            offsets[index] = 0
            continue
        taken = sorted(
            (offsets[other], offsets[other] + buffers[other].size)
            for other in neighbors[index]
            if offsets[other] >= 0
        )
        offsets[index] = _gap(buffer, taken, rule)
    return offsets


def _gap(buffer: Buffer, taken: list[tuple[int, int]], rule: Rule) -> int:
    position = 0
    best: tuple[int, int] | None = None
    for start, end in taken:
        if start > position:
            offset = align(position, buffer.alignment)
            if offset + buffer.size <= start:
                if rule == "first":
                    return offset
                if best is None or start - position < best[0]:
                    best = (start - position, offset)
        position = max(position, end)
    return best[1] if best is not None else align(position, buffer.alignment)
