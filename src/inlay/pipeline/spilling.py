"""What moving values needs of the machine: ways between memories, kernels that copy, predicted times.

A way leads from a memory of a fixed size over one link to another memory, and one leads back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from inlay.analysis.blocks import spine
from inlay.arith.expr import Sym
from inlay.base.named_sizes import named_sizes
from inlay.ir import make
from inlay.ir.expr import Call, Function, OpRef, Var
from inlay.ir.kernel import Kernel
from inlay.ir.place import Place
from inlay.ir.types import TensorType
from inlay.ir.walk import bound_symbols, copy
from inlay.machine.board import Board
from inlay.machine.device import Link
from inlay.machine.memory import PoolKind
from inlay.memory.spill_spine import Way
from inlay.memory.spill_values import SpillOptions
from inlay.ops.device import DEVICE_COPY, CopyAttrs, copy_in
from inlay.ops.table import OperatorTable
from inlay.pipeline.build_kernels import BuildOptions, LoopBody, build_kernel
from inlay.placement.choose.calibration import calibrated, read_measured
from inlay.placement.choose.costs import Costs, Predictor, Step
from inlay.placement.plan_places import PlanOptions


def spill_options(
    board: Board, operators: OperatorTable, building: BuildOptions, planning: PlanOptions
) -> SpillOptions:
    """Return how values move on a board.

    Args:
        board: as programs run on it.
        operators: that there are.
        building: how kernels are made.
        planning: what places were planned with, for predictions.
    """
    ways = ways_of(board)
    measured = read_measured(planning.calibration)
    board = calibrated(board, measured)
    costs = Costs(planning.hooks or {}, measured, threads=planning.threads or {})
    sizes = named_sizes(planning.typical)

    def copied(name: str, t: TensorType, way: Way) -> Kernel:
        return build_kernel(name, _copy_function(name, t, way), operators, building, moves=True)

    def time(kernel: Kernel, device: str) -> tuple[float, bool]:
        return _time(kernel, device or board.host.name, board, operators, costs, sizes)

    return SpillOptions(ways, copied, time)


def ways_of(board: Board) -> dict[str, tuple[tuple[Way, Way], ...]]:
    """Return the ways out of memories of a fixed size, and back, the fastest first."""
    found: dict[str, tuple[tuple[Way, Way], ...]] = {}
    for memory in board.memories:
        if memory.kind is not PoolKind.STATIC:
            continue
        pairs: list[tuple[Way, Way]] = []
        for other in board.memories:
            out = _way(board, memory.name, other.name)
            back = _way(board, other.name, memory.name)
            if out and back and other.kind in (PoolKind.HEAP, PoolKind.STATIC):
                pairs.append((out, back))
        if pairs:
            found[memory.name] = tuple(sorted(pairs, key=lambda p: p[0].ns(_USUAL) + p[1].ns(_USUAL)))
    return found


_USUAL = 1 << 16
"""Bytes of a copy by which ways are compared."""


def _way(board: Board, source: str, target: str) -> Way | None:
    links = [x for x in board.links if (x.source, x.target) == (source, target)]
    if not links:
        return None
    link = min(links, key=lambda x: x.latency_ns + _USUAL / x.bytes_per_ns)
    engine = next(e for e in board.engines if e.name == link.engine)
    device = board.owner_of(target)
    origin, per_byte = board.owner_of(source), 1 / link.bytes_per_ns
    return Way(source, target, engine.name, bool(engine.device), origin, device, link.latency_ns, per_byte)


def _copy_function(name: str, t: TensorType, way: Way) -> Function:
    x = make.var("x", t, place=Place(way.origin, (way.source,)))
    place = Place(way.device, (way.target,))
    attrs = CopyAttrs(way.origin, way.device, way.source, way.target, way.engine)
    moved = make.call(DEVICE_COPY, (x,), attrs, place=place)
    return cast("Function", copy(make.function((x,), moved, place=place, primitive=name)))


def _time(
    kernel: Kernel,
    device: str,
    board: Board,
    operators: OperatorTable,
    costs: Costs,
    sizes: Mapping[str, int],
) -> tuple[float, bool]:
    """Return the predicted time of a kernel, and whether it is a copy."""
    if not isinstance(kernel.body, LoopBody):
        return float((kernel.cost_ns and kernel.cost_ns.value) or 0), False
    function = kernel.body.function
    dims: dict[Sym, int] = {s: sizes[s.name] for s in bound_symbols(function) if s.name in sizes}
    predictor = Predictor(board, operators, costs, dims)
    steps = _steps(function)
    attrs = copy_in(function)
    if attrs is None:
        return (predictor.kernel(steps, device) if steps else 0.0), False
    links = _links(board, attrs)
    size = predictor.traffic(steps) / 2
    return sum(x.latency_ns + size / x.bytes_per_ns for x in links), bool(links)


def _links(board: Board, attrs: CopyAttrs) -> Sequence[Link]:
    sources = (attrs.src_memory,) if attrs.src_memory else board.writable(attrs.src)
    targets = (attrs.dst_memory,) if attrs.dst_memory else board.writable(attrs.dst)
    return board.routes(sources, targets)


def _steps(function: Function) -> list[Step]:
    lets, tail = spine(function.body)
    found: list[tuple[Var | None, object]] = [(let.var, let.value) for let in lets]
    found.append((None, tail))
    return [(v, e) for v, e in found if isinstance(e, Call) and isinstance(e.callee, OpRef)]
