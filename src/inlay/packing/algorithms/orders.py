"""Orders in which greedy algorithms place buffers: large or long-lived ones first, in several senses.

Source: the "greedy by size" family of Pisarchyk and Lee, "Efficient Memory Management for Deep
Neural Net Inference" (2020).
"""

from __future__ import annotations

from array import array
from collections.abc import Callable

from inlay.packing.buffer import Buffer
from inlay.packing.instance import Instance

ORDERS: dict[str, Callable[[Buffer], tuple[int, ...]]] = {
    "size": lambda b: (-b.size, b.lower - b.upper),
    "area": lambda b: (-b.size * (b.upper - b.lower),),
    "length": lambda b: (b.lower - b.upper, -b.size),
    "start": lambda b: (b.lower, -b.size),
}
"""Sort keys by name."""


def order_by(instance: Instance, name: str) -> bytes:
    """Return the positions of the buffers in an order of `ORDERS`; ties keep theirs."""
    keys = [ORDERS[name](b) for b in instance.buffers]
    return array("i", sorted(range(len(keys)), key=keys.__getitem__)).tobytes()
