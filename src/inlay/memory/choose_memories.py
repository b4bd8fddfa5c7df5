"""Chooses a memory for each storage: of those it may be in and with room, by predicted time (`assign`).

A storage carries the memories that are allowed for it, in order of preference (`StorageAttrs`): what
placement solved from scopes, or all that its device writes. The kinds of memories differ:

* A *heap* gives bytes while the program runs. Whatever has no better place goes there, of any size.
* A *static* memory and a *stack* have so many bytes and no more. What is put there has its place before
  the program runs: a symbolic size counts at its bound, and what may live longer than the function
  sees cannot be there, but for results of an entry and its inputs, which stay until it ends. Each
  function has a part of its own of such a memory, and a recursive function none.
* A memory for constants (*rom*) is never written.

A storage that no allowed memory takes is refused, with the reason of each.

Cost: quadratic in the storages of one function in bounded memories.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from inlay.arith.bounds import Range, bounds
from inlay.arith.expr import Sym, symbols
from inlay.base.diagnostics import error
from inlay.base.span import NO_SPAN, Span
from inlay.machine.memory import Pool, PoolKind
from inlay.memory.activations import IN_RESULT, Activation, Storage
from inlay.memory.assign import Assigner, Item
from inlay.memory.bank import Bank, Part
from inlay.memory.plan import Alternative

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
class Chosen:
    """Where the storages of an activation go.

    Attributes:
        heap: those with a place in a block of a heap, by memory.
        banks: those in bounded memories.
        counted: those that are allocated while the program runs: in which memory, and why.
        others: of those that might be in several memories, what was predicted of each.
    """

    heap: Mapping[str, Sequence[Storage]]
    banks: Sequence[Bank]
    counted: Mapping[Storage, tuple[str, str]]
    others: Mapping[Storage, Sequence[Alternative]]


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
        threads: that have scratch memory of their own in plans; None for as many as the program says.
        lifts: whether results leave the blocks of the host as pages (`leaving`).
    """

    pools: tuple[Pool, ...] = ()
    reserved: Mapping[str, int] = field(default_factory=dict[str, int])
    no_stack: str = ""
    inputs: tuple[str, ...] = ()
    constants: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    threads: int | None = None
    lifts: bool = False


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
        # What is left to constants elsewhere; what values take of a heap while a program runs is not known.
        self._loaded = {p.name: p.bytes for p in pools if p.name not in self._left and p.bytes is not None}

    def copy(self) -> Chooser:
        """Return one that knows of all choices so far; its own change nothing here."""
        made = Chooser(self._options, self._steps)
        made._left.update(self._left)
        made._loaded.update(self._loaded)
        return made

    def room(self, memory: str) -> int | None:
        """Return the bytes that are left of a memory of fixed size, None for others."""
        return self._left.get(memory)

    def take(self, memories: Sequence[str], size: int, what: str) -> Pool:
        """Take bytes of the first of some memories that has them, for good.

        Raises:
            CompileError: `memory.no-room`.
        """
        left = {m: self._left.get(m, self._loaded.get(m)) for m in memories}
        for name, bytes_ in left.items():
            if bytes_ is None or bytes_ >= size:
                if bytes_ is not None:
                    (self._left if name in self._left else self._loaded)[name] = bytes_ - size
                return self._pools[name]
        reasons = [f"{m}: it has {n} bytes left" for m, n in left.items()]
        raise _no_room(what, NO_SPAN, str(size), reasons)

    def choose(self, activation: Activation, known: Known) -> Chosen:
        """Choose for the storages of an activation.

        Raises:
            CompileError: `memory.no-room`.
        """
        heap: dict[str, list[Storage]] = {}
        counted: dict[Storage, tuple[str, str]] = {}
        items: list[Item] = []
        for storage in activation.storages:
            item = self._item(storage, activation, known)
            if any(m in self._left for m in item.options):
                items.append(item)
            else:
                self._in_heap(storage, item.options[0], known, heap, counted)
        assigner = Assigner(self._pools, self._left, self._steps)
        found = assigner.assign(items)
        if found.stuck is not None:
            raise self._refusal(found.stuck, found.parts, known)
        for item, memory in found.memories.items():
            if memory not in self._left:
                self._in_heap(item.storage, memory, known, heap, counted)
        banks = [found.parts[m].bank(self._steps) for m in self._left if m in found.parts]
        banks = [bank for bank in banks if bank.offsets]
        for bank in banks:
            self._left[bank.memory] -= bank.bytes
        others = {x.storage: _others(x, m, assigner) for x, m in found.memories.items() if len(x.options) > 1}
        return Chosen(heap, banks, counted, others)

    def _item(self, storage: Storage, activation: Activation, known: Known) -> Item:
        """Return a storage with the memories that it can be in.

        Raises:
            CompileError: `memory.no-room` where there is none.
        """
        names = storage.memories or (self._first,)
        size = bounds(storage.bytes, known.ranges).high if any(map(self._is_bounded, names)) else None
        why_not = {m: self._excluded(m, storage, size, known) for m in names}
        options = tuple(m for m in names if not why_not[m])
        if not options:
            needed = str(storage.bytes if size is None else size)
            reasons = [f"{m}: {why}" for m, why in why_not.items()]
            unbounded = next((s.name for s in symbols(storage.bytes)), "") if size is None else ""
            raise _no_room(f"'{storage.name}'", storage.span, needed, reasons, unbounded)
        end = activation.positions if storage.escapes == IN_RESULT else storage.end
        return Item(storage, size or 0, end, options)

    def _excluded(self, name: str, storage: Storage, size: int | None, known: Known) -> str:
        """Return why a storage cannot be in a memory, whatever else is there; empty where it can."""
        pool = self._pools.get(name)
        if pool is None or pool.kind is PoolKind.HEAP:
            return ""
        if pool.kind is PoolKind.STACK and self._options.no_stack:
            return self._options.no_stack
        if pool.kind not in _BOUNDED:
            return f"it is a memory of kind {pool.kind}"
        why = _not_fixed(storage, size, known)
        return f"it has {pool.bytes} bytes, and {why}" if why else ""

    def _in_heap(
        self,
        storage: Storage,
        memory: str,
        known: Known,
        heap: dict[str, list[Storage]],
        counted: dict[Storage, tuple[str, str]],
    ) -> None:
        why = _counted(storage, known)
        if why:
            counted[storage] = (self._named(memory), why)
        else:
            heap.setdefault(self._named(memory), []).append(storage)

    def _refusal(self, item: Item, parts: Mapping[str, Part], known: Known) -> Exception:
        storage = item.storage
        reasons: list[str] = []
        for name in storage.memories or (self._first,):
            why = self._excluded(name, storage, item.size, known)
            part = parts.get(name) or Part(self._pools[name], self._left.get(name, 0))
            reasons.append(f"{name}: {why}" if why else _full(part, storage, item.end))
        return _no_room(f"'{storage.name}'", storage.span, str(item.size), reasons)

    def _is_bounded(self, name: str) -> bool:
        pool = self._pools.get(name)
        return pool is not None and pool.kind is not PoolKind.HEAP

    def _named(self, name: str) -> str:
        return HOST if name == self._first else name


def _others(item: Item, memory: str, assigner: Assigner) -> tuple[Alternative, ...]:
    """Return what was predicted of the memories that an item might be in, the fastest first."""
    found = assigner.alternatives(item)
    here = dict(found)[memory]
    return tuple(Alternative(name, ns, _lacks(name, ns, memory, here)) for name, ns in found)


def _lacks(name: str, ns: float, memory: str, here: float) -> str:
    """Return why an item is not in a memory; empty where it is there."""
    if name == memory:
        return ""
    if ns < here:
        return "there is no room beside what gains more"
    return "accesses take longer" if ns > here else "it is as fast"


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


def _full(part: Part, storage: Storage, end: int) -> str:
    beside = [(b.size, b.id) for b in part.buffers if b.lower <= end and storage.start < b.upper]
    largest = ", ".join(f"{name} with {size}" for size, name in sorted(beside, reverse=True)[:3])
    return f"{part.pool.name}: it has {part.room} bytes left" + (
        f", and needs at the same time {largest}" if beside else ""
    )


def _no_room(what: str, span: Span, needed: str, reasons: Sequence[str], unbounded: str = "") -> Exception:
    hint = "allow another memory, give those of the board more bytes, or use smaller sizes"
    if unbounded:
        hint = f"bound the dim: --bound-dim {unbounded}=SIZE; fix it: --fix-dim {unbounded}=SIZE; "
        hint += "or allow a memory of kind heap"
    return error(
        "memory.no-room",
        f"found no memory for {what}, needed {needed} bytes",
        span=span,
        notes=reasons,
        hint=hint,
    )
