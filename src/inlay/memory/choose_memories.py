"""Chooses a memory for each storage: the first of those it may be in that has room.

A storage carries the memories that are allowed for it, in order of preference (`StorageAttrs`): what
placement solved from scopes, or all that its device writes. The kinds of memories differ:

* A *heap* gives bytes while the program runs. Whatever has no better place goes there, of any size.
* A *static* memory and a *stack* have so many bytes and no more. What is put there has its place before
  the program runs: a symbolic size counts at its bound, and what may live longer than the function
  sees cannot be there, but for results of an entry and its inputs, which stay until it ends. Each
  function has a part of its own of such a memory, and a recursive function none.
* A memory for constants (*rom*) is never written.

A storage that no allowed memory takes is refused, with the reason of each.

The largest are placed first, each at the lowest free offset of the first memory with room (first fit
decreasing); then each memory is packed again by itself, and the smaller plan is taken. Cost: quadratic
in the storages of one function in bounded memories.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from inlay.arith.bounds import Range, bounds
from inlay.arith.expr import Sym
from inlay.base.diagnostics import error
from inlay.base.span import NO_SPAN, Span
from inlay.machine.memory import Pool, PoolKind
from inlay.memory.lifetimes import IN_RESULT, Activation, Storage
from inlay.packing.bounds import max_live
from inlay.packing.buffer import Buffer, align, peak_of
from inlay.packing.check import violations
from inlay.packing.plan import plan as pack

HOST = ""
"""The name of the host's heap in plans, whatever the board calls it."""

_BOUNDED = (PoolKind.STATIC, PoolKind.STACK)


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a function when it begins.

    Attributes:
        symbols: the dims that have a value then.
        ranges: what values they may have.
        is_entry: whether a user calls it.
        is_recursive: whether it may be active twice at one time.
    """

    symbols: frozenset[Sym]
    ranges: Mapping[Sym, Range]
    is_entry: bool
    is_recursive: bool


@dataclass(frozen=True, slots=True)
class Bank:
    """A part of a bounded memory that a function has.

    Attributes:
        memory: its name.
        kind: how the memory comes to its bytes.
        alignment: of the part.
        bytes: of the part.
        bound: no plan of the storages in it is smaller.
        total: bytes of the storages side by side.
        offsets: of the storages in the part.
    """

    memory: str
    kind: PoolKind
    alignment: int
    bytes: int
    bound: int
    total: int
    offsets: Mapping[Storage, int]


@dataclass(frozen=True, slots=True)
class Chosen:
    """Where the storages of an activation go.

    Attributes:
        heap: those with a place in a block of a heap, by memory.
        banks: those in bounded memories.
        counted: those that are allocated while the program runs: in which memory, and why.
    """

    heap: Mapping[str, Sequence[Storage]]
    banks: Sequence[Bank]
    counted: Mapping[Storage, tuple[str, str]]


@dataclass(slots=True)
class _Part:
    """What is put into a bounded memory: buffers with offsets, in order of arrival."""

    pool: Pool
    room: int
    storages: list[Storage] = field(default_factory=list[Storage])
    buffers: list[Buffer] = field(default_factory=list[Buffer])
    offsets: list[int] = field(default_factory=list[int])

    def put(self, storage: Storage, size: int, end: int) -> bool:
        """Put a storage at the lowest offset that is free while it is in use; whether there is one."""
        buffer = Buffer(storage.name, storage.start, end + 1, size, self.pool.alignment)
        at = 0
        taken = sorted(
            (offset, offset + other.size)
            for other, offset in zip(self.buffers, self.offsets, strict=True)
            if other.lower < buffer.upper and buffer.lower < other.upper
        )
        for begin, stop in taken:
            if at + size <= begin:
                break
            at = max(at, align(stop, self.pool.alignment))
        if at + size > self.room:
            return False
        self.storages.append(storage)
        self.buffers.append(buffer)
        self.offsets.append(at)
        return True

    def bank(self, steps: int) -> Bank:
        """Return the packed part; the packing is checked."""
        found = pack(self.buffers, steps=steps)
        offsets: Sequence[int] = found.offsets
        if found.peak > peak_of(self.buffers, self.offsets):
            offsets = self.offsets
        size = align(peak_of(self.buffers, offsets), self.pool.alignment)
        wrong = violations(self.buffers, offsets, capacity=self.room)
        assert not wrong, f"the plan of {self.pool.name} is wrong: {wrong[:1]}"
        return Bank(
            self.pool.name,
            self.pool.kind,
            self.pool.alignment,
            size,
            max_live(self.buffers),
            sum(b.size for b in self.buffers),
            dict(zip(self.storages, offsets, strict=True)),
        )


@dataclass(frozen=True, slots=True)
class MemoryOptions:
    """Options of planning.

    Attributes:
        pools: the memories that there are, the host's first; none where nobody says.
        reserved: bytes of memories that plans leave alone, by name.
        no_stack: why no tensor can be on a stack; empty where it can.
        inputs: where inputs are that have their place before the program runs; none where the caller
            has them.
        constants: where constants are that a device reads, by its name; the empty name is for all that
            no other name is for. None where the program brings them along.
    """

    pools: tuple[Pool, ...] = ()
    reserved: Mapping[str, int] = field(default_factory=dict[str, int])
    no_stack: str = ""
    inputs: tuple[str, ...] = ()
    constants: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])


class Chooser:
    """Chooses memories, function after function.

    Args:
        options: what there is.
        steps: effort of packing.
    """

    def __init__(self, options: MemoryOptions, steps: int) -> None:
        pools = options.pools
        self._options = options
        self._pools = {p.name: p for p in pools}
        self._first = pools[0].name if pools else HOST
        self._steps = steps
        self._left = {
            p.name: max((p.bytes or 0) - options.reserved.get(p.name, 0), 0)
            for p in pools
            if p.kind in _BOUNDED
        }

    def copy(self) -> Chooser:
        """Return one that knows of all choices so far; its own change nothing here."""
        made = Chooser(self._options, self._steps)
        made._left.update(self._left)
        return made

    def room(self, memory: str) -> int | None:
        """Return the bytes that are left of a memory of fixed size, None for others."""
        return self._left.get(memory)

    def take(self, memories: Sequence[str], size: int, what: str) -> Pool:
        """Take bytes of the first of some memories that has them, for good.

        Raises:
            CompileError: `memory.no-room`.
        """
        for name in memories:
            pool = self._pools[name]
            left = self._left.get(name, pool.bytes)
            if left is None or left >= size:
                if left is not None:
                    self._left[name] = left - size
                return pool
        left = [self._left.get(m, self._pools[m].bytes) for m in memories]
        reasons = [f"{m}: it has {n} bytes left" for m, n in zip(memories, left, strict=True)]
        raise _no_room(what, NO_SPAN, str(size), reasons)

    def choose(self, activation: Activation, known: Known) -> Chosen:
        """Choose for the storages of an activation.

        Raises:
            CompileError: `memory.no-room`.
        """
        heap: dict[str, list[Storage]] = {}
        counted: dict[Storage, tuple[str, str]] = {}
        tight: list[Storage] = []
        for storage in activation.storages:
            names = storage.memories or (self._first,)
            why = _counted(storage, known)
            if self._is_bounded(names[0]):
                tight.append(storage)
            elif why:
                counted[storage] = (self._named(names[0]), why)
            else:
                heap.setdefault(self._named(names[0]), []).append(storage)
        parts: dict[str, _Part] = {}
        sizes = {s: bounds(s.bytes, known.ranges).high for s in tight}
        for storage in sorted(tight, key=lambda s: (-(sizes[s] or 0), s.start)):
            memory = self._put(storage, sizes[storage], activation, known, parts)
            why = _counted(storage, known)
            if memory is not None and why:
                counted[storage] = (memory, why)
            elif memory is not None:
                heap.setdefault(memory, []).append(storage)
        banks = [parts[name].bank(self._steps) for name in self._left if name in parts]
        for bank in banks:
            self._left[bank.memory] -= bank.bytes
        return Chosen(heap, banks, counted)

    def _is_bounded(self, name: str) -> bool:
        pool = self._pools.get(name)
        return pool is not None and pool.kind is not PoolKind.HEAP

    def _named(self, name: str) -> str:
        return HOST if name == self._first else name

    def _put(
        self,
        storage: Storage,
        size: int | None,
        activation: Activation,
        known: Known,
        parts: dict[str, _Part],
    ) -> str | None:
        """Put a storage into the first memory with room; return a heap, or None for a part."""
        reasons: list[str] = []
        end = activation.positions if storage.escapes == IN_RESULT else storage.end
        why_not = _not_fixed(storage, size, known)
        for name in storage.memories or (self._first,):
            pool = self._pools.get(name)
            if pool is None or pool.kind is PoolKind.HEAP:
                return self._named(name)
            if pool.kind is PoolKind.STACK and self._options.no_stack:
                reasons.append(f"{name}: {self._options.no_stack}")
            elif pool.kind not in _BOUNDED:
                reasons.append(f"{name}: it is a memory of kind {pool.kind}")
            elif why_not:
                reasons.append(f"{name}: it has {pool.bytes} bytes, and {why_not}")
            else:
                assert size is not None, "a size without a bound is a reason"
                part = parts.setdefault(name, _Part(pool, self._left[name]))
                if part.put(storage, size, end):
                    return None
                reasons.append(_full(part, storage, end))
        needed = str(storage.bytes if size is None else size)
        raise _no_room(f"'{storage.name}'", storage.span, needed, reasons)


def _counted(storage: Storage, known: Known) -> str:
    """Return why a storage in a heap has an allocation of its own; empty where it has none."""
    unknown = storage.unknown(known.symbols)
    if storage.escapes or unknown is None:
        return storage.escapes
    return f"its size is over {unknown}, which is not known when the function begins"


def _not_fixed(storage: Storage, size: int | None, known: Known) -> str:
    """Return why a storage cannot have its place before the program runs; empty where it can."""
    if storage.escapes and not (storage.escapes == IN_RESULT and known.is_entry):
        return f"the value may be needed longer than its function sees: {storage.escapes}"
    if known.is_recursive:
        return "the function calls itself"
    if size is None:
        return f"{storage.bytes} bytes have no bound"
    return ""


def _full(part: _Part, storage: Storage, end: int) -> str:
    beside = [(b.size, b.id) for b in part.buffers if b.lower <= end and storage.start < b.upper]
    largest = ", ".join(f"{name} with {size}" for size, name in sorted(beside, reverse=True)[:3])
    return f"{part.pool.name}: it has {part.room} bytes left" + (
        f", and needs at the same time {largest}" if beside else ""
    )


def _no_room(what: str, span: Span, needed: str, reasons: Sequence[str]) -> Exception:
    return error(
        "memory.no-room",
        f"found no memory for {what}, needed {needed} bytes",
        span=span,
        notes=reasons,
        hint="allow another memory, give those of the board more bytes, or use smaller sizes",
    )
