"""What became of quantized operations: which are computed in integers, which stay float, and why: as data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from inlay.analysis.blocks import definitions, nested, operands, values
from inlay.arith.dtype import BOOL
from inlay.base.span import Span
from inlay.ir.expr import Call, Const, Expr, Function, OpRef, Var
from inlay.ir.op import Effect
from inlay.ir.types import TensorType


@dataclass(frozen=True, slots=True)
class InIntegers:
    """An operation that is computed in integers.

    Attributes:
        operator: that the model has: a product, or a quantize and what is rounded there.
        value: its name.
        span: where it comes from.
        became: the operators that compute it, in order.
        low, high: ends of the accumulator; both 0 where there is none.
    """

    operator: str
    value: str
    span: Span
    became: tuple[str, ...]
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class InFloats:
    """An operation between a dequantize and a quantize that stays float.

    Attributes:
        operator, value, span: as of `InIntegers`.
        reason: as a kebab word that reports group by.
        message: the same for people.
    """

    operator: str
    value: str
    span: Span
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Numerics:
    """What became of the quantized operations of a function.

    Attributes:
        function: its name.
        integers: operations that are computed in integers, in program order.
        floats: those that stay float between a dequantize and a quantize.
    """

    function: str
    integers: tuple[InIntegers, ...]
    floats: tuple[InFloats, ...]


class Reason(NamedTuple):
    """Why an operation stays float: `reason` and `message` as of `StaysFloat`, which keeps frames alive."""

    reason: str
    message: str


BESIDE = Reason("beside", "it reads or is read by what stays float")
ASKED = Reason("asked", "floats were asked for")


def in_floats(
    function: Function, reasons: Mapping[Var, Reason], others: Reason = BESIDE
) -> Iterator[InFloats]:
    """Yield the operations between a dequantize and a quantize that stay float, in program order.

    Cost: linear.

    Args:
        function: with all in integers that is computed so.
        reasons: why values stay float.
        others: why those do of which nothing is known.
    """
    made = definitions(function.body)
    below, above, live = _below(made), _above(made), _live(function.body, made)
    for var, value in made.items():
        name = _operator(value)
        if name in ("", "quantize", "dequantize") or not (var in below and var in above and var in live):
            continue
        why = reasons.get(var, others)
        yield InFloats(name, var.name, value.span, why.reason, why.message)


def _operator(value: Expr) -> str:
    return value.callee.op.name if isinstance(value, Call) and isinstance(value.callee, OpRef) else ""


def _below(made: dict[Var, Expr]) -> set[Expr]:
    """Return reals that depend on what is dequantized while the program runs."""
    found: set[Expr] = set()
    for var, value in made.items():
        name, given = _operator(value), operands(value)
        if name == "dequantize":
            if not isinstance(given[1], Const):
                found.add(var)
        elif name != "quantize" and _is_real(var) and any(a in found for a in given):
            found.add(var)
    return found


def _above(made: dict[Var, Expr]) -> set[Expr]:
    """Return what is quantized, or goes into it."""
    found: set[Expr] = set()
    for var, value in reversed(made.items()):
        name, given = _operator(value), operands(value)
        if name == "quantize":
            found.add(given[1])
        elif name != "dequantize" and var in found:
            found.update(given)
    return found


def _live(body: Expr, made: dict[Var, Expr]) -> set[Expr]:
    """Return the variables that are read in the end."""
    bound = {id(v) for v in made.values()}
    pending: list[Expr] = []
    for value in values(body):
        if id(value) not in bound or nested(value) or not _is_pure(value):
            pending.extend((value, *operands(value)))
    found: set[Expr] = set()
    while pending:
        at = pending.pop()
        if isinstance(at, Var) and at not in found:
            found.add(at)
            value = made.get(at)
            if value is not None:
                pending.extend(operands(value))
    return found


def _is_pure(value: Expr) -> bool:
    return (
        isinstance(value, Call) and isinstance(value.callee, OpRef) and value.callee.op.effect is Effect.PURE
    )


def _is_real(var: Var) -> bool:
    return isinstance(var.type, TensorType) and (var.type.dtype.is_float or var.type.dtype is BOOL)
