"""What algorithms read: the buffers that take space, as columns of numbers, in the largest unit.

Sizes and alignments are often multiples of some number of bytes. Dividing by it changes nothing, as
offsets of a plan in which nothing can move down are multiples of it too, and takes alignments away
that hold by themselves.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import gcd
from typing import TypeAlias

from inlay.packing import _search
from inlay.packing.buffer import Buffer

Watch: TypeAlias = Callable[[int], bool]
"""Called now and then with the steps of one algorithm so far; it stops where this answers True."""

MOST_BYTES = 1 << 62
"""Sizes and alignments together are less than this: offsets are numbers of 64 bits."""


@dataclass(frozen=True)
class Instance:
    """Buffers in units.

    Attributes:
        buffers: those that take space.
        unit: bytes; sizes and offsets of `native` are counted in it.
        native: the instance of the extension module.
    """

    buffers: Sequence[Buffer]
    unit: int
    native: _search.Capsule

    @cached_property
    def pairs(self) -> int:
        """How many pairs of buffers conflict."""
        return _search.describe(self.native)[2]

    @cached_property
    def spans(self) -> int:
        """How many sections of time the buffers live in, added up: what a search keeps in memory."""
        return _search.describe(self.native)[1]


def make_instance(buffers: Sequence[Buffer]) -> Instance:
    """Return an instance of buffers.

    Requires sizes and alignments that add up to less than `MOST_BYTES`.
    """
    some = [b for b in buffers if b.takes_space]
    unit = _unit(some)
    # Moments have no meaning beyond their order.
    times = {t: i for i, t in enumerate(sorted({t for b in some for t in (b.lower, b.upper)}))}
    native = _search.instance(
        array("q", (times[b.lower] for b in some)).tobytes(),
        array("q", (times[b.upper] for b in some)).tobytes(),
        array("q", (b.size // unit for b in some)).tobytes(),
        array("q", (max(b.alignment // unit, 1) for b in some)).tobytes(),
    )
    return Instance(some, unit, native)


def _unit(buffers: Sequence[Buffer]) -> int:
    """Return the largest number that divides all sizes, and each alignment or is a multiple of it."""
    unit = gcd(*(b.size for b in buffers)) or 1
    alignments = sorted({b.alignment for b in buffers})
    while partial := next((a for a in alignments if unit % a and a % unit), 0):
        unit = gcd(unit, partial)
    return unit
