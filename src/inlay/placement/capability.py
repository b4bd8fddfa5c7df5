"""Which devices of a board can run an operation, and why the others cannot."""

from __future__ import annotations

from collections.abc import Mapping

from inlay.arith.dtype import DType
from inlay.ir.expr import Call, OpRef
from inlay.ir.op import OpTable
from inlay.ir.types import AdtType, ExistsType, TensorType, TupleType, Type
from inlay.machine.board import Board
from inlay.machine.device import Device
from inlay.ops._define import Pattern
from inlay.ops.table import OperatorTable
from inlay.placement._instance import Capability


def capability_of(
    board: Board, operators: OpTable, generators: frozenset[str] | None = None
) -> Capability:
    """Return what the architectures of a board say of operators and element types.

    What works on unboxed values is run by the virtual machine, so by the host; so are strings.

    Args:
        board: the machine.
        operators: knows which operators work on unboxed values.
        generators: names of the code generators there are; None where no code is to be made.
    """
    known: dict[tuple[object, ...], Mapping[str, str]] = {}

    def refusals(call: Call) -> Mapping[str, str]:
        if not isinstance(call.callee, OpRef):
            return {}
        op = call.callee.op
        dtypes = tuple(dict.fromkeys(_dtypes([*(a.type for a in call.args), call.type])))
        key = (op.name, *(d.name for d in dtypes))
        if key not in known:
            is_control = (
                isinstance(operators, OperatorTable)
                and operators.definition(op).pattern is Pattern.CONTROL
            )
            found = {
                d.name: reason
                for d in board.devices
                if (reason := _refusal(board, d, op.name, dtypes, generators, is_control=is_control))
            }
            known[key] = found
        return known[key]

    return refusals


def _refusal(
    board: Board, device: Device, name: str, dtypes: tuple[DType, ...],
    generators: frozenset[str] | None, *, is_control: bool,
) -> str:  # fmt: skip
    arch = board.arch_of(device.name)
    if device is not board.host and any(d.is_host_only for d in dtypes):
        return f"strings are on {board.host.name} alone"
    if generators is not None and arch.generator not in generators:
        return f"no code generator here makes code for {arch.name}"
    if device is not board.host:
        if is_control:
            return f"the virtual machine runs {name}, and that is on {board.host.name}"
    if arch.operators is not None and name not in arch.operators:
        return f"{arch.name} has no {name}"
    if arch.dtypes is not None:
        missing = [d.name for d in dtypes if d.name not in arch.dtypes]
        if missing:
            return f"{arch.name} does not handle {', '.join(missing)}"
    return ""


def _dtypes(types: list[Type]) -> list[DType]:
    found: list[DType] = []
    for t in types:
        match t:
            case TensorType(dtype=dtype):
                found.append(dtype)
            case TupleType(fields=parts) | AdtType(args=parts):
                found.extend(_dtypes(list(parts)))
            case ExistsType(body=body):
                found.extend(_dtypes([body]))
            case _:
                pass
    return found
