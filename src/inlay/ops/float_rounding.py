"""Requantization by floats: what a kernel computes instead of `requantize` where results are the same.

    result = clamp(round(fma(f32(accumulator), scale, offset)), low, high)

Ties go to even. `offset` holds the zero point, and what roundings of integers do to ties. A `step`, where
there is one, is added to it for accumulators below zero, or below a `pivot`. A vector unit takes three
instructions, where a multiplier of 31 bits needs products of 64 bits. Whoever makes one proves that it gives
the results of what it stands for (`analysis/float_roundings.py`).

    result = clamp(round(fma(f32(a), x, fma(f32(b), y, offset))), low, high)

stands for what requantizes the sum of two tensors of bytes: it is compared with that on all pairs of bytes.

Accumulators may be whole numbers in f32, and so is the pivot then.

Scales are from 0 to 2^-2 and multiples of 2^-45; offsets are below 2^9 and multiples of 2^-30. So i32 holds
all, and sums in f64 are exact that are not clamped anyway: rounding them to f32 is the rounding of `fma`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from inlay.arith.dtype import F32, I8, I32, U8, DType
from inlay.arith.expr import Int
from inlay.ir.op import TypeContext
from inlay.ir.types import TensorType
from inlay.loop import te
from inlay.loop.scalar import IntrinsicOp, UnaryOp
from inlay.ops import _rules as rules
from inlay.ops._build import Array
from inlay.ops._define import FusionPattern, OpDef, Sample, define
from inlay.ops._rules import Types
from inlay.ops._samples import noise
from inlay.ops.quantized import along, at_axis, per_axis

MOST_SCALE = 2.0**-2
"""Scales are at most this."""
SCALE_STEP = 2.0**-45
"""Scales are multiples of this."""
OFFSET_STEP = 2.0**-30
"""Offsets are multiples of this."""
MOST_OFFSET = 2.0**9
"""Offsets are below this."""

MOST_FACTOR, MOST_SUM = 2.0**8, 2.0**16
"""Factors and offsets of sums are at most these."""
BYTES = (I8, U8)
_RANGES = ((I8, -128), (U8, 0))
_CONSTANTS = ("the scale", "the offset", "the step", "the pivot")


@dataclass(frozen=True, slots=True)
class FloatSumAttrs:
    """Factors `x` and `y` of operands, and `offset`, of f32; `dtype` of the result, `low` and `high` ends."""

    x: float
    y: float
    offset: float
    dtype: DType = I8
    low: int = -128
    high: int = 127


@dataclass(frozen=True, slots=True)
class FloatRoundingAttrs:
    """`dtype` of the result, `low` and `high` ends; `axis` of the operands."""

    dtype: DType = I8
    low: int = -128
    high: int = 127
    axis: int = 1


def _rule(ctx: TypeContext, a: FloatRoundingAttrs, args: Types) -> TensorType:
    x = rules.tensor(ctx, args, 0, (I32, F32))
    for i, what in enumerate(_CONSTANTS[: len(args) - 1], 1):
        dtype = x.dtype if i == len(_CONSTANTS) else F32
        per_axis(ctx, rules.tensor(ctx, args, i, (dtype,)), x, a.axis, what)
    return _bytes(ctx, a, x.shape)


def _bytes(ctx: TypeContext, a: FloatRoundingAttrs | FloatSumAttrs, shape: Sequence[Int]) -> TensorType:
    """Return the type of results, which are bytes between ends that are bytes."""
    if a.dtype not in BYTES:
        raise ctx.fail(f"cannot requantize to {a.dtype}", id="type.dtype-mismatch")
    info = np.iinfo(a.dtype.numpy)
    if not info.min <= a.low <= a.high <= info.max:
        raise ctx.fail(f"found the ends {a.low} and {a.high}, needed ends in order that {a.dtype} holds")
    return TensorType(tuple(shape), a.dtype)


def rounded(a: FloatRoundingAttrs, x: Array, *constants: Array) -> Array:
    """Return the meaning on arrays: accumulators, and constants that are one or one for each channel."""
    scale, offset, *step = (along(e, x.ndim, a.axis) for e in constants)
    if step:
        offset = offset + np.where(x < (step[1] if step[1:] else 0), step[0], np.float32(0))
    v = (x.astype(np.float32) * scale.astype(np.float64) + offset.astype(np.float64)).astype(np.float32)
    return np.clip(np.rint(v), a.low, a.high).astype(a.dtype.numpy)


def _compute(a: FloatRoundingAttrs, operands: Sequence[te.Tensor], result: TensorType) -> te.Tensor:
    x, *constants = operands

    def body(*i: Int) -> te.ScalarValue:
        scale, offset, *step = (at_axis(e, i, a.axis) for e in constants)
        if step:  # what is chosen is loaded under a mask, so one load is chosen and not two
            offset = offset + te.select(x[i] < (step[1] if step[1:] else 0), step[0], 0.0)
        return _clamped(a, te.intrinsic(IntrinsicOp.FMA, x[i].cast(F32), scale, offset))

    return te.compute(result.shape, body, name="requantize")


def _clamped(a: FloatRoundingAttrs | FloatSumAttrs, v: te.ScalarValue) -> te.ScalarValue:
    whole = te.unary(UnaryOp.ROUND_EVEN, v).cast(I32)
    return te.minimum(te.maximum(whole, a.low), a.high).cast(a.dtype)


# --------------------------------------------------------------------------- sums


def _sum_rule(ctx: TypeContext, a: FloatSumAttrs, args: Types) -> TensorType:
    first, second = (rules.tensor(ctx, args, i, BYTES) for i in (0, 1))
    rules.same_shape(ctx, second, first.shape, "the second operand")
    for what, value, most in (
        ("x", a.x, MOST_FACTOR),
        ("y", a.y, MOST_FACTOR),
        ("offset", a.offset, MOST_SUM),
    ):
        if not (abs(value) <= most and float(np.float32(value)) == value):
            raise ctx.fail(f"found {what} {value}, needed a number of f32 from {-most} to {most}")
    return _bytes(ctx, a, first.shape)


def summed(a: FloatSumAttrs, x: Array, y: Array) -> Array:
    """Return the meaning of sums on arrays."""
    inner = (y * np.float64(a.y) + np.float64(a.offset)).astype(np.float32)
    v = (x * np.float64(a.x) + inner.astype(np.float64)).astype(np.float32)
    return np.clip(np.rint(v), a.low, a.high).astype(a.dtype.numpy)


def _sum_compute(a: FloatSumAttrs, operands: Sequence[te.Tensor], result: TensorType) -> te.Tensor:
    x, y = operands

    def body(*i: Int) -> te.ScalarValue:
        inner = te.intrinsic(IntrinsicOp.FMA, y[i].cast(F32), te.const(a.y, F32), te.const(a.offset, F32))
        return _clamped(a, te.intrinsic(IntrinsicOp.FMA, x[i].cast(F32), te.const(a.x, F32), inner))

    return te.compute(result.shape, body, name="sum")


def _samples() -> list[Sample]:
    x = noise((2, 3, 5), I32, low=-(2**31), high=2**31 - 1, seed="floats")
    few = noise((2, 3, 5), I32, low=-40000, high=40000, seed="few floats")
    scale = np.array([2.0**-20, 0.0031, 0.25], np.float32)
    offset = np.array([0.25, -128 + 2.0**-9, 3.5], np.float32)
    step = np.array([-0.5, -(2.0**-8), 2.0**-30], np.float32)
    pivot = np.array([-77, 0, 20000], np.int32)
    dims = (("a", "b", "c"), ("b",), ("b",), ("b",), ("b",))
    one = [np.asarray(v, np.float32) for v in (0.0017, 2.0**-8, -(2.0**-7))]
    return [
        Sample("any accumulators", FloatRoundingAttrs(), (x, scale, offset, step), dims[:4]),
        Sample("with a pivot", FloatRoundingAttrs(U8, 0, 255), (few, scale, offset, step, pivot), dims),
        Sample("per channel", FloatRoundingAttrs(U8, 3, 250), (few, scale, offset), dims[:3]),
        Sample("in floats", FloatRoundingAttrs(), (few.astype(np.float32), scale, offset, step), dims[:4]),
        Sample("one", FloatRoundingAttrs(I8, -100, 90), (few, *one)),
    ]


def _sum_samples() -> list[Sample]:
    x, y = (noise((2, 3, 5), dtype, low=low, high=low + 255, seed=str(dtype)) for dtype, low in _RANGES)
    dims = (("a", "b", "c"), ("a", "b", "c"))
    third = float(np.float32(1 / 3))
    return [
        Sample("of two formats", FloatSumAttrs(third, 0.75, -3.5), (x, y), dims),
        Sample("a difference", FloatSumAttrs(0.5, -third, 100.25, U8, 3, 250), (y, y), dims),
    ]


DEFINITIONS: tuple[OpDef, ...] = (
    define(
        "requantize_by_floats",
        FloatRoundingAttrs,
        _rule,
        (3, 5),
        FusionPattern.BROADCAST,
        "requantize by a product and a sum of floats, rounded to an integer, where that gives the same",
        reference=rounded,
        compute=_compute,
        samples=_samples,
        form_of="requantize",
    ),
    define(
        "add_by_floats",
        FloatSumAttrs,
        _sum_rule,
        2,
        FusionPattern.ELEMENTWISE,
        "a sum of bytes times factors, rounded to an integer, where that is what requantizes a sum",
        reference=summed,
        compute=_sum_compute,
        samples=_sum_samples,
        form_of="requantize",
    ),
)
