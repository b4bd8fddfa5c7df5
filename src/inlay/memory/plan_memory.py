"""Gives storage of bounded lifetime its place: one block per function and memory.

A block is allocated when its function begins; its size is known then, perhaps as an integer over the
dims of the function. What does not go into the block keeps an allocation of its own at run time,
where it is counted: storage that escapes (see `lifetimes`), and storage whose size mentions a dim
that is not known when the function begins. Which memory a storage is in is chosen by
`choose_memories`, which also packs memories of a fixed size; what follows is about heaps.

**Symbolic sizes.** Packing needs numbers. Sizes are therefore sorted into *classes*: a size is
`c * u` with a number `c` and a unit `u` that is a primitive polynomial over dims (`b*s` for `1536*b*s`
and `6144*b*s`; 1 for plain numbers). Within a class all sizes and offsets are multiples of `u`, so
packing the numbers `c` packs the sizes, for every value of the dims. Classes lie behind each other.
Coefficients are rounded up to the alignment where that is small in comparison; else the rounded size
is a unit of its own, so that every offset stays aligned whatever the dims are.

**Overlap.** Storages that share bytes order the kernels that use them. A program that is to run its
independent parts at once is planned by dependence chains (`chains`): each is packed by itself.

The packing is done by `packing` and always checked by its independent checker. The lower bound of a
class is the largest sum of sizes in use at one position.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from math import gcd

import numpy as np

from inlay.analysis.blocks import operands, relet, spine, values, with_blocks
from inlay.analysis.call_graph import call_graph, recursive_functions
from inlay.analysis.local_functions import find_loops
from inlay.arith.expr import Int, ceildiv, lit
from inlay.arith.solve import Facts
from inlay.base.span import NO_SPAN, Span
from inlay.ir import make
from inlay.ir.conform import dim_range
from inlay.ir.expr import Call, Const, Expr, Function, OpRef, Var
from inlay.ir.module import Module
from inlay.ir.types import STORAGE, TensorType
from inlay.machine.memory import PoolKind
from inlay.memory.choose_memories import Chooser, Chosen, Known, MemoryOptions
from inlay.memory.explicit_alloc import size_of
from inlay.memory.lifetimes import IN_RESULT, Activation, Storage, find_lifetimes
from inlay.ops.memory import ALLOC_STORAGE, TENSOR_AT, StorageAttrs
from inlay.packing.buffer import Buffer, align
from inlay.packing.check import violations
from inlay.packing.plan import plan as pack
from inlay.passes.contract import Pass, PassContext, Property, Remark

ALIGNMENT = 64
"""Bytes; every storage of a block begins at a multiple of it."""

SEARCH_STEPS = 4_000
"""Effort of the search behind the greedy orders; see `packing.plan`."""

CONSTANTS = "constants"
"""The name of the plan of constants."""

NOTHING_SAID = MemoryOptions()

_ROUNDING = 16
"""A coefficient is rounded up to the alignment when that adds less than 1/16 of it."""


@dataclass(frozen=True, slots=True)
class Packed:
    """The storages of one class: `offset * unit` from the beginning of the class.

    Attributes:
        unit: what all sizes are multiples of.
        size: of the class, in units.
        bound: no packing is smaller, in units.
        offsets: of each storage, in units.
    """

    unit: Int
    size: int
    bound: int
    offsets: Mapping[Storage, int]


@dataclass(frozen=True, slots=True)
class Stored:
    """A storage in a memory.

    Attributes:
        names: of the tensors in it, one after the other; none for constants.
        spans: where each of them comes from.
        offset: of its first byte in the part.
        bytes: that it takes.
        first: the number of the kernel that writes it, from 1; 0 for what is there before.
        last: the number of the last kernel that uses it; one more than there are for what stays.
    """

    names: tuple[str, ...]
    spans: tuple[Span, ...]
    offset: Int
    bytes: Int
    first: int = 0
    last: int = 0


@dataclass(frozen=True, slots=True)
class Counted:
    """A storage that is allocated while the program runs: a name of its tensor, and why."""

    name: str
    span: Span
    why: str


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


@dataclass(frozen=True, slots=True)
class FunctionPlan:
    """The plan of one activation.

    Attributes:
        name: of the function.
        parts: what it has of each memory.
        counted: what is allocated while the program runs.
        kernels: the names of the kernels that it invokes, in program order.
    """

    name: str
    parts: tuple[MemoryPart, ...]
    counted: tuple[Counted, ...]
    kernels: tuple[str, ...] = ()

    def kernel(self, number: int) -> str:
        """Return the name of a kernel by its number, from 1; nothing for a number of none."""
        return self.kernels[number - 1] if 0 < number <= len(self.kernels) else ""

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


@dataclass(frozen=True, slots=True)
class BlockOptions:
    """Options of this pass, besides what memories there are (`MemoryOptions`).

    Attributes:
        overlap: whether only storages of one chain share bytes in heaps (`chains`), so that kernels
            that do not need each other can run at once.
        watch: is told the plans.
    """

    overlap: bool = False
    watch: Callable[[Sequence[FunctionPlan]], None] | None = None


def run(module: Module, context: PassContext) -> Module:
    """Plan every function, and say how it went in the remarks."""
    options = context.options_for(BlockOptions)
    planned, plans = plan_module(module, context.options_for(MemoryOptions), overlap=options.overlap)
    if options.watch is not None:
        options.watch(plans)
    for plan in plans:
        context.remarks.add(Remark("plan-memory", "planned", "block", f"{plan.name}: {describe(plan)}"))
    return planned


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


def plan_module(
    module: Module, options: MemoryOptions = NOTHING_SAID, *, overlap: bool = False
) -> tuple[Module, tuple[FunctionPlan, ...]]:
    """Return the module with storages in blocks, and the plan of each function.

    Args:
        module: in explicit storage.
        options: the memories that there are.
        overlap: only storages of one chain share bytes in heaps (`chains`).

    Raises:
        CompileError: `memory.no-room`.
    """
    functions: dict[str, Function] = {}
    plans: list[FunctionPlan] = []
    chooser = Chooser(options, SEARCH_STEPS)
    plans += _constants(module, options, chooser)
    recursive = recursive_functions(call_graph(module))
    for name, function in module.functions.items():
        loops = find_loops(function)
        placed: dict[Function, _Placement] = {}
        known: dict[Function, Known] = {}
        for activation in find_lifetimes(name, function, module, loops):
            around = None if activation.outer is None else known[activation.outer]
            known[activation.function] = _known(module, name, activation, around, recursive)
            if known[activation.function].is_entry:
                activation.storages[:0] = _inputs(activation, options)
            chosen = chooser.choose(activation, known[activation.function])
            placed[activation.function], plan = _plan(activation, chosen, overlap=overlap)
            plans.append(plan)
        functions[name] = _Rewriter(placed).function(function)
    return module.with_functions(functions), tuple(plans)


def _inputs(activation: Activation, options: MemoryOptions) -> list[Storage]:
    """Return the inputs of an entry where they have their places before the program runs."""
    found: list[Storage] = []
    for param in activation.function.params:
        if isinstance(param.type, TensorType) and options.inputs:
            names = param.place.memories if param.place is not None else None
            size, end = size_of(param.type), activation.positions
            allowed = options.inputs if names is None else names
            found.append(Storage([param], size, ALIGNMENT, allowed, 0, end, name=param.name))
    return found


def _constants(module: Module, options: MemoryOptions, chooser: Chooser) -> Iterator[FunctionPlan]:
    """Put the constants of devices into the first memory with room for them; the plan is checked."""
    parts: list[MemoryPart] = []
    for memories, sizes in _constant_sizes(module, options).items():
        # As far apart as the strictest of the memories asks, for one of them is chosen by the sum.
        step = max([ALIGNMENT, *(p.alignment for p in options.pools if p.name in memories)])
        spaced = [align(size, step) for size in sizes]
        total = sum(spaced)
        pool = chooser.take(memories, total, f"{len(sizes)} constants")
        offsets = list(accumulate(spaced, initial=0))[:-1]
        buffers = [Buffer("a constant", 0, 1, size, pool.alignment) for size in sizes]
        wrong = violations(buffers, offsets, capacity=pool.bytes)
        assert not wrong, f"the plan of constants in {pool.name} is wrong: {wrong[:1]}"
        members = tuple(Stored((), (), lit(a), lit(b)) for a, b in zip(offsets, sizes, strict=True))
        parts.append(MemoryPart(pool.name, pool.kind, lit(total), lit(total), lit(total), members))
    if parts:
        yield FunctionPlan(CONSTANTS, tuple(parts), ())


def _constant_sizes(module: Module, options: MemoryOptions) -> dict[tuple[str, ...], list[int]]:
    """Return the bytes of distinct constants, by the memories that they may be in."""
    allowed = options.constants
    found: dict[tuple[str, ...], dict[int, int]] = {}
    for function in module.functions.values() if allowed else ():
        for value in values(function.body):
            device = "" if value.place is None else value.place.device
            memories = allowed.get(device, allowed.get(""))
            for x in (value, *operands(value)):
                if memories and isinstance(x, Const) and isinstance(x.value, np.ndarray):
                    found.setdefault(memories, {})[id(x.value)] = align(x.value.nbytes, ALIGNMENT)
    return {memories: list(sizes.values()) for memories, sizes in found.items()}


def _known(
    module: Module, name: str, activation: Activation, around: Known | None, recursive: Collection[str]
) -> Known:
    """Return what is known when a function begins; local ones may be active several times."""
    dims = activation.function.dims
    ranges = dict(around.ranges) if around is not None else {}
    for d in dims:
        ranges[d.sym] = dim_range(d, Facts(ranges))
    symbols = frozenset(d.sym for d in dims)
    if around is not None:
        symbols |= around.symbols
    is_entry = around is None and (name in module.entries or name == module.entry)
    return Known(symbols, ranges, is_entry, around is not None or name in recursive)


@dataclass(frozen=True, slots=True)
class _Placement:
    """Where the storages of an activation went.

    Attributes:
        blocks: the variable, size and alignment of the block in each memory.
        offsets: the block of a storage, and where in it.
        counted: the memory of each storage that has an allocation of its own.
    """

    blocks: Mapping[str, tuple[Var, Int, int]]
    offsets: Mapping[Var, tuple[Var, Int]]
    counted: Mapping[Var, str]


def _plan(activation: Activation, chosen: Chosen, *, overlap: bool) -> tuple[_Placement, FunctionPlan]:
    blocks: dict[str, tuple[Var, Int, int]] = {}
    offsets: dict[Var, tuple[Var, Int]] = {}
    parts: list[MemoryPart] = []

    invoked = sorted(activation.kernels)

    def stored(storage: Storage, offset: Int) -> Stored:
        names = tuple(v.name.removesuffix(".s") for v in storage.vars)
        first = 0 if storage.start == 0 else bisect_left(invoked, storage.start) + 1
        last = len(invoked) + 1 if storage.escapes == IN_RESULT else bisect_right(invoked, storage.end)
        return Stored(names, tuple(v.span for v in storage.vars), offset, storage.bytes, first, last)

    def put(storage: Storage, block: Var, offset: Int) -> None:
        for var in storage.vars:
            offsets[var] = (block, offset)

    for memory, storages in chosen.heap.items():
        block = _block(memory)
        size, bound = lit(0), lit(0)
        for packed in pack_chains(storages) if overlap else pack_classes(storages):
            for storage, offset in packed.offsets.items():
                put(storage, block, size + packed.unit * offset)
            size = size + packed.unit * packed.size
            bound = bound + packed.unit * packed.bound
        total = sum((s.bytes for s in storages), lit(0))
        blocks[memory] = (block, size, ALIGNMENT)
        members = tuple(stored(s, offsets[s.vars[0]][1]) for s in storages)
        parts.append(MemoryPart(memory, PoolKind.HEAP, size, bound, total, members))
    for bank in chosen.banks:
        block = _block(bank.memory)
        for storage, at in bank.offsets.items():
            put(storage, block, lit(at))
        blocks[bank.memory] = (block, lit(bank.bytes), bank.alignment)
        members = tuple(stored(s, lit(at)) for s, at in bank.offsets.items())
        sizes = (lit(bank.bytes), lit(bank.bound), lit(bank.total))
        parts.append(MemoryPart(bank.memory, bank.kind, *sizes, members))
    counted = tuple(Counted(s.name, s.span, why) for s, (_, why) in chosen.counted.items())
    counted += tuple(Counted(name, NO_SPAN, why) for name, why in activation.requests)
    memories = {var: memory for s, (memory, _) in chosen.counted.items() for var in s.vars}
    kernels = tuple(activation.kernels[at] for at in invoked)
    plan = FunctionPlan(activation.name, tuple(parts), counted, kernels)
    return _Placement(blocks, offsets, memories), plan


def _block(memory: str) -> Var:
    return make.var(f"block.{memory}" if memory else "block", STORAGE)


def pack_chains(storages: Sequence[Storage]) -> list[Packed]:
    """Pack the storages of each chain by themselves."""
    chains = sorted({s.chain for s in storages})
    return [packed for n in chains for packed in pack_classes([s for s in storages if s.chain == n])]


def pack_classes(storages: Sequence[Storage]) -> list[Packed]:
    """Pack storages of one memory, class by class; numbers first."""
    classes: dict[Int, list[tuple[Storage, int]]] = {}
    for storage in storages:
        unit, count = _unit(storage.bytes)
        classes.setdefault(unit, []).append((storage, count))
    ordered = sorted(classes.items(), key=lambda item: (item[0].value is None, item[0].key))
    return [_pack_class(unit, members) for unit, members in ordered]


def _unit(size: Int) -> tuple[Int, int]:
    """Return a unit and how many of it a storage of this size takes, aligned."""
    if size.value is not None:
        return lit(1), -(-size.value // ALIGNMENT) * ALIGNMENT
    factor = 0
    for _, c in size.terms:
        factor = gcd(factor, c)
    rounded = -(-factor // ALIGNMENT) * ALIGNMENT
    if (rounded - factor) * _ROUNDING <= factor:
        return size // factor, rounded
    return ceildiv(size, ALIGNMENT) * ALIGNMENT, 1


def _pack_class(unit: Int, members: Iterable[tuple[Storage, int]]) -> Packed:
    pairs = list(members)
    # A class of symbolic unit counts in units; its offsets need no alignment beyond that.
    step = gcd(*(count for _, count in pairs)) or 1  # all may be empty
    buffers = [Buffer(s.name, s.start, s.end + 1, count // step) for s, count in pairs]
    result = pack(buffers, steps=SEARCH_STEPS)
    offsets = {s: o * step for (s, _), o in zip(pairs, result.offsets, strict=True)}
    return Packed(unit, result.peak * step, result.lower_bound * step, offsets)


class _Rewriter:
    """Writes placements into functions: a block at the beginning, offsets in it."""

    def __init__(self, placed: Mapping[Function, _Placement]) -> None:
        self.placed = placed
        self._offsets: dict[Var, tuple[Var, Int]] = {}
        self._counted: dict[Var, str] = {}

    def function(self, function: Function) -> Function:
        """Rewrite a function and those in it."""
        placement = self.placed.get(function)
        if placement is None:  # a loop: part of the activation around it
            return replace(function, body=self._block(function.body))
        self._offsets.update(placement.offsets)
        self._counted.update(placement.counted)
        body = self._block(function.body)
        for memory, (block, size, alignment) in reversed(list(placement.blocks.items())):
            if size.value == 0:
                size = lit(ALIGNMENT)
            attrs = StorageAttrs(_names(memory), alignment)
            body = make.let(block, make.call(ALLOC_STORAGE, (make.int_const(size),), attrs), body)
        return replace(function, body=body)

    def _block(self, block: Expr) -> Expr:
        lets, tail = spine(block)
        body = self._value(tail)
        for let in reversed(lets):
            if let.var not in self._offsets:
                memory = self._counted.get(let.var)
                value = self._value(let.value) if memory is None else _in(let.value, memory)
                body = relet(let, value, body)
        return body

    def _value(self, value: Expr) -> Expr:
        match value:
            case Function():
                return self.function(value)
            case Call(callee=OpRef(op=op), args=(Var() as storage, *_)) if (
                op is TENSOR_AT and storage in self._offsets
            ):
                block, offset = self._offsets[storage]
                at, shape = value.args[1:]
                assert isinstance(at, Const), "explicit-alloc puts a tensor at a number"
                assert isinstance(at.value, Int), "explicit-alloc puts a tensor at a number"
                return replace(value, args=(block, make.int_const(offset + at.value), shape))
            case _:
                return with_blocks(value, self._block)


def _names(memory: str) -> tuple[str, ...]:
    return (memory,) if memory else ()


def _in(value: Expr, memory: str) -> Expr:
    """Return an allocation that names one memory."""
    assert isinstance(value, Call), "storage is allocated"
    assert isinstance(value.callee, OpRef), "storage is allocated by an operator"
    attrs = value.callee.attrs
    assert isinstance(attrs, StorageAttrs), "alloc_storage has its attributes"
    if attrs.memories == _names(memory):
        return value
    callee = replace(value.callee, attrs=replace(attrs, memories=_names(memory)))
    return replace(value, callee=callee)


PASS = Pass(
    __name__,
    run,
    "put storage of bounded lifetime into one block per function",
    requires=(Property.EXPLICIT_STORAGE,),
    establishes=(Property.PLANNED,),
    options=MemoryOptions,
)
