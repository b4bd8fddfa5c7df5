"""What inference knows: atoms, which of them are one, facts about them, and edges between them.

Two partitions of the atoms. Atoms of one *value* are the same place, memories included. Atoms of one
*class* are on one device: those of one value, and all results of one operation. Edges join atoms
between which a copy may be written; they go from who makes a value to who consumes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from inlay.base.span import NO_SPAN, Span
from inlay.machine.board import Board


class Edge(IntEnum):
    """How strongly two atoms want one device: the round in which inference crosses the edge."""

    STRONG = 1
    CONTAINER = 2
    ORDINARY = 3


TOGETHER = "takes it only as a part of"
"""What a refusal says where a device runs an operation, and others with it as one."""


class Reason(NamedTuple):
    """Why something is required: where, and in words."""

    text: str
    span: Span = NO_SPAN


class Support(NamedTuple):
    """Which devices can run what makes the tensor of an atom.

    Attributes:
        name: for messages.
        allowed: indices of the devices that can run it, in board order.
        refusals: for each other device why not, by index.
        span: where it stands.
    """

    name: str
    allowed: tuple[int, ...]
    refusals: tuple[tuple[int, str], ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Pin:
    """That an atom is on a device."""

    atom: int
    device: int
    reason: Reason


@dataclass(frozen=True, slots=True)
class Limit:
    """That an atom is in one of some memories, given as a set of bits."""

    atom: int
    memories: int
    reason: Reason


class Partition:
    """Union-find over atoms that grows at the end. The least atom represents its class."""

    __slots__ = ("parent",)

    def __init__(self) -> None:
        self.parent: list[int] = []

    def grow(self) -> int:
        """Add an atom."""
        self.parent.append(len(self.parent))
        return len(self.parent) - 1

    def find(self, atom: int) -> int:
        """Return the representative."""
        parent = self.parent
        while parent[atom] != atom:
            parent[atom] = atom = parent[parent[atom]]
        return atom

    def join(self, a: int, b: int) -> int:
        """Make two classes one; the older represents it, so that order decides nothing else."""
        a, b = self.find(a), self.find(b)
        if a > b:
            a, b = b, a
        self.parent[b] = a
        return a


@dataclass(slots=True, eq=False)
class Machine:
    """A board with devices and memories as numbers: indices of devices, bits of memories."""

    board: Board
    devices: tuple[str, ...] = ()
    reach: tuple[int, ...] = ()
    shared: tuple[tuple[int, ...], ...] = ()
    everyone: tuple[int, ...] = ()
    default: int = 0
    every: int = 0
    device_index: dict[str, int] = field(default_factory=dict[str, int])
    memory_index: dict[str, int] = field(default_factory=dict[str, int])

    def __post_init__(self) -> None:
        board = self.board
        self.devices = tuple(d.name for d in board.devices)
        self.everyone = tuple(range(len(self.devices)))
        self.device_index = {d: i for i, d in enumerate(self.devices)}
        self.memory_index = {m.name: i for i, m in enumerate(board.memories)}
        self.every = (1 << len(board.memories)) - 1
        self.reach = tuple(self.bits(board.writable(d)) for d in self.devices)
        self.shared = tuple(
            tuple(self.bits(board.shared_memories(a, b)) for b in self.devices) for a in self.devices
        )
        self.default = self.device_index[board.default_device]

    def bits(self, memories: Sequence[str]) -> int:
        """Return memories as a set of bits."""
        found = 0
        for m in memories:
            found |= 1 << self.memory_index[m]
        return found

    def names(self, bits: int) -> tuple[str, ...]:
        """Return the names of a set of bits, in board order."""
        return tuple(m.name for i, m in enumerate(self.board.memories) if bits >> i & 1)


class Graph:
    """See the module docstring.

    `edges` are (from, to, kind, memories of the port or -1); `aliases` say of a value about which
    nothing is inferred what it stands for.
    """

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.values = Partition()
        self.classes = Partition()
        self.pins: list[Pin] = []
        self.limits: list[Limit] = []
        self.supports: dict[int, Support] = {}
        self.edges: list[tuple[int, int, Edge, int]] = []
        self.aliases: list[tuple[int, int]] = []
        self.links: list[tuple[int, int, Reason]] = []
        self.about: list[Reason] = []
        self.cells: set[int] = set()

    def atom(self, about: Reason) -> int:
        """Return a new atom."""
        self.values.grow()
        self.about.append(about)
        return self.classes.grow()

    def same_value(self, a: int, b: int, reason: Reason) -> None:
        """Say that two atoms are the place of one value."""
        self.values.join(a, b)
        self.classes.join(a, b)
        if a != b:
            self.links.append((a, b, reason))

    def same_device(self, a: int, b: int, reason: Reason) -> None:
        """Say that two atoms are on one device."""
        self.classes.join(a, b)
        if a != b:
            self.links.append((a, b, reason))

    def edge(self, a: int, b: int, kind: Edge, port: int = -1) -> None:
        """Add an edge from the maker of a value to who consumes it."""
        self.edges.append((a, b, kind, port))

    def pin(self, atom: int, device: int, reason: Reason) -> None:
        """Say on which device an atom is."""
        self.pins.append(Pin(atom, device, reason))

    def limit(self, atom: int, memories: int, reason: Reason) -> None:
        """Say in which memories an atom may be."""
        self.limits.append(Limit(atom, memories, reason))
