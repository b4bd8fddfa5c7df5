"""Gives storage of bounded lifetime its place: one block per function and memory.

A block is allocated when its function begins; its size is known then, perhaps as an integer over the
dims of the function. What does not go into the block keeps an allocation of its own at run time,
where it is counted: storage that escapes (see `lifetimes`), and storage whose size mentions a dim
that is not known when the function begins. Which memory a storage is in is chosen by
`choose_memories`, which also packs memories of a fixed size; blocks of heaps are packed by
`size_classes`, and `place_storage` writes the places into the program.

**Sharing.** Storages that share bytes order the kernels that use them. A program that is to run its
independent parts at once is planned by dependence chains (`chains`): each is packed by itself.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

from inlay.analysis.blocks import count_uses
from inlay.analysis.call_graph import call_graph, recursive_functions
from inlay.analysis.local_functions import find_loops
from inlay.arith.expr import Int, lit
from inlay.arith.solve import Facts
from inlay.ir import make
from inlay.ir.conform import dim_range
from inlay.ir.expr import Function, Var
from inlay.ir.module import Module
from inlay.ir.types import STORAGE, TensorType
from inlay.machine.memory import PoolKind
from inlay.memory.activations import IN_RESULT, Activation, Storage
from inlay.memory.budget import (
    Budget,
    Keeping,
    Less,
    PlannedModule,
    Planner,
    Shrink,
    Variant,
    Variants,
    plan_within,
)
from inlay.memory.called import calls_of, functions_of, params_of
from inlay.memory.choose_memories import Chooser, Chosen, Known, MemoryOptions
from inlay.memory.constants import plan_constants, plan_regions
from inlay.memory.dynamic import copies_of_results, counted_of, made_by_machine, stored_results
from inlay.memory.explicit_alloc import size_of
from inlay.memory.heap_sizes import check_heaps
from inlay.memory.leaving import leaves_bank, with_result
from inlay.memory.lifetimes import find_lifetimes, tensors_of
from inlay.memory.place_storage import Placement, Rewriter
from inlay.memory.plan import FunctionPlan, MemoryPart, Sharing, Stored, describe, invoked
from inlay.memory.size_classes import ALIGNMENT, SEARCH_STEPS, pack_chains, pack_classes
from inlay.passes.contract import Pass, PassContext, Property, Remark

NOTHING_SAID = MemoryOptions()
NO_BUDGET = Budget()


Replan: TypeAlias = Callable[[], PlannedModule]
"""Plans a program, and returns it with its plans."""


Again: TypeAlias = Callable[
    [Module, str, MemoryOptions, int], tuple[Module, float, Callable[[], None]] | None
]
"""Gives a program whose function needs at most so many bytes of the first heap at once, since values are made
once more; with the predicted nanoseconds that adds, and what to call if it is taken. Perhaps none."""


@dataclass(frozen=True, slots=True)
class Smaller:
    """A program whose kernels take less; attributes as those of `budget.Variant`, and the program itself, in
    explicit storage.
    """

    module: Module
    change: str
    adds_ns: float
    take: Callable[[], None]


@dataclass(frozen=True, slots=True)
class BlockOptions:
    """Options of this pass, besides what memories there are (`MemoryOptions`).

    Attributes:
        sharing: which storages share bytes in heaps.
        watch: is told the plans.
        budget: bytes of memories that the plan may take.
        keep: is told how the plan keeps to it.
        compare: is given what plans the program with the other sharing, for who asks how they differ.
        again: makes values again where a budget asks for it.
        smaller: gives how many kernels may take less, and the program in which some do, likewise; see
            `budget.Variants`.
    """

    sharing: Sharing = Sharing.SERIAL
    watch: Callable[[Sequence[FunctionPlan]], None] | None = None
    budget: Budget = NO_BUDGET
    keep: Callable[[Keeping], None] | None = None
    compare: Callable[[Replan], None] | None = None
    again: Again | None = None
    smaller: Callable[[], tuple[int, Callable[[frozenset[int]], Smaller]]] | None = None


def run(module: Module, context: PassContext) -> Module:
    """Plan every function, and say how it went in the remarks."""
    options = context.options_for(BlockOptions)
    memories = context.options_for(MemoryOptions)
    planner, shrink = _planning(module, options, memories)

    def variants() -> Variants | None:
        if options.smaller is None:
            return None
        count, make = options.smaller()

        def variant(numbers: frozenset[int]) -> Variant:
            made = make(numbers)
            return Variant(*_planning(made.module, options, memories), made.change, made.adds_ns, made.take)

        return Variants(count, variant)

    (planned, plans), keeping = plan_within(
        planner, memories, options.sharing, options.budget, shrink, variants
    )
    check_heaps(
        planned,
        plans,
        replace(memories, pools=options.budget.pools or memories.pools),
        options.budget.threads,
    )
    if options.keep is not None:
        options.keep(keeping)
    if options.watch is not None:
        options.watch(plans)
    if options.compare is not None:
        (other,) = (s for s in Sharing if s is not options.sharing)
        options.compare(partial(planner, memories, other))
    for plan in plans:
        context.remarks.add(Remark("plan-memory", "planned", "block", f"{plan.name}: {describe(plan)}"))
    return planned


def _planning(module: Module, options: BlockOptions, memories: MemoryOptions) -> tuple[Planner, Shrink]:
    """Return what plans a module, and what makes values of it again."""

    def plan(memories: MemoryOptions, sharing: Sharing) -> PlannedModule:
        return plan_module(module, memories, sharing=sharing)

    def shrink(entry: str, room: int) -> Less | None:
        found = None if options.again is None else options.again(module, entry, memories, room)
        if found is None:
            return None
        made, ns, take = found
        return Less(plan_module(made, memories, sharing=options.sharing), ns, take)

    return plan, shrink


def plan_module(
    module: Module, options: MemoryOptions = NOTHING_SAID, *, sharing: Sharing = Sharing.SERIAL
) -> tuple[Module, tuple[FunctionPlan, ...]]:
    """Return the module with storages in blocks, and the plan of each function.

    Args:
        module: in explicit storage.
        options: the memories that there are.
        sharing: which storages share bytes in heaps.

    Raises:
        CompileError: `memory.no-room`.
    """
    functions: dict[str, Function] = {}
    plans: list[FunctionPlan] = []
    chooser = Chooser(options, SEARCH_STEPS)
    plans += plan_constants(module, options, chooser)
    plans += plan_regions(module, options, chooser)
    graph = call_graph(module)
    recursive = recursive_functions(graph)
    called = {callee for callees in graph.values() for callee in callees}
    lives = {
        name: find_lifetimes(name, function, module, find_loops(function), options.threads)
        for name, function in module.functions.items()
    }
    who = functions_of(module, [a for found in lives.values() for a in found])
    for name, function in module.functions.items():
        placed: dict[Function, Placement] = {}
        known: dict[Function, Known] = {}
        for activation in lives[name]:
            around = None if activation.outer is None else known[activation.outer]
            known[activation.function] = known_of(module, name, activation, around, recursive)
            if known[activation.function].is_entry:
                activation.storages[:0] = inputs_of(activation, options)
            chosen = chooser.choose(activation, known[activation.function])
            chosen = with_result(
                chosen, activation, known[activation.function], options, called, module.kernels
            )
            placed[activation.function], plan = _plan(
                activation, chosen, known[activation.function], sharing=sharing
            )
            given, tensors = params_of(activation), tensors_of(activation.function.type.result)
            results = None if tensors is None else len(tensors)
            plan = replace(plan, calls=calls_of(activation, who), params=given, results=results)
            if activation.outer is None:
                is_entry = known[activation.function].is_entry
                plan = _with_machine(plan, function, chosen, module, options, is_entry=is_entry)
            plans.append(plan)
        functions[name] = Rewriter(placed).function(function)
    return module.with_functions(functions), tuple(plans)


def inputs_of(activation: Activation, options: MemoryOptions) -> list[Storage]:
    """Return the inputs of an entry where they have their places before the program runs."""
    found: list[Storage] = []
    for param in activation.function.params:
        if isinstance(param.type, TensorType) and options.inputs:
            names = param.place.memories if param.place is not None else None
            size, end = size_of(param.type), activation.positions
            allowed = options.inputs if names is None else names
            reads = list(activation.reads.get(param, ()))
            found.append(
                Storage(
                    [param],
                    size,
                    ALIGNMENT,
                    allowed,
                    0,
                    end,
                    name=param.name,
                    span=param.span,
                    accesses=reads,
                )
            )
    return found


def known_of(
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


def _with_machine(
    plan: FunctionPlan,
    function: Function,
    chosen: Chosen,
    module: Module,
    options: MemoryOptions,
    *,
    is_entry: bool,
) -> FunctionPlan:
    """Return the plan of a function of the module with what the virtual machine allocates besides."""
    own = [*chosen.counted, *(s for part in chosen.heap.values() for s in part if s.is_result)]
    order = [storage for _, storage in stored_results(function)]
    for bank in chosen.banks:
        inside = [s for var in order for s in bank.offsets if s.escapes == IN_RESULT and var in s.vars]
        found = leaves_bank(inside, bank.bytes, options) if inside else None
        own += [] if found is None else [found]
    leave, moments = frozenset(var for s in own for var in s.vars), plan.moments
    made = made_by_machine(function, moments)
    copies = copies_of_results(function, leave, moments, module) if is_entry else ()
    return replace(plan, machine=made + copies)


def _plan(
    activation: Activation, chosen: Chosen, known: Known, *, sharing: Sharing
) -> tuple[Placement, FunctionPlan]:
    blocks: dict[str, tuple[Var, Int, int]] = {}
    offsets: dict[Var, tuple[Var, Int]] = {}
    parts: list[MemoryPart] = []

    phases = activation.phases()

    def stored(storage: Storage, offset: Int) -> Stored:
        names = tuple(v.name.removesuffix(".s") for v in storage.vars)
        first = 0 if storage.start == 0 else bisect_left(phases, storage.start) + 1
        last = len(phases) + 1 if storage.escapes == IN_RESULT else bisect_right(phases, storage.end)
        spans, others = tuple(v.span for v in storage.vars), tuple(chosen.others.get(storage, ()))
        return Stored(names, spans, offset, storage.bytes, first, last, len(storage.accesses), others)

    def put(storage: Storage, block: Var, offset: Int) -> None:
        for var in storage.vars:
            offsets[var] = (block, offset)

    for memory, storages in chosen.heap.items():
        block = _block(memory)
        size, bound = lit(0), lit(0)
        for packed in (pack_classes if sharing is Sharing.SERIAL else pack_chains)(storages, known.ranges):
            for storage, offset in packed.offsets.items():
                put(storage, block, size + offset)
            size = size + packed.size
            bound = bound + packed.bound
        total = sum((s.bytes for s in storages), lit(0))
        blocks[memory] = (block, size, ALIGNMENT)
        members = tuple(stored(s, offsets[s.vars[0]][1]) for s in storages)
        alone = not memory and size == total and _is_tensor(storages, activation.function)
        parts.append(MemoryPart(memory, PoolKind.HEAP, size, bound, total, members, alone))
    for bank in chosen.banks:
        block = _block(bank.memory)
        for storage, at in bank.offsets.items():
            put(storage, block, lit(at))
        blocks[bank.memory] = (block, lit(bank.bytes), bank.alignment)
        members = tuple(stored(s, lit(at)) for s, at in bank.offsets.items())
        sizes = (lit(bank.bytes), lit(bank.bound), lit(bank.total))
        parts.append(MemoryPart(bank.memory, bank.kind, *sizes, members))
    counted = counted_of(activation, chosen, is_entry=known.is_entry)
    memories = {var: memory for s, (memory, _) in chosen.counted.items() for var in s.vars}
    called = activation.kernels
    phases_of, arms = (c.last - c.first + 1 for c in called), (c.arms for c in called)
    kernels = invoked((c.kernel for c in called), phases_of, arms)
    plan = FunctionPlan(activation.name, tuple(parts), counted, kernels)
    return Placement(blocks, offsets, memories), plan


def _is_tensor(storages: Sequence[Storage], function: Function) -> bool:
    """Whether storages are one with one tensor in it: that is allocated as a whole (`vm.facts`)."""
    (first, *others) = storages
    return not others and len(first.vars) == 1 and count_uses(function.body)[first.vars[0]] == 1


def _block(memory: str) -> Var:
    return make.var(f"block.{memory}" if memory else "block", STORAGE)


PASS = Pass(
    __name__,
    run,
    "put storage of bounded lifetime into one block per function",
    requires=(Property.EXPLICIT_STORAGE,),
    establishes=(Property.PLANNED,),
    options=MemoryOptions,
)
