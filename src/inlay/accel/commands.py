"""Planned commands, as data: what a stream will say, before it is put into words.

Addresses in memories of the device are in units of the memory; so are those in the memory of the board, in
units of the memory that is at the other end of the copy, from the base that a region is given.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

SHARED = ""
"""The memory of the board, in spans: bytes from the base of the region."""


@dataclass(frozen=True, slots=True)
class Span:
    """Units `first` to `last`, that one excluded, of a memory that a command touches."""

    memory: str
    first: int
    last: int

    def meets(self, other: Span) -> bool:
        """Whether both have a unit in common."""
        return self.memory == other.memory and self.first < other.last and other.first < self.last


@dataclass(frozen=True, slots=True)
class Place:
    """Where an operand begins, and how far it is from one index to the next along its strided axes."""

    at: int
    stride: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Planned:
    """A command.

    Attributes:
        name: of its instruction or copy; empty for one that only orders queues.
        queue: where it waits.
        numbers: dims and immediates of an instruction; of a copy rows `y` of `x` units that are `stride`
            units apart, what is put around them, and the position `dram` in the memory of the board.
        places: operands by name; `chip` of a copy.
        reads, writes: what it touches.
        cycles: how long it takes by itself, without what it waits for.
        outside: cycles, behind those, for which it has the memory of the board.
        is_copy: whether it is no instruction; a copy that only fills has no cycles outside.
    """

    name: str
    queue: str
    numbers: Mapping[str, int] = field(default_factory=dict[str, int])
    places: Mapping[str, Place] = field(default_factory=dict[str, Place])
    reads: tuple[Span, ...] = ()
    writes: tuple[Span, ...] = ()
    cycles: int = 0
    outside: int = 0
    is_copy: bool = False


@dataclass(frozen=True, slots=True)
class Ordered:
    """A command with the flags by which it waits and lets others go on.

    Attributes:
        command: which.
        pops, pushes: numbers of tokens in the order that the device declares.
    """

    command: Planned
    pops: tuple[int, ...]
    pushes: tuple[int, ...]
