"""The plan of a function: what it has of each memory, where everything is in it, and what is counted."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from inlay.arith.expr import Int, lit
from inlay.base.span import Span
from inlay.machine.memory import PoolKind

CONSTANTS = "constants"
"""The name of the plan of constants."""


class Sharing(StrEnum):
    """Which values may share bytes in a heap."""

    SERIAL = "serial"
    """Those that are not in use at once in the order in which the program is written. A kernel that
    writes where another one reads waits for it, though it needs nothing of it."""
    PARALLEL = "parallel"
    """Those of them whose kernels data orders: independent kernels can run at once."""


@dataclass(frozen=True, slots=True)
class Alternative:
    """A memory that a storage might be in.

    Attributes:
        memory: its name.
        ns: that kernels are predicted to wait for the bytes of the storage there, in all.
        lacks: why it is not there; empty where it is.
    """

    memory: str
    ns: float
    lacks: str


@dataclass(frozen=True, slots=True)
class Stored:
    """A storage in a memory.

    Attributes:
        names: of the tensors in it, one after the other; none for constants.
        spans: where each of them comes from.
        offset: of its first byte in the part.
        bytes: that it takes.
        first: the moment from which it is in use (`FunctionPlan.moments`), from 1; 0 for what is there
            before.
        last: the last moment at which it is used; one more than there are for what stays.
        accesses: how often kernels read or write it, those in loops several times.
        others: where several memories were possible, what was predicted of each, the fastest first.
    """

    names: tuple[str, ...]
    spans: tuple[Span, ...]
    offset: Int
    bytes: Int
    first: int = 0
    last: int = 0
    accesses: int = 0
    others: tuple[Alternative, ...] = ()


class Origin(StrEnum):
    """What it is that is allocated while a program runs."""

    RESULT = "result"
    """A result of an entry, whose memory the caller gets."""
    COPY = "copy"
    """The copy of a result that is an input, a constant, or another result too."""
    VALUE = "value"
    """A value that may live longer than its function sees, or of a size that is not known in time."""
    MACHINE = "machine"
    """A tensor that the virtual machine makes itself."""
    SCRATCH = "scratch"
    """What a kernel needs while it runs, and nobody has a place for."""


@dataclass(frozen=True, slots=True)
class Counted:
    """What is allocated while the program runs.

    Attributes:
        name: of its tensor.
        span: where that comes from.
        why: it has no place in a block.
        origin: what it is.
        memory: where; empty for the host's heap.
        bytes: of it, over the dims of the function; None where they do not say it.
        first, last: the moments between which it is in use, as in `Stored`.
        inside: the loop or local function that makes it each time; empty for what is made once a call.
        per_part: whether it is so large for each part that its kernel is divided into.
    """

    name: str
    span: Span
    why: str
    origin: Origin = Origin.VALUE
    memory: str = ""
    bytes: Int | None = None
    first: int = 0
    last: int = 0
    inside: str = ""
    per_part: bool = False


@dataclass(frozen=True, slots=True)
class MemoryPart:
    """What a function has of one memory.

    Attributes:
        memory: its name; empty for the host's heap.
        kind: how it comes to its bytes.
        block: bytes of the part, over the dims of the function; at their bounds in fixed memories.
        bound: bytes that no plan of these classes can do without.
        total: bytes that the storages in the part would take side by side.
        members: what is in it.
    """

    memory: str
    kind: PoolKind
    block: Int
    bound: Int
    total: Int
    members: tuple[Stored, ...] = ()

    @property
    def planned(self) -> int:
        """How many storages are in it."""
        return len(self.members)


class Invoked(NamedTuple):
    """A call of a kernel in a plan.

    Attributes:
        name: of the kernel.
        first, last: the moments at which its first and its last phase run.
    """

    name: str
    first: int
    last: int

    @property
    def phases(self) -> int:
        """How many phases it has."""
        return self.last - self.first + 1


def invoked(names: Iterable[str], phases: Iterable[int]) -> tuple[Invoked, ...]:
    """Return calls of kernels one after the other, by their names and numbers of phases."""
    found: list[Invoked] = []
    end = 0
    for name, count in zip(names, phases, strict=True):
        found.append(Invoked(name, end + 1, end + count))
        end += count
    return tuple(found)


@dataclass(frozen=True, slots=True)
class FunctionPlan:
    """The plan of one activation.

    Attributes:
        name: of the function.
        parts: what it has of each memory.
        counted: what is allocated while the program runs, but for what the next has.
        machine: tensors that the virtual machine makes itself, and copies of results.
        kernels: that it invokes, in program order.
    """

    name: str
    parts: tuple[MemoryPart, ...]
    counted: tuple[Counted, ...]
    kernels: tuple[Invoked, ...] = ()
    machine: tuple[Counted, ...] = ()

    @property
    def moments(self) -> int:
        """How many moments there are: phases of its kernels, in program order, numbered from 1."""
        return self.kernels[-1].last if self.kernels else 0

    def number(self, moment: int) -> int:
        """Return the number of the kernel that runs at a moment, from 1; 0 before all, one more behind."""
        return bisect_left(self.kernels, moment, key=lambda k: k.last) + 1 if moment > 0 else 0

    def kernel(self, moment: int) -> str:
        """Return the name of the kernel that runs at a moment; nothing where none does."""
        return self.kernels[self.number(moment) - 1].name if 0 < moment <= self.moments else ""

    def where(self, moment: int) -> str:
        """Return a moment in words: the kernel by number and name, and its phase if it has several."""
        number, name = self.number(moment), self.kernel(moment)
        if not name:
            return f"kernel {number}"
        kernel = self.kernels[number - 1]
        of = f", phase {moment - kernel.first + 1} of {kernel.phases}" if kernel.phases > 1 else ""
        return f"kernel {number} ({name}){of}"

    def life(self, first: int, last: int) -> str:
        """Return in words when something is in use, given the moments at both ends."""
        begin = f"from {self.where(first)}" if self.kernel(first) else "from the beginning"
        end = f"to {self.where(last)}" if self.kernel(last) else "to the end"
        return f"{begin} {end}"

    @property
    def block(self) -> Int:
        """Bytes of all blocks, over the dims of the function."""
        return sum((p.block for p in self.parts), lit(0))

    @property
    def bound(self) -> Int:
        """Bytes that no plan of these classes can do without."""
        return sum((p.bound for p in self.parts), lit(0))

    @property
    def total(self) -> Int:
        """Bytes that the storages in the blocks would take side by side."""
        return sum((p.total for p in self.parts), lit(0))

    @property
    def planned(self) -> int:
        """How many storages are in blocks."""
        return sum(p.planned for p in self.parts)


def describe(plan: FunctionPlan) -> str:
    """Return a plan as one sentence."""
    texts: list[str] = []
    for part in plan.parts or (MemoryPart("", PoolKind.HEAP, lit(0), lit(0), lit(0)),):
        text = f"block of {part.block} bytes for {part.planned} storages"
        if part.memory:
            text += f" in {part.memory}"
        if part.bound != part.block:
            text += f", at least {part.bound}"
        texts.append(text)
    if plan.counted:
        texts.append(f"{len(plan.counted)} counted at run time")
    return "; ".join(texts)
