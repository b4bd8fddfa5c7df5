"""`--require DEVICE`: a plan in which nothing falls back to another device, or the list of what does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from inlay.analysis.blocks import values
from inlay.base.diagnostics import Collector, unsupported
from inlay.base.registry import suggestion
from inlay.base.span import NO_SPAN, Span
from inlay.ir.expr import Call, OpRef
from inlay.ir.module import Module
from inlay.machine.board import Board
from inlay.ops._define import FusionPattern
from inlay.ops.device import DEVICE_COPY
from inlay.ops.table import OperatorTable


def check_required(module: Module, board: Board, required: Sequence[str], operators: OperatorTable) -> None:
    """Refuse a plan in which an operation is on no device that was required.

    What is no kernel (views, control values, copies between memories) may be anywhere.

    Raises:
        CompileError: `name.unknown` for devices that the board does not have.
        UnsupportedError: `placement.fallback`.
    """
    findings = Collector()
    known = [d.name for d in board.devices]
    for name in required:
        if name not in known:
            hint = suggestion(name, known, f"the board has {', '.join(known)}")
            findings.error("name.unknown", f"found no device named '{name}'", hint=hint)
    findings.raise_if_fatal()
    counts: dict[str, Counter[str]] = {}
    first: dict[str, Span] = {}
    for function in module.functions.values() if required else ():
        for call in (v for v in values(function.body) if isinstance(v, Call)):
            device = board.host.name if call.place is None else call.place.device
            if (
                device not in required
                and isinstance(call.callee, OpRef)
                and _is_kernel(call.callee, operators)
            ):
                definition = operators.definition(call.callee.op)
                counts.setdefault(device, Counter())[definition.form_of or definition.name] += 1
                first.setdefault(device, call.span)
    if counts:
        listed = "; ".join(
            f"on {device} {', '.join(f'{n} {what}' for what, n in found.most_common(6))}"
            for device, found in counts.items()
        )
        raise unsupported(
            "placement.fallback",
            f"found operations on devices that are not required ({', '.join(required)} alone): {listed}",
            span=next(iter(first.values()), NO_SPAN),
            hint="`inlay explain --all` says why; --pin puts an operation where it can be",
        )


def _is_kernel(callee: OpRef, operators: OperatorTable) -> bool:
    definition = operators.definition(callee.op)
    is_copy = callee.op is DEVICE_COPY
    return not is_copy and callee.op.alias is None and definition.pattern is not FusionPattern.CONTROL
