"""Runs the passes of the route, all or up to one: compiling and explaining are this run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from inlay.analysis.choices import Choice
from inlay.base.diagnostics import CompileError
from inlay.codegen.backend_table import unavailable
from inlay.ir.module import Module, require_entry
from inlay.ir.verify import check
from inlay.machine.board import Board
from inlay.machine.memory import Pool, PoolKind
from inlay.memory.budget import Budget, Keeping
from inlay.memory.choose_memories import MemoryOptions
from inlay.memory.plan import FunctionPlan, Sharing
from inlay.memory.plan_memory import BlockOptions, Replan
from inlay.memory.spill_values import SpillOptions, SpillPlan, made_again
from inlay.passes.contract import Pass, PassContext, Property, Remark
from inlay.passes.manager import Pipeline, make_pipeline, run_pipeline
from inlay.pipeline.build_kernels import BuildOptions
from inlay.pipeline.generate import GenerateOptions
from inlay.pipeline.place_parts import Moves, PartOptions, with_moves
from inlay.pipeline.planning import Setting
from inlay.pipeline.route import MEMORY, route
from inlay.pipeline.smaller import Forms, Tried, given_up_text, smaller_programs
from inlay.pipeline.spilling import spill_options
from inlay.placement import plan_places
from inlay.placement.plan_places import Planned, PlanOptions
from inlay.runtime.promise import Promise
from inlay.transforms._integers.record import Numerics
from inlay.transforms._packings import FasterForm, PackedProduct, PackOptions
from inlay.transforms._stored_weights import StoredWeights
from inlay.transforms.fold_quantization import QuantizationOptions
from inlay.transforms.fuse_ops import FuseOptions, Fusion
from inlay.transforms.pack_weights import PASS as PACK_WEIGHTS
from inlay.transforms.round_operands import PrecisionOptions, RoundedProduct


@dataclass(frozen=True, slots=True)
class Run:
    """A program as far as it came, and what was decided on the way.

    Attributes:
        setting: the board, the operators, and the context of passes, with their remarks.
        loaded: the program as it was given.
        module: what the last pass made.
        planned: the plan of places; None before it, and where nobody asked about a single device.
        fusions: of each block, what became one kernel, and why neighbors did not.
        plans: of memory.
        sharing: which values share bytes in them.
        promise: the budgets of memories, and what a call takes; None where there are none.
        other: plans the program with the other sharing; None before memory is planned.
        spills: what leaves memories that are too small for a time.
        forms: operations that have a form that is faster and takes more bytes, and whether it is taken.
        numerics: of each function, what is computed in integers, and what stays float and why.
        products: of floats, where they may be in bf16: which are, and why others are not.
        stored: constants of f32 that 16 bits hold.
        answered: products whose form was measured, by their keys, with what was chosen.
    """

    setting: Setting
    loaded: Module
    module: Module
    planned: Planned | None
    fusions: tuple[Fusion, ...]
    plans: tuple[FunctionPlan, ...]
    numerics: tuple[Numerics, ...]
    sharing: Sharing = Sharing.SERIAL
    promise: Promise | None = None
    other: Replan | None = None
    spills: tuple[SpillPlan, ...] = ()
    forms: tuple[FasterForm, ...] = ()
    products: tuple[RoundedProduct, ...] = ()
    stored: tuple[StoredWeights, ...] = ()
    answered: Mapping[str, Choice] = field(default_factory=dict[str, Choice])

    @property
    def threads(self) -> Mapping[str, int]:
        """Of devices that are this processor, how many threads run their kernels, by name."""
        return self.setting.context.options_for(PlanOptions).threads or {}

    @property
    def without_code(self) -> dict[str, str]:
        """Devices of the board for which no code is made here, with the reason."""
        board = self.setting.board
        return {d.name: why for d in board.devices if (why := unavailable(board, d.name))}


def run_passes(
    module: Module,
    setting: Setting,
    kernels: tuple[BuildOptions, GenerateOptions],
    *,
    until: Pass | None = None,
    verify: bool = False,
    asks: bool = False,
    dry: tuple[BuildOptions, GenerateOptions] | None = None,
) -> Run:
    """Run the passes of the route.

    Args:
        module: as it was loaded.
        setting: board, operators and options.
        kernels: how kernels are lowered, and whether code is made of them.
        until: the last pass; all by default.
        verify: see `CompileOptions`.
        asks: whether somebody asks why the plan of places is as it is.
        dry: as `kernels`, for who makes no code. Places that are refused for want of code are those of a
            view, which memory has decided on.

    Places are planned with sums of bytes. Where what is behind that finds no room in a memory, for alignment,
    scratch memory or holes between values, places are planned again with less of the memories. Who asks for a
    view of places sees those that the program runs with.

    Raises:
        CompileError: `name.unknown` where there is nothing to run.
        CompileError, UnsupportedError: what passes say of the program.
    """
    require_entry(module)
    start = _started(module, setting, until, verify=verify)
    once = partial(_within_budget, start, kernels, dry or kernels, verify=verify, asks=asks)
    board = setting.context.options_for(PlanOptions).machine
    if board is None or start.is_all or not _may_repeat(setting, board):
        return once(until)
    if until is None or until in MEMORY:
        try:
            return _repeated(setting, board, partial(once, until))[1]
        except CompileError as failure:
            if dry is None or not _PLACED.issuperset(failure.ids):
                raise
            tried = partial(_within_budget, start, dry, dry, None, verify=verify, asks=asks)
            machine = _found(setting, board, tried)
            if machine is board:
                raise
        return once(until, machine)
    return _seen(setting, board, partial(once, until))


_PLACED = frozenset({"target.no-generator", "placement.fallback"})
"""Refusals of places, whatever is behind them."""


def _found(setting: Setting, board: Board, run: Callable[[Board], Run]) -> Board:
    """Return the board that places are planned for; the board itself where no other helps."""
    try:
        return _repeated(setting, board, run)[0]
    except CompileError:
        return board


def _seen(setting: Setting, board: Board, run: Callable[..., Run]) -> Run:
    """Run up to a view, and go on to see whether memory has room for what is seen there."""
    seen: list[Run] = []

    def whole(machine: Board) -> Run:
        run(machine, tell=seen.append)
        return seen[-1]

    try:
        return _repeated(setting, board, whole)[1]
    except CompileError:
        return run(board)


_PARTS = (1.0, 0.875, 0.5, 0.0)
"""Parts of memories of a fixed size that places are planned with, one after the other."""


def _may_repeat(setting: Setting, board: Board) -> bool:
    """Whether other places might be chosen where the memory of a device turns out to be too small."""
    options = setting.context.options_for(PlanOptions)
    return options.optimise and not options.first and any(_is_tried(m, board) for m in board.memories)


def _is_tried(memory: Pool, board: Board) -> bool:
    return memory.kind is PoolKind.STATIC and memory.name not in board.host.memories


def _repeated(setting: Setting, board: Board, run: Callable[[Board], Run]) -> tuple[Board, Run]:
    """Run with less and less of the memories of devices until what is planned finds room.

    Returns:
        The board that places were planned for, and the run.

    Raises:
        CompileError: of the first run, where nothing helps.
    """
    remarks, refusal = setting.context.remarks, None
    before = len(remarks.all)
    for part in _PARTS:
        pools = (
            replace(m, bytes=int((m.bytes or 0) * part)) if _is_tried(m, board) else m for m in board.memories
        )
        machine = board if part == 1 else replace(board, memories=tuple(pools))
        try:
            found = run(machine)
        except CompileError as failure:
            remarks.forget(before)
            refusal = refusal or failure
            if failure.ids != ("memory.no-room",):
                break
        else:
            if refusal is not None:
                why = (
                    f"places are for {part:.1%} of memories of a fixed size: {refusal.diagnostics[0].message}"
                )
                remarks.add(Remark(plan_places.PASS.name, "planned-again", "no-room", why))
            return machine, found
    assert refusal is not None, "a run without a refusal is returned"
    raise refusal


@dataclass(frozen=True, slots=True)
class _Start:
    """A program up to where places are planned: the same for all that may be planned.

    Attributes:
        setting: what it was made with.
        loaded: the program as it was given.
        module: what the passes before places made of it.
        numerics: what they decided.
        holds: of the module.
        rest: the passes that are left, up to the end; none where places are not asked for.
    """

    setting: Setting
    loaded: Module
    module: Module
    numerics: tuple[Numerics, ...]
    holds: frozenset[Property]
    rest: tuple[Pass, ...]

    @property
    def is_all(self) -> bool:
        """Whether nothing is left to do."""
        return not self.rest


def _started(module: Module, setting: Setting, until: Pass | None, *, verify: bool) -> _Start:
    """Run the passes before places are planned, or up to an earlier one."""
    passes, found = route(None, setting.hooks).passes, list[Numerics]()
    at = passes.index(plan_places.PASS)
    last = at if until is None else min(at, passes.index(until) + 1)
    rest = passes[at:] if until is None or until in passes[at:] else ()
    pipeline = make_pipeline(passes[:last])
    numerics = replace(setting.context.options_for(QuantizationOptions), watch=found.append)
    context = setting.context.with_options(numerics)
    made = run_pipeline(pipeline, module, context, verify=check if verify else None)
    return _Start(setting, module, made, tuple(found), pipeline.establishes, rest)


def _within_budget(
    start: _Start,
    kernels: tuple[BuildOptions, GenerateOptions],
    dry: tuple[BuildOptions, GenerateOptions],
    until: Pass | None,
    machine: Board | None = None,
    *,
    verify: bool,
    asks: bool,
    tell: Callable[[Run], None] | None = None,
) -> Run:
    """Run as `_once`; where a budget is kept by kernels that take less, once more with those."""
    remarks = start.setting.context.remarks
    before, forms = len(remarks.all), Forms()
    if tell is None and until not in (None, *MEMORY) and _has_budget(start.setting):
        tell = _unseen  # kernels of a view are those that memory decides on
    found = _once(start, kernels, dry, forms, until, machine, verify=verify, asks=asks, tell=tell)
    if not forms.given_up:
        return found
    remarks.forget(before)
    less = replace(start.setting.context.options_for(PackOptions), plain=forms.given_up)
    setting = replace(start.setting, context=start.setting.context.with_options(less))
    again, forms = replace(start, setting=setting), Forms()
    found = _once(again, kernels, dry, forms, until, machine, verify=verify, asks=asks, tell=tell)
    left = [f for f in forms.found if not f.is_taken]
    why = f"{given_up_text(left)}, for the budget; adds {sum(f.saves_ns for f in left):,} ns (predicted)"
    remarks.add(Remark(PACK_WEIGHTS.name, "plain-form", "budget", why))
    return found


def _has_budget(setting: Setting) -> bool:
    return bool(setting.context.options_for(BlockOptions).budget.bytes)


def _unseen(run: Run) -> None:
    del run


def _once(
    start: _Start,
    kernels: tuple[BuildOptions, GenerateOptions],
    dry: tuple[BuildOptions, GenerateOptions],
    forms: Forms,
    until: Pass | None,
    machine: Board | None = None,
    *,
    verify: bool,
    asks: bool,
    tell: Callable[[Run], None] | None = None,
) -> Run:
    """Run the passes that are left with places planned for a machine; as the setting says by default.

    Args:
        start: the program before its places.
        kernels: see `run_passes`.
        dry: how kernels are lowered where no code is made of them.
        forms: is told the forms of operations, and which are to be given up for a budget.
        until: the last pass; all by default.
        machine: that places are planned for.
        verify: see `CompileOptions`.
        asks: whether somebody asks why the plan of places is as it is.
        tell: is given the run up to `until`; then all passes are run.
    """
    told = _Told(forms)
    context = told.context(start, kernels, dry, machine, asks=asks)
    first, rest = _halves(start, until)
    found = told.run(start, run_pipeline(first, start.module, context, verify=check if verify else None))
    if tell is not None:
        tell(found)
        run_pipeline(rest, found.module, context, verify=check if verify else None)
    return found


@dataclass(slots=True)
class _Told:
    """What passes told who watches them."""

    forms: Forms
    planned: list[Planned] = field(default_factory=list[Planned])
    fusions: list[Fusion] = field(default_factory=list[Fusion])
    moves: list[Moves] = field(default_factory=list[Moves])
    plans: list[FunctionPlan] = field(default_factory=list[FunctionPlan])
    others: list[Replan] = field(default_factory=list[Replan])
    spills: list[SpillPlan] = field(default_factory=list[SpillPlan])
    keeping: list[Keeping] = field(default_factory=list[Keeping])
    products: list[RoundedProduct] = field(default_factory=list[RoundedProduct])
    stored: list[StoredWeights] = field(default_factory=list[StoredWeights])
    answered: dict[str, Choice] = field(default_factory=dict[str, Choice])

    def packed(self, others: Callable[[PackedProduct], None] | None, product: PackedProduct) -> None:
        """Keep which choices were used; hand the product on to who else asked."""
        if product.choice:
            self.answered[product.key] = product.choice
        if others is not None:
            others(product)

    def context(
        self,
        start: _Start,
        kernels: tuple[BuildOptions, GenerateOptions],
        dry: tuple[BuildOptions, GenerateOptions],
        machine: Board | None,
        *,
        asks: bool,
    ) -> PassContext:
        """Return a context whose passes tell what they decide; arguments as those of `_once`."""
        setting, given = start.setting, start.setting.context
        packing, planning = given.options_for(PackOptions), given.options_for(PlanOptions)
        planning = replace(planning, machine=machine or planning.machine)
        moving = spill_options(setting.board, setting.operators, kernels[0], planning)
        context = given.with_options(
            *kernels,
            PartOptions(dry[1], self.moves.append),
            replace(planning, watch=self.planned.append, asks=asks),
            replace(given.options_for(FuseOptions), watch=self.fusions.append),
            replace(moving, watch=self.spills.extend),
            replace(
                packing,
                watch=self.forms.found.append,
                stored=self.stored.append,
                packed=partial(self.packed, packing.packed),
            ),
            replace(given.options_for(PrecisionOptions), watch=self.products.append),
        )
        tried = Tried(start.module, start.holds, start.rest, context, dry)
        blocks = replace(
            given.options_for(BlockOptions),
            watch=self.plans.extend,
            compare=self.others.append,
            keep=self.keeping.append,
            again=partial(_made_again, moving, self.spills),
            smaller=None if packing.plain else partial(smaller_programs, tried, self.forms),
        )
        return context.with_options(blocks)

    def run(self, start: _Start, made: Module) -> Run:
        """Return what came of it."""
        blocks = start.setting.context.options_for(BlockOptions)
        kept = bool(self.keeping and blocks.budget.bytes)
        return Run(
            start.setting,
            start.loaded,
            made,
            self.planned[-1] if self.planned else None,
            with_moves(self.fusions, self.moves[-1] if self.moves else {}),
            tuple(self.plans),
            start.numerics,
            blocks.sharing,
            _promise(blocks.budget, self.keeping[-1]) if kept else None,
            self.others[-1] if self.others else None,
            tuple(self.spills),
            tuple(self.forms.found),
            tuple(self.products),
            tuple(self.stored),
            self.answered,
        )


def _made_again(
    moving: SpillOptions,
    spills: list[SpillPlan],
    module: Module,
    entry: str,
    memories: MemoryOptions,
    room: int,
) -> tuple[Module, float, Callable[[], None]] | None:
    """Return a program that makes values again, the time that adds, and what keeps it; see `Again`."""
    found = made_again(module, entry, memories, moving, room)
    return None if found is None else (found[0], found[1].added_ns, partial(spills.append, found[1]))


def _halves(start: _Start, until: Pass | None) -> tuple[Pipeline, Pipeline]:
    """Return the passes that are left up to one of them, and those behind it."""
    whole = make_pipeline(start.rest, start.holds)
    end = len(start.rest) if until is None or not start.rest else start.rest.index(until) + 1
    return replace(whole, passes=start.rest[:end]), replace(whole, passes=start.rest[end:])


def _promise(budget: Budget, keeping: Keeping) -> Promise:
    return Promise(budget.bytes, keeping.takes, budget.threads if keeping.is_for_threads else 0)
