"""What each code generator makes no code for, so that planning knows it and nothing fails behind it."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

from inlay.base.diagnostics import CompileError
from inlay.codegen.opencl import unsupported_reason
from inlay.ir.expr import Call, OpRef
from inlay.lower.lower import lower
from inlay.lower.ops_to_loops import ops_to_loops
from inlay.machine.board import Board
from inlay.machine.device import Arch
from inlay.ops._define import Pattern
from inlay.ops.table import OperatorTable
from inlay.pipeline.devices import OPENCL, opencl_target, rules_of, unmade
from inlay.placement.infer.capability import Refuse
from inlay.schedule.choose import schedule_function
from inlay.transforms.fuse_ops import kernel_of


def generators(operators: OperatorTable, board: Board) -> Mapping[str, Refuse]:
    """Return for each device, by name, what gives the reason why no code is made of an operation.

    Devices for which no code is made here are planned with by what the board says of them.

    Args:
        operators: that there are.
        board: as programs run on it.
    """
    opencl = _OpenCl(operators)

    def of(device: str) -> Refuse:
        arch = board.arch_of(device)
        if arch.generator == OPENCL and not unmade(board, device):
            return lambda call: opencl.refuse(call, arch)
        return lambda call: ""

    return {d.name: of(d.name) for d in board.devices}


@dataclass(frozen=True, slots=True)
class _OpenCl:
    """Asks the generator of OpenCL C about operators one by one: each is lowered as a kernel alone.

    Calls of the same operator on the same types are lowered once, in milliseconds.
    """

    operators: OperatorTable
    known: dict[Hashable, str] = field(default_factory=dict[Hashable, str])

    def refuse(self, call: Call, arch: Arch) -> str:
        """Return why no kernel is made of an operation, or nothing."""
        if not isinstance(call.callee, OpRef):
            return ""
        definition = self.operators.definition(call.callee.op)
        is_view = call.callee.op.alias is not None
        if is_view or definition.pattern is Pattern.CONTROL or definition.foreign is not None:
            return ""  # the planner knows: these are no kernels
        types = tuple(a.type for a in call.args)
        attrs = call.callee.attrs
        key = (arch.name, definition.name, _hashable(attrs), types, call.type)
        if key not in self.known:
            self.known[key] = self._asked(call, arch)
        return self.known[key]

    def _asked(self, call: Call, arch: Arch) -> str:
        assert isinstance(call.callee, OpRef), "only operators are asked about"
        definition = self.operators.definition(call.callee.op)
        if definition.compute is None and definition.loops is None:
            return f"{arch.generator} has no code for {definition.name}"
        try:
            loops = ops_to_loops(
                kernel_of(call, definition), self.operators.definition, definition.name,
                in_place=False,
            )  # fmt: skip
            target = opencl_target(arch)
            lowered = lower(schedule_function(loops, target, rules_of(arch)), target)
        except CompileError as failure:
            return failure.diagnostics[0].message
        return unsupported_reason(lowered, target)


def _hashable(attrs: object) -> Hashable:
    try:
        hash(attrs)
    except TypeError:
        return id(attrs)
    return attrs
