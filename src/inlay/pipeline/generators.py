"""What no code is made of on each device, so that planning knows it and nothing fails behind it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from functools import partial

from inlay.base.diagnostics import CompileError, unsupported
from inlay.codegen.backend_table import backend_of, unavailable
from inlay.codegen.interface import Backend
from inlay.ir.expr import Call, OpRef
from inlay.loop.func import LoopFunction
from inlay.machine.board import Board
from inlay.ops._define import FusionPattern, OpDef
from inlay.ops.table import OperatorTable
from inlay.pipeline.lowering import Lowering
from inlay.placement.infer.capability import Refuse
from inlay.transforms.fuse_ops import kernel_of


def generators(operators: OperatorTable, board: Board) -> Mapping[str, Refuse]:
    """Return for each device, by name, what gives the reason why no code is made of an operation.

    Devices for which no code is made here are planned with by what the board says of them.

    Args:
        operators: that there are.
        board: as programs run on it.
    """
    by_arch: dict[Hashable, Refuse] = {}
    found: dict[str, Refuse] = {}
    for d in board.devices:
        backend = None if unavailable(board, d.name) else backend_of(board, d.name)
        if backend is None or type(backend).refuse is Backend.refuse:
            found[d.name] = _nothing
            continue
        key = (d.arch, board.stack_of(d.name))  # devices that are alike refuse the same
        if key not in by_arch:
            by_arch[key] = _refuse(operators, board, d.name, backend)
        found[d.name] = by_arch[key]
    return found


def _nothing(_call: Call) -> str:
    return ""


def _refuse(operators: OperatorTable, board: Board, device: str, backend: Backend) -> Refuse:
    """Return what asks a back end about operators one by one, about equal calls once."""
    known: dict[Hashable, str] = {}

    def refuse(call: Call) -> str:
        if not isinstance(call.callee, OpRef):
            return ""
        definition = operators.definition(call.callee.op)
        is_view = call.callee.op.alias is not None
        if is_view or definition.pattern is FusionPattern.CONTROL or definition.foreign is not None:
            return ""  # the planner knows: these are no kernels
        types = tuple(a.type for a in call.args)
        key = (definition.name, _hashable(call.callee.attrs), types, call.type)
        if key not in known:
            lowered = _lowered(operators, board, device, backend, definition, call)
            try:
                known[key] = backend.refuse(board, device, call, lowered)
            except CompileError as failure:
                known[key] = failure.diagnostics[0].message
        return known[key]

    return refuse


def _lowered(
    operators: OperatorTable, board: Board, device: str, backend: Backend, definition: OpDef, call: Call
) -> Callable[[], LoopFunction]:
    """Return what lowers an operator as a kernel alone."""

    def run() -> LoopFunction:
        if definition.compute is None and definition.loops is None:
            raise unsupported("loop.no-rule", f"there are no loops of {definition.name}")
        lowering = Lowering(operators, board, backend, partial(backend.target, board), device)
        return lowering(kernel_of(call, definition), definition.name, None).loops

    return run


def _hashable(attrs: object) -> Hashable:
    try:
        hash(attrs)
    except TypeError:
        return id(attrs)
    return attrs
