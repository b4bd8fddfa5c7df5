"""The plan of a function: what it has of each memory, where everything is in it, and what is counted."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import repeat
from typing import NamedTuple, TypeAlias

from inlay.arith.expr import Int, Sym, lit
from inlay.base.span import Span
from inlay.machine.memory import PoolKind

Arms: TypeAlias = tuple[tuple[int, int], ...]
"""Which arms something stands in: the positions of branches, the outermost first, and the numbers of arms."""

REGIONS = "regions"
"""The name of the plan of what kernels of devices have as long as the program is loaded."""
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
        arms: in which arms of branches it is made, as those of `Invoked`; empty for what every call makes.
        takers: calls of functions that take it: their numbers in `FunctionPlan.calls`, and the operand.
        until: the last moment that mentions it, where it is freed then if no taker keeps it; else 0.
        giver: the number of the call that gives it; -1 for what the function allocates itself.
        copies: of what is made in every turn of a loop, how many are there at most while kernels run one
            after the other; 0 where nothing bounds that.
        is_sure: whether it is there in every call that comes to it.
        is_frame: whether nothing but results and what functions take holds it when its function has ended.
        is_result: whether it is there behind the end of its function where a result shows it, and else not.
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
    arms: Arms = ()
    takers: tuple[tuple[int, int], ...] = ()
    until: int = 0
    giver: int = -1
    copies: int = 0
    is_sure: bool = True
    is_frame: bool = False
    is_result: bool = False


@dataclass(frozen=True, slots=True)
class Called:
    """A call of a function in a plan.

    Attributes:
        moment: at which it runs.
        callees: the names of functions of which it may be one.
        operands: how many it has.
        dims: of each of those, in the order of `callees`: its own dims as the caller knows them.
        is_named: whether it is called by its name, and not as a value.
        is_tail: whether the caller ends with it.
        inside: the loop that makes it in every turn; empty for none.
        arms: in which arms of branches it stands.
    """

    moment: int
    callees: tuple[str, ...]
    operands: int
    dims: tuple[Mapping[Sym, Int], ...] = ()
    is_named: bool = True
    is_tail: bool = False
    inside: str = ""
    arms: Arms = ()


KEPT = -1
"""In `Param.until`: it is kept, returned, or no tensor."""


class Param(NamedTuple):
    """What becomes of a parameter of a function.

    Attributes:
        until: the moment that mentions it last, 0 for none; `KEPT` where it may be longer.
        takers: calls of functions that take it, as those of `Counted`.
        bytes: of a tensor.
        is_frame: as that of `Counted`.
    """

    until: int
    takers: tuple[tuple[int, int], ...] = ()
    bytes: Int | None = None
    is_frame: bool = True


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
        is_tensor: whether that is one tensor that fills it, which is then allocated where it is made.
    """

    memory: str
    kind: PoolKind
    block: Int
    bound: Int
    total: Int
    members: tuple[Stored, ...] = ()
    is_tensor: bool = False

    @property
    def planned(self) -> int:
        """How many storages are in it."""
        return len(self.members)


class Invoked(NamedTuple):
    """A call of a kernel in a plan.

    Attributes:
        name: of the kernel.
        first, last: the moments at which its first and its last phase run.
        arms: in which of the arms of branches: the numbers of branches and of arms, the outermost first.
    """

    name: str
    first: int
    last: int
    arms: Arms = ()

    @property
    def phases(self) -> int:
        """How many phases it has."""
        return self.last - self.first + 1


def invoked(
    names: Iterable[str], phases: Iterable[int], arms: Iterable[Arms] | None = None
) -> tuple[Invoked, ...]:
    """Return calls of kernels one after the other, by their names, numbers of phases, and arms."""
    found: list[Invoked] = []
    end = 0
    rows = zip(names, phases, strict=True)
    for (name, count), around in zip(rows, repeat(()) if arms is None else arms, strict=False):
        found.append(Invoked(name, end + 1, end + count, around))
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
        kernels: that it invokes, and calls of functions, in program order.
        calls: of functions, in program order.
        params: what becomes of each parameter.
        results: how many tensors the function gives; None where it gives something else.
    """

    name: str
    parts: tuple[MemoryPart, ...]
    counted: tuple[Counted, ...]
    kernels: tuple[Invoked, ...] = ()
    machine: tuple[Counted, ...] = ()
    calls: tuple[Called, ...] = ()
    params: tuple[Param, ...] = ()
    results: int | None = None

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
