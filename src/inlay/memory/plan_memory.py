"""Gives storage of bounded lifetime its place: one block per function and memory.

A block is allocated when its function begins; its size is known then, perhaps as an integer over the
dims of the function. What does not go into the block keeps an allocation of its own at run time,
where it is counted: storage that escapes (see `lifetimes`), and storage whose size mentions a dim
that is not known when the function begins.

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

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import gcd

from inlay.analysis.blocks import spine
from inlay.analysis.local_functions import find_loops
from inlay.arith.expr import Int, Sym, ceildiv, lit, symbols
from inlay.ir import make
from inlay.ir.expr import Arm, Call, Const, Expr, Function, If, Let, Match, OpRef, Var
from inlay.ir.module import Module
from inlay.ir.types import STORAGE
from inlay.memory.lifetimes import Activation, Storage, find_lifetimes
from inlay.ops.memory import ALLOC_STORAGE, TENSOR_AT, StorageAttrs
from inlay.packing.buffer import Buffer
from inlay.packing.plan import plan as pack
from inlay.passes.contract import Pass, PassContext, Property, Remark

ALIGNMENT = 64
"""Bytes; every storage of a block begins at a multiple of it."""

SEARCH_STEPS = 4_000
"""Effort of the search behind the greedy orders; see `packing.plan`."""

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
class FunctionPlan:
    """The plan of one activation.

    Attributes:
        name: of the function.
        block: bytes of the block, over the dims of the function.
        bound: bytes that no plan of these classes can do without.
        total: bytes that the storages in the block would take side by side.
        planned: how many storages are in the block.
        counted: how many are allocated at run time, with the reason for each.
    """

    name: str
    block: Int
    bound: Int
    total: Int
    planned: int
    counted: tuple[tuple[str, str], ...]


def run(module: Module, context: PassContext) -> Module:
    """Plan every function, and say how it went in the remarks."""
    planned, plans = plan_module(module)
    for plan in plans:
        context.remarks.add(
            Remark("plan-memory", "planned", "block", f"{plan.name}: {describe(plan)}")
        )
    return planned


def describe(plan: FunctionPlan) -> str:
    """Return a plan as one sentence."""
    text = f"block of {plan.block} bytes for {plan.planned} storages"
    if plan.bound != plan.block:
        text += f", at least {plan.bound}"
    return text + (f"; {len(plan.counted)} counted at run time" if plan.counted else "")


def plan_module(
    module: Module, *, overlap: bool = False
) -> tuple[Module, tuple[FunctionPlan, ...]]:
    """Return the module with storages in blocks, and the plan of each function. With `overlap`, only
    storages of one chain share bytes (`chains`).
    """
    functions: dict[str, Function] = {}
    plans: list[FunctionPlan] = []
    for name, function in module.functions.items():
        loops = find_loops(function)
        placed: dict[Function, _Placement] = {}
        known: dict[Function, frozenset[Sym]] = {}
        for activation in find_lifetimes(name, function, module, loops):
            symbols_known = frozenset(d.sym for d in activation.function.dims)
            if activation.outer is not None:
                symbols_known |= known[activation.outer]
            known[activation.function] = symbols_known
            placement, plan = _plan(activation, symbols_known, overlap=overlap)
            placed[activation.function] = placement
            plans.append(plan)
        functions[name] = _Rewriter(placed).function(function)
    return module.with_functions(functions), tuple(plans)


@dataclass(frozen=True, slots=True)
class _Placement:
    """Where the storages of an activation went: a block per memory, offsets in it."""

    blocks: Mapping[str, tuple[Var, Int]]
    offsets: Mapping[Var, tuple[Var, Int]]


def _plan(
    activation: Activation, known: frozenset[Sym], *, overlap: bool
) -> tuple[_Placement, FunctionPlan]:
    counted: list[tuple[str, str]] = []
    by_memory: dict[str, list[Storage]] = {}
    for storage in activation.storages:
        unknown = [s for s in symbols(storage.bytes) if s not in known]
        why = storage.escapes
        if unknown and not why:
            why = f"its size is over {unknown[0]}, which is not known when the function begins"
        if why:
            counted.append((storage.name, why))
        else:
            by_memory.setdefault(storage.memory, []).append(storage)
    blocks: dict[str, tuple[Var, Int]] = {}
    offsets: dict[Var, tuple[Var, Int]] = {}
    block_size, bound, total = lit(0), lit(0), lit(0)
    for memory, storages in by_memory.items():
        block = make.var("block" if not memory else f"block.{memory}", STORAGE)
        size = lit(0)
        for packed in pack_chains(storages) if overlap else pack_classes(storages):
            for storage, offset in packed.offsets.items():
                for var in storage.vars:
                    offsets[var] = (block, size + packed.unit * offset)
            size = size + packed.unit * packed.size
            bound = bound + packed.unit * packed.bound
        total = sum((s.bytes for s in storages), total)
        block_size = block_size + size
        blocks[memory] = (block, size)
    plan = FunctionPlan(
        activation.name, block_size, bound, total, sum(map(len, by_memory.values())), tuple(counted)
    )
    return _Placement(blocks, offsets), plan


def pack_chains(storages: Sequence[Storage]) -> list[Packed]:
    """Pack the storages of each chain by themselves."""
    chains = sorted({s.chain for s in storages})
    return [
        packed for n in chains for packed in pack_classes([s for s in storages if s.chain == n])
    ]


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

    def function(self, function: Function) -> Function:
        """Rewrite a function and those in it."""
        placement = self.placed.get(function)
        if placement is None:  # a loop: part of the activation around it
            return replace(function, body=self._block(function.body))
        self._offsets.update(placement.offsets)
        body = self._block(function.body)
        for memory, (block, size) in reversed(list(placement.blocks.items())):
            if size.value == 0:
                size = lit(ALIGNMENT)
            attrs = StorageAttrs(memory, ALIGNMENT)
            body = make.let(block, make.call(ALLOC_STORAGE, (make.int_const(size),), attrs), body)
        return replace(function, body=body)

    def _block(self, block: Expr) -> Expr:
        lets, tail = spine(block)
        body = self._value(tail)
        for let in reversed(lets):
            if let.var not in self._offsets:
                body = Let(let.var, self._value(let.value), body, let.type, let.span, let.place)
        return body

    def _value(self, value: Expr) -> Expr:
        match value:
            case Function():
                return self.function(value)
            case If(then=then, otherwise=otherwise):
                return replace(value, then=self._block(then), otherwise=self._block(otherwise))
            case Match(arms=arms):
                return replace(
                    value, arms=tuple(Arm(arm.pattern, self._block(arm.body)) for arm in arms)
                )
            case Call(callee=OpRef(op=op), args=(Var() as storage, *_)) if (
                op is TENSOR_AT and storage in self._offsets
            ):
                block, offset = self._offsets[storage]
                at, shape = value.args[1:]
                assert isinstance(at, Const), "explicit-alloc puts a tensor at a number"
                assert isinstance(at.value, Int), "explicit-alloc puts a tensor at a number"
                return replace(value, args=(block, make.int_const(offset + at.value), shape))
            case _:
                return value


PASS = Pass(
    __name__,
    run,
    "put storage of bounded lifetime into one block per function",
    requires=(Property.EXPLICIT_STORAGE,),
    establishes=(Property.PLANNED,),
)
