"""What a plan is made from: one description of board, operators and options for all who plan.

Compiling and explaining are the same run up to the plan; explaining ends there. So both take the board
and the context of passes from here, and with them the devices that take part, what each of them can
run, and what costs are counted by. A device for which no code is made here takes part in plans like any
other: to ask about a machine that is only described is what explaining is for. Who compiles a plan
that uses one is told so (`check_code`).
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from inlay.analysis.blocks import values
from inlay.analysis.candidates import Candidate
from inlay.analysis.choices import NO_CHOICE, Choice
from inlay.analysis.winograd import ACCURACY, FLOAT_ERROR, float_tiles
from inlay.arith.dtype import DType
from inlay.base.diagnostics import Collector
from inlay.base.instrument import SILENT, Instrument
from inlay.base.span import NO_SPAN, Span
from inlay.codegen.backend_table import backend_of, target_of, unavailable
from inlay.codegen.interface import Backend, CostHook
from inlay.interp.tensor import Meanings, evaluate_expr
from inlay.ir.expr import Call, Expr, OpRef
from inlay.ir.module import Module
from inlay.machine.board import Board
from inlay.machine.target import Target, processor_name
from inlay.memory.budget import limited_by
from inlay.memory.choose_memories import MemoryOptions
from inlay.memory.explicit_alloc import StorageOptions
from inlay.memory.plan import Sharing
from inlay.memory.plan_memory import BlockOptions
from inlay.ops.table import OperatorTable, table
from inlay.passes.contract import PassContext
from inlay.pipeline import batches
from inlay.pipeline.budgets import budget_of
from inlay.pipeline.detect import find_detected
from inlay.pipeline.devices import apart, runnable
from inlay.pipeline.generators import generators
from inlay.pipeline.hooking import BoardHooks, hooks_of
from inlay.pipeline.memories import memories_of, storage_of
from inlay.pipeline.options import WORTH, PlaceOptions
from inlay.pipeline.plan_again import AgainOptions, Ask
from inlay.pipeline.version import rules_version
from inlay.placement.choose.calibration import calibrated, read_measured
from inlay.placement.choose.candidates import CandidateSource
from inlay.placement.plan_places import PlanOptions
from inlay.runtime.chosen import usable_processors
from inlay.transforms import eliminate_dead
from inlay.transforms._packings import PackOptions
from inlay.transforms.convert_layout import LayoutOptions
from inlay.transforms.fold_quantization import QuantizationOptions
from inlay.transforms.fuse_ops import FuseOptions, groups_of
from inlay.transforms.grow_state import GrowStateOptions
from inlay.transforms.pack_regions import RegionOptions
from inlay.transforms.round_operands import PrecisionOptions
from inlay.transforms.split_batch import SplitBatchOptions
from inlay.transforms.unroll_loops import UnrollOptions
from inlay.transforms.widen_products import WidenOptions
from inlay.tune.chosen import NOT_TUNED, Tuned, read_tuned
from inlay.tune.trial import Place


@dataclass(frozen=True, slots=True)
class Setting:
    """What a plan is made from.

    Attributes:
        board: the machine as programs run on it.
        operators: that there are.
        context: what passes are given.
        targets: gives what code of a device is made for, by its name.
        hooks: of back ends of the board.
        tuned: what was measured of kernels of the host.
    """

    board: Board
    operators: OperatorTable
    context: PassContext
    targets: Callable[[str], Target]
    hooks: BoardHooks
    tuned: Tuned = NOT_TUNED

    def choice(self, device: str, key: str) -> Choice:
        """Return what was measured for a kernel of a device, by its key."""
        return self.tuned.of_kernel(key) if _is_host(self.board, device) else NO_CHOICE


def setting_of(
    options: PlaceOptions,
    instrument: Instrument = SILENT,
    threads: int | None = None,
    target: Callable[[Board, str], Target] = target_of,
) -> Setting:
    """Return the setting for some options.

    Args:
        options: board, pins, sizes, costs.
        instrument: where times go.
        threads: on how many the host's kernels run; all processors by default.
        target: gives what code of a device is made for.

    Raises:
        CompileError: of the board.
    """
    board = _saturating(runnable(find_detected(options.board)), options.numerics)
    targets = functools.cache(partial(target, board))  # devices elsewhere are asked when they are needed
    counts = threads_of(board, threads)
    budget = budget_of(options.budget, board, counts.get(board.host.name, 1))
    operators, (fusing, anywhere) = table(), _fusing(board)
    tuned = _tuned(options.tuned, board, targets, counts)
    context = PassContext(
        operators,
        lambda expression: evaluate_expr(expression, meanings_of(operators)),
        options={
            QuantizationOptions: QuantizationOptions(exact=options.exact_qdq, bytes=_bytes(board)),
            FuseOptions: fusing,
            GrowStateOptions: GrowStateOptions(_is_host_alone(board) and not options.budget),
            UnrollOptions: _unrolling(board),
            SplitBatchOptions: _splitting(board, options, counts),
            LayoutOptions: LayoutOptions(_canonical(board)),
            **_products(board, targets, options, counts, tuned),
            PlanOptions: PlanOptions(
                board.name,
                crowded(board, counts),
                optimise=True,
                first=options.placement == "first",
                worth=WORTH,
                pins=options.pins,
                typical=options.typical,
                calibration=options.calibration,
                generators=generators(operators, board),
                hooks=_hooks(board),
                candidates=_candidates(board),
                groups=partial(groups_of, operators=operators, options=anywhere),
                host_ends=True,
                threads=counts,
            ),
            AgainOptions: AgainOptions(board, _asks(board)),
            StorageOptions: storage_of(board),
            MemoryOptions: limited_by(memories_of(board), budget.bytes),
            BlockOptions: BlockOptions(Sharing(options.plan), budget=budget),
            RegionOptions: RegionOptions({d: b.constant_layouts for d, b in apart(board).items()}),
        },
        instrument=instrument,
    )
    return Setting(board, operators, context, targets, hooks_of(board, context.remarks), tuned)


def place_of(board: Board, targets: Callable[[str], Target], threads: int) -> Place:
    """Return what measurements hold for: the host of a board on so many threads."""
    return Place(processor_name(), targets(board.host.name).key, rules_version(), threads)


def _tuned(file: str, board: Board, targets: Callable[[str], Target], threads: Mapping[str, int]) -> Tuned:
    """Return what was measured for the host of a board; nothing where no file is named.

    Raises:
        CompileError: `tune.missing`, `tune.damaged`, `tune.version`, `tune.busy`.
    """
    if not file:
        return NOT_TUNED
    return read_tuned(file, place_of(board, targets, threads.get(board.host.name, 1)))


def _products(
    board: Board,
    targets: Callable[[str], Target],
    options: PlaceOptions,
    threads: Mapping[str, int],
    tuned: Tuned,
) -> dict[type, object]:
    """Return in which formats products add up, what constants are packed for, and how forms are weighed."""

    def choice(device: str, key: str) -> Choice:
        return tuned.of_product(key) if _is_host(board, device) else NO_CHOICE

    time = partial(_products_ns, board, options.calibration, threads)
    packing = PackOptions(
        _packed(board, targets),
        time=time,
        bf16=options.precision == "bf16",
        choice=choice,
        shared=batches.LEAST_SHARED if options.batch else None,
        accuracy=_accuracy(options),
    )
    widening = WidenOptions(packing.targets)
    return {PrecisionOptions: _precision(board, options), WidenOptions: widening, PackOptions: packing}


def _precision(board: Board, options: PlaceOptions) -> PrecisionOptions:
    """Return which operands of products may be rounded."""
    winograd = max(FLOAT_ERROR) in float_tiles(_accuracy(options))
    return PrecisionOptions(options.precision, partial(_is_host, board), winograd)


def _accuracy(options: PlaceOptions) -> float:
    """Return the error that products in f32 may have.

    Where nobody says: operands that may be rounded to bf16 are off by more than any form of f32 is.
    """
    if options.accuracy is not None:
        return options.accuracy
    return max(FLOAT_ERROR.values()) if options.precision == "bf16" else ACCURACY


def _is_host(board: Board, device: str) -> bool:
    """Whether a device is the host; so is none."""
    return device in ("", board.host.name)


def _products_ns(board: Board, measured: str, threads: Mapping[str, int], device: str, macs: int) -> int:
    """Return the predicted time of so many multiply-adds on a device; on the host where none is named."""
    name = device or board.host.name
    speed = calibrated(board, read_measured(measured)).arch_of(name).speed
    return round(macs / speed.macs_per_ns / threads.get(name, 1))


def _saturating(board: Board, numerics: str) -> Board:
    """Return a board whose devices may take instructions that saturate, if that is asked for."""
    if numerics != "saturating":
        return board
    return replace(
        board, archs=tuple(replace(a, facts=(*a.facts, ("saturating", True))) for a in board.archs)
    )


def threads_of(board: Board, threads: int | None) -> dict[str, int]:
    """Return on how many threads devices run their kernels that are this processor, by name."""
    found: dict[str, int] = {}
    for d in board.devices:
        backend = backend_of(board, d.name)
        own = None if backend is None else backend.threads(board.arch_of(d.name))
        if own is not None:
            found[d.name] = (threads or usable_processors()) if d is board.host else own
    return found


def crowded(board: Board, counts: Mapping[str, int]) -> Board:
    """Return a board for plans: devices that are this processor share it if there are too few cores.

    Where the host has several threads, and all have more than there are processors, one works while
    another one waits, whatever the board says. Programs run on the board as it is. A host of one thread
    leaves the choice to the board, so that such plans are the same on all machines.
    """
    if counts.get(board.host.name, 1) == 1 or sum(counts.values()) <= usable_processors():
        return board
    piece = board.host.hardware
    devices = tuple(replace(d, shares=piece) if d.name in counts else d for d in board.devices)
    return replace(board, devices=devices)


def _hooks(board: Board) -> dict[str, CostHook]:
    """Return what predicts times besides the figures of the board, by name of the architecture."""
    found: dict[str, CostHook] = {}
    for d in board.devices:
        backend, arch = backend_of(board, d.name), board.arch_of(d.name)
        hook = None if backend is None else backend.cost(arch)
        if hook is not None:
            found[arch.name] = hook
    return found


def _asks(board: Board) -> dict[str, Ask]:
    """Return who says in which memories kernels need their operands, by name of the device."""
    return {
        device: partial(backend.port_memories, board, device)
        for device, backend in apart(board).items()
        if type(backend).port_memories is not Backend.port_memories
    }


def _candidates(board: Board) -> dict[str, CandidateSource]:
    """Return what gives the sets of operations that devices run as one, by name of the device."""

    def of(device: str, backend: Backend) -> CandidateSource:
        return lambda module: backend.candidates(module, board, device)

    return {device: of(device, backend) for device, backend in apart(board).items()}


def _is_host_alone(board: Board) -> bool:
    """Return whether a host runs all, in memory without bound."""
    return len(board.devices) == 1 and board.memories[0].bytes is None


def _splitting(board: Board, options: PlaceOptions, threads: Mapping[str, int]) -> SplitBatchOptions:
    """Return whether batches are split: not where memory is promised, or the machine makes batches itself."""
    stays_whole = options.whole_batches or options.batch or bool(options.budget)
    splits = _is_host_alone(board) and not stays_whole
    return SplitBatchOptions(splits, threads=threads.get(board.host.name, 1))


def _unrolling(board: Board) -> UnrollOptions:
    """Return which loops are unrolled: those that devices take as one operation."""
    turns = {d: backend.most_turns(board, d) for d, backend in apart(board).items()}
    sources = [source for device, source in _candidates(board).items() if turns[device]]

    def taken(module: Module, context: PassContext) -> frozenset[int]:
        live = eliminate_dead.PASS.run(module, context)  # rows that nobody reads are no readers
        offered = (x for source in sources for x in source(live) or ())
        return frozenset(id(c) for x in offered if isinstance(x, Candidate) for c in x.calls)

    return UnrollOptions(max(turns.values(), default=0), taken if sources else None)


def _bytes(board: Board) -> DType | None:
    """Return the format of bytes that programs compute in, where devices take one of both."""
    taken = {d for name, b in apart(board).items() for d in b.byte_formats(board.arch_of(name))}
    return next(iter(taken)) if len(taken) == 1 else None


def _canonical(board: Board) -> frozenset[str]:
    """Return the devices whose kernels are not made of loops, or of whose code nothing is known."""
    found = {d.name: backend_of(board, d.name) for d in board.others}
    return frozenset(d for d, b in found.items() if b is None or not b.rules(board.arch_of(d)))


def _packed(board: Board, targets: Callable[[str], Target]) -> Callable[[str], Target | None]:
    """Return what gives the targets that panels are made for, asked when the first is needed."""

    @functools.cache
    def of(device: str) -> Target | None:
        name = device or board.host.name
        backend = backend_of(board, name)
        known = name == board.host.name if backend is None else backend.reads_panels(board.arch_of(name))
        return targets(name) if known else None

    return of


def _fusing(board: Board) -> tuple[FuseOptions, FuseOptions]:
    """Return how operators are grouped, and how while it is not known where they run."""

    def joins(device: str) -> bool:
        name = device or board.host.name
        backend = backend_of(board, name)
        return name == board.host.name if backend is None else backend.joins_attention(board.arch_of(name))

    everywhere = all(joins(d.name) for d in board.devices)
    return FuseOptions(joins_attention=joins), FuseOptions(joins_attention=lambda _: everywhere)


def meanings_of(operators: OperatorTable) -> Meanings:
    """Return the meanings of operators as the evaluator wants them."""
    return lambda op, attrs, args: operators.definition(op).evaluate(attrs, *args)


def check_code(module: Module, board: Board) -> None:
    """Refuse a plan that uses devices for which no code is made here.

    Raises:
        UnsupportedError: all `target.no-generator` at once, one for each device.
    """
    counts: dict[str, Counter[str]] = {}
    spans: dict[str, Span] = {}
    for function in module.functions.values():
        calls: list[Expr] = [v for v in values(function.body) if isinstance(v, Call)]
        for e in (*function.params, *calls):
            device = None if e.place is None else board.device(e.place.device)
            if device is not None and unavailable(board, device.name):
                counts.setdefault(device.name, Counter())[_what(e)] += 1
                if e.span and not spans.get(device.name):
                    spans[device.name] = e.span
    findings = Collector()
    for device, found in counts.items():
        listed = ", ".join(f"{n} {what}" for what, n in found.most_common(4))
        findings.unsupported(
            "target.no-generator",
            f"found a plan that uses '{device}' of board '{board.name}', and no code is made for that "
            f"here: {unavailable(board, device)}",
            span=spans.get(device, NO_SPAN),
            notes=[f"there: {listed}{', ...' if len(found) > 4 else ''}"],
            hint=f"pin what is there to another device (--pin '*={board.host.name}'), or use a board "
            "without it; `inlay explain` shows the plan",
        )
    findings.raise_if_fatal()


def _what(e: Expr) -> str:
    if isinstance(e, Call) and isinstance(e.callee, OpRef):
        return e.callee.op.name
    return "values"
