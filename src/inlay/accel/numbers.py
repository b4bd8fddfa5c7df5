"""Arithmetic that bodies of instructions share with programs: so that what both mean can be held together."""

from __future__ import annotations

from inlay.arith.dtype import F32, I32, I64
from inlay.arith.expr import Int
from inlay.loop import te
from inlay.loop.scalar import UnaryOp
from inlay.loop.te import ScalarValue
from inlay.ops.requantization import WIDEST, RequantizeAttrs, Rounding, scaled

Number = ScalarValue | Int | int


def rescale(x: ScalarValue, mul: ScalarValue, shift: ScalarValue, *, rounding: str) -> ScalarValue:
    """Return `x * mul / 2**(31 - shift)`, rounded, as `requantize` of the tensor IR does with integers.

    Args:
        x: of i32.
        mul: of i32, not negative.
        shift: to the left where it is positive.
        rounding: `tflite`, `half_even`, `half_up`, `half_away`.
    """
    attrs = RequantizeAttrs(I32, rounding=Rounding(rounding))
    return scaled(attrs, x.cast(I32), mul.cast(I32), shift.cast(I32))


def requantize(
    x: ScalarValue,
    mul: ScalarValue,
    shift: ScalarValue,
    zero: Number,
    low: Number,
    high: Number,
    *,
    rounding: str,
) -> ScalarValue:
    """Return `rescale` of a sum, with a zero point added and clamped; nothing overflows on the way."""
    whole = rescale(x, mul, shift, rounding=rounding).cast(I64) + wide(zero)
    return te.minimum(te.maximum(whole, wide(low)), wide(high))


def requantize_float(
    x: ScalarValue, scale: ScalarValue, zero: Number, low: Number, high: Number
) -> ScalarValue:
    """Return a sum times a float, in f32, with ties to even; then as `requantize`."""
    product = te.minimum(te.maximum(x.cast(F32) * scale, -float(WIDEST)), float(WIDEST))
    whole = te.unary(UnaryOp.ROUND_EVEN, product).cast(I32).cast(I64) + wide(zero)
    return te.minimum(te.maximum(whole, wide(low)), wide(high))


def minimum(x: ScalarValue, y: ScalarValue | float) -> ScalarValue:
    """Return the smaller of two numbers."""
    return te.minimum(x, y)


def maximum(x: ScalarValue, y: ScalarValue | float) -> ScalarValue:
    """Return the larger of two numbers."""
    return te.maximum(x, y)


def where(condition: ScalarValue, x: ScalarValue | float, y: ScalarValue | float) -> ScalarValue:
    """Return one of two numbers: `x` where a comparison of elements holds."""
    return te.select(condition, x, y)


def wide(x: Number) -> ScalarValue:
    """Return a number as an i64."""
    match x:
        case ScalarValue():
            return x.cast(I64)
        case Int():
            return te.index(x)
        case _:
            return te.const(x, I64)
