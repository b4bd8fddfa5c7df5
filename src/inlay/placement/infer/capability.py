"""Which devices of a board can run an operation, and why the others cannot."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from inlay.arith.dtype import DType
from inlay.ir.expr import Call, OpRef
from inlay.ir.op import OpTable
from inlay.ir.types import AdtType, ExistsType, TensorType, TupleType, Type
from inlay.machine.board import Board
from inlay.machine.device import Device
from inlay.ops._define import FusionPattern, OpDef
from inlay.ops.memory import IN_ANY_MEMORY
from inlay.ops.table import OperatorTable
from inlay.placement.infer.instance import Capability

Refuse = Callable[[Call], str]
"""Gives the reason why no kernel is made of an operation for one device, or ""."""


def capability_of(
    board: Board, operators: OpTable, generators: Mapping[str, Refuse] | None = None
) -> Capability:
    """Return what the architectures of a board say of operators and element types.

    What works on unboxed values is run by the virtual machine, so by the host; so are strings. Storage
    it makes in any memory, so that is where the memory is.

    Args:
        board: the machine.
        operators: knows which operators work on unboxed values.
        generators: for each device, by name, what gives the reason why no code is made; None where
            none is to be made.
    """
    known: dict[tuple[object, ...], Mapping[str, str]] = {}
    table = operators if isinstance(operators, OperatorTable) else None

    def refusals(call: Call) -> Mapping[str, str]:
        if not isinstance(call.callee, OpRef):
            return {}
        op = call.callee.op
        dtypes = tuple(dict.fromkeys(_dtypes([*(a.type for a in call.args), call.type])))
        key = (op.name, *(d.name for d in dtypes))
        if key not in known:
            definition = None if table is None else table.definition(op)
            found = {
                d.name: reason
                for d in board.devices
                if (reason := _refusal(board, d, op.name, definition, dtypes))
            }
            known[key] = found
        # What is in a region was chosen with others, which a device may take without taking each.
        taken = call.place.device if call.place is not None and call.place.region else ""
        found = known[key]
        if generators is not None:
            made = {name: refuse(call) for name, refuse in generators.items()}
            found = {d: reason for d, r in made.items() if (reason := found.get(d) or r)}
        return {d: reason for d, reason in found.items() if d != taken} if taken in found else found

    return refusals


def _refusal(
    board: Board, device: Device, name: str, definition: OpDef | None, dtypes: tuple[DType, ...]
) -> str:
    arch, host = board.arch_of(device.name), board.host
    if device is not host:
        if any(d.is_host_only for d in dtypes):
            return f"strings are on {host.name} alone"
        made = definition is not None and definition.op in IN_ANY_MEMORY
        if definition is not None and definition.pattern is FusionPattern.CONTROL and not made:
            return f"the virtual machine runs {name}, and that is on {host.name}"
        if definition is not None and definition.foreign is not None:
            return f"the code of {name} comes from outside, and {host.name} calls it"
    form = "" if definition is None else definition.form_of
    if arch.operators is not None and name not in arch.operators and form not in arch.operators:
        return f"{arch.name} has no {form or name}"
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
