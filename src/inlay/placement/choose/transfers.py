"""What a copy costs: the one formula of all who predict, bound or report the time of copies.

A *hop* is one link on the way of a copy. It takes a latency and a time for each byte; a copy that goes
over several links takes the sum, and it is made as often as the value or as the rarest of its readers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from inlay.machine.device import Link

Quantity = TypeVar("Quantity", float, NDArray[np.float64])


class Hop(NamedTuple):
    """A link as a problem has it.

    Attributes:
        device: index of the device to which it leads.
        engine: index of the engine that copies.
        latency: nanoseconds before the first byte.
        per_byte: nanoseconds for each byte.
        memory: number of the memory that it leads to; -1 where nobody asks.
    """

    device: int
    engine: int
    latency: float
    per_byte: float
    memory: int = -1


Route = tuple[Hop, ...]
"""The links from one device to another, in order; none where both see the same bytes."""


def transfer_ns(latency: Quantity, per_byte: Quantity, size: Quantity, times: Quantity) -> Quantity:
    """Return the nanoseconds of copies of some bytes over one link, made so many times."""
    return (latency + per_byte * size) * times


def hop_of(link: Link, device: int, engine: int, memory: int = -1) -> Hop:
    """Return a link of a board as a hop."""
    return Hop(device, engine, link.latency_ns, 1.0 / link.bytes_per_ns, memory)


def byte_away(out: Link, back: Link) -> float:
    """Return the nanoseconds of each byte that leaves a memory and comes back."""
    return 1.0 / out.bytes_per_ns + 1.0 / back.bytes_per_ns


def route_ns(route: Iterable[Hop], size: float, times: float = 1.0) -> float:
    """Return the nanoseconds of copies over a route whose engines do nothing else."""
    return sum(transfer_ns(hop.latency, hop.per_byte, size, times) for hop in route)


def times_copied(often: float, *readers: float) -> float:
    """Return how often a value is copied: as often as it is made or as the rarest reader runs."""
    return min(often, *readers)


def fitted(measured: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return latency and bytes in a nanosecond of a link from sizes and times of its copies.

    The least times of the smallest and of the largest size decide.
    """
    by_size: dict[float, float] = {}
    for size, ns in measured:
        by_size[size] = min(ns, by_size.get(size, ns))
    (small, least), (large, most) = min(by_size.items()), max(by_size.items())
    per_byte = max(0.0, (most - least) / (large - small)) if large > small else 0.0
    return max(0.0, least - small * per_byte), 1.0 / max(per_byte, 1e-3)
