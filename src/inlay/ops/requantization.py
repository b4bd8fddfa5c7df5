"""Requantization: sums of integer products as narrow integers, with one scale or one for each channel.

    result = clamp(zero + round(accumulator * factor), low, high)

**The factor** is written in one of two ways, which the operands tell apart:

* `(accumulator, scale)`: a float. The accumulator is converted to f32 and multiplied in f32, as ONNX's
  QLinear operators and a quantize behind a dequantize mean it. Ties go to even or away from zero. What is
  no number becomes the greatest result.
* `(accumulator, multiplier, shift)`: `multiplier / 2**bits * 2**shift`, as TFLite and most accelerators
  have it. The multiplier is not negative; the distance `bits - shift` is from 0 to 62. The product is
  exact in 64 bits and rounded once, but for the rounding `tflite`.

**Roundings** of a quotient by a power of two: ties to even, up, or away from zero; `tflite` is the pair of
roundings of the reference kernels: the accumulator, shifted left where the shift is positive (it wraps in
i32), times the multiplier by `2**bits` with ties up, and then by `2**-shift` with ties away from zero.
Their doubling high product adds a nudge that depends on the sign, and truncates: that is ties up in other
words. `analysis/roundings.py` decides which of them agree on the accumulators that can occur.

Source: Jacob et al., Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only
Inference, section 2.2; the TFLite 8-bit quantization specification; ONNX QLinearConv, QuantizeLinear.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from inlay.arith.dtype import F32, I8, I16, I32, I64, U8, U16, DType
from inlay.arith.expr import Int
from inlay.ir.op import TypeContext
from inlay.ir.types import TensorType
from inlay.loop import te
from inlay.loop.scalar import UnaryOp
from inlay.ops import _rules as rules
from inlay.ops._build import Array
from inlay.ops._define import FusionPattern, OpDef, Sample, define
from inlay.ops._rules import Types
from inlay.ops._samples import noise
from inlay.ops.quantized import along, at_axis, per_axis

RESULTS: tuple[DType, ...] = (I8, U8, I16, U16, I32)
WIDEST = 1 << 30
"""Float products are clamped to this before the zero point is added: the sum stays in i32."""
FARTHEST = 62
"""The greatest distance that products are shifted to the right."""
HALVES = 34
"""From this distance on a product is rounded within its upper half."""
_EXACT = 1 << 24
"""Every integer up to this is a float."""


class Rounding(StrEnum):
    """Which integer a quotient becomes."""

    HALF_EVEN = "half_even"
    HALF_UP = "half_up"
    HALF_AWAY = "half_away"
    TFLITE = "tflite"


@dataclass(frozen=True, slots=True)
class RequantizeAttrs:
    """What is done beside the multiplication.

    Attributes:
        dtype: of the result.
        zero: added after rounding.
        low, high: ends of the result; None = those of the type. An activation that clamps is in them.
        rounding: of the product; with a float scale ties go to even or away from zero.
        axis: of per-channel factors.
        bits: of the fraction of an integer multiplier: 31 for accumulators of 32 bits, 15 for those of 64.
        least: no distance `bits - shift` is less, as far as that is known. Passes find it, so that less is
            computed; it changes no result.
        near: products by float scales are known to be within 2^30. Passes find it: such products are rounded
            before they are clamped, which machines do while they narrow vectors. It changes no result.
    """

    dtype: DType = I8
    zero: int = 0
    low: int | None = None
    high: int | None = None
    rounding: Rounding = Rounding.HALF_EVEN
    axis: int = 1
    bits: int = 31
    least: int = 0
    near: bool = False

    def ends(self) -> tuple[int, int]:
        """Return the least and the greatest result."""
        info = np.iinfo(self.dtype.numpy)
        low = int(info.min) if self.low is None else self.low
        return low, int(info.max) if self.high is None else self.high


def _rule(ctx: TypeContext, a: RequantizeAttrs, args: Types) -> TensorType:
    x, factor = rules.tensor(ctx, args, 0, (I32, I64)), rules.tensor(ctx, args, 1, (F32, I32))
    if a.dtype not in RESULTS:
        raise ctx.fail(f"cannot requantize to {a.dtype}", id="type.dtype-mismatch")
    low, high = a.ends()
    info = np.iinfo(a.dtype.numpy)
    if not info.min <= low <= high <= info.max:
        raise ctx.fail(f"found the ends {low} and {high}, needed ends in order that {a.dtype} holds")
    if not -(1 << 30) <= a.zero <= 1 << 30:
        raise ctx.fail(f"found the zero point {a.zero}, needed one of 31 bits")
    for i in range(1, len(args)):
        per_axis(ctx, rules.tensor(ctx, args, i), x, a.axis, "the factor")
    if factor.dtype is F32:
        if len(args) > 2:
            raise ctx.fail("found a shift beside a float scale, needed one of them")
        if a.rounding not in (Rounding.HALF_EVEN, Rounding.HALF_AWAY):
            raise ctx.fail(f"found the rounding {a.rounding} of a float scale, needed half_even or half_away")
    elif a.near:
        raise ctx.fail("found near products of an integer multiplier, needed those of a float scale")
    elif len(args) < 3:
        raise ctx.fail("found a multiplier without a shift, needed both")
    else:
        rules.same_dtype(ctx, I32, rules.tensor(ctx, args, 2).dtype, "the shift")
        if not 0 <= a.least <= FARTHEST:
            raise ctx.fail(f"found the least distance {a.least}, needed 0 to {FARTHEST}")
        if not 1 <= a.bits <= 31:
            raise ctx.fail(f"found multipliers of {a.bits} bits, needed 1 to 31")
    return TensorType(x.shape, a.dtype)


# --------------------------------------------------------------------------- meaning


def divided(p: Array, distance: Array | np.int64, rounding: Rounding) -> Array:
    """Return `p / 2**distance` as integers.

    Args:
        p: of i64.
        distance: of i64, from 0 to 62.
        rounding: one that rounds once.
    """
    half = (np.int64(1) << distance) >> np.int64(1)
    if rounding is Rounding.HALF_AWAY:
        return np.sign(p) * ((np.abs(p) + half) >> distance)
    up = (p + half) >> distance
    if rounding is Rounding.HALF_UP:
        return up
    is_tie = (half != 0) & ((up << distance) - half == p)
    return up - (is_tie & ((up & 1) == 1))


def requantized(a: RequantizeAttrs, x: Array, factor: Array, *shifts: Array) -> Array:
    """Return the meaning of `requantize` on arrays."""
    low, high = a.ends()
    f = along(factor, x.ndim, a.axis)
    if not shifts:
        scaled = x.astype(np.float32) * f
        scaled = np.clip(np.where(np.isnan(scaled), np.inf, scaled), -WIDEST, WIDEST)
        rounded = np.rint(scaled) if a.rounding is Rounding.HALF_EVEN else _half_away(scaled)
        return np.clip(rounded.astype(np.int64) + a.zero, low, high).astype(a.dtype.numpy)
    shift = along(shifts[0], x.ndim, a.axis).astype(np.int64)
    m = f.astype(np.int64)
    if a.rounding is Rounding.TFLITE:
        left = np.clip(shift, 0, 31)
        wrapped = (x.astype(np.int64) << left).astype(np.int32).astype(np.int64)
        once = divided(wrapped * m, np.int64(a.bits), Rounding.HALF_UP)
        whole = divided(once, np.clip(-shift, 0, 31), Rounding.HALF_AWAY)
    else:
        whole = divided(x.astype(np.int64) * m, np.clip(a.bits - shift, 0, FARTHEST), a.rounding)
    return (np.clip(whole, low - a.zero, high - a.zero) + a.zero).astype(a.dtype.numpy)


def _half_away(x: Array) -> Array:
    whole = np.trunc(x)
    return whole + np.where(np.abs(x - whole) >= np.float32(0.5), np.sign(x), np.float32(0))


# --------------------------------------------------------------------------- computation


def _compute(a: RequantizeAttrs, operands: Sequence[te.Tensor], result: TensorType) -> te.Tensor:
    x, *factors = operands
    low, high = a.ends()

    def body(*i: Int) -> te.ScalarValue:
        factor, *shift = (at_axis(f, i, a.axis) for f in factors)
        if not shift:
            return _scaled_float(a, x[i].cast(F32) * factor)
        whole = scaled(a, x[i], factor, shift[0])
        if min(low, low - a.zero) < -(1 << 31) or max(high, high - a.zero) >= 1 << 31:
            whole = whole.cast(I64)
        return (te.minimum(te.maximum(whole, low - a.zero), high - a.zero) + a.zero).cast(a.dtype)

    return te.compute(result.shape, body, name="requantize")


def _scaled_float(a: RequantizeAttrs, x: te.ScalarValue) -> te.ScalarValue:
    """Round, move and clamp a product. Ends that are floats are met before rounding, which keeps them."""
    low, high = (end - a.zero for end in a.ends())
    is_exact = low >= -_EXACT and high <= _EXACT
    if a.near and is_exact:
        whole = _rounded_float(x, a.rounding).cast(I32)
        return (te.minimum(te.maximum(whole, low), high) + a.zero).cast(a.dtype)
    least, most = (float(low), float(high)) if is_exact else (-WIDEST, WIDEST)
    # Comparisons are instructions of their own with NaN to one side; a maximum that keeps NaN is several.
    x = te.select(x < most, x, most)
    x = te.select(x > least, x, least)
    whole = _rounded_float(x, a.rounding).cast(I32) + a.zero
    return (whole if is_exact else te.minimum(te.maximum(whole, low + a.zero), high + a.zero)).cast(a.dtype)


def _rounded_float(x: te.ScalarValue, rounding: Rounding) -> te.ScalarValue:
    if rounding is Rounding.HALF_EVEN:
        return te.unary(UnaryOp.ROUND_EVEN, x)
    whole = te.unary(UnaryOp.TRUNC, x)
    is_far = te.unary(UnaryOp.ABS, x - whole) >= 0.5
    return whole + te.select(is_far, te.select(x < 0.0, te.const(-1.0, F32), 1.0), 0.0)


def scaled(
    a: RequantizeAttrs, x: te.ScalarValue, multiplier: te.ScalarValue, shift: te.ScalarValue
) -> te.ScalarValue:
    """Return the rounded product: an i32 if that is known to hold it, else an i64."""
    if a.rounding is Rounding.TFLITE:
        return _two_roundings(a, x, multiplier, shift)
    distance = a.bits - te.minimum(te.maximum(shift, a.bits - FARTHEST), a.bits - a.least)
    p = x.cast(I64) * multiplier.cast(I64)
    if a.least < HALVES or x.dtype is I64:
        return _divided(p, distance.cast(I64), a.rounding)
    # What is rounded is in the upper half of the product, but for a tie, which the lower half breaks.
    upper, up = (p >> 32).cast(I32), distance - 32
    if a.rounding is not Rounding.HALF_UP:
        upper = upper | te.select(p.cast(I32).equals(0), te.const(0, I32), 1)
    half = te.const(1, I32) << (up - 1)
    match a.rounding:
        case Rounding.HALF_EVEN:
            return (upper + (half - 1) + ((upper >> up) & 1)) >> up
        case Rounding.HALF_AWAY:
            return (upper + half + (upper >> 31)) >> up
        case _:
            return (upper + half) >> up


def _two_roundings(
    a: RequantizeAttrs, x: te.ScalarValue, multiplier: te.ScalarValue, shift: te.ScalarValue
) -> te.ScalarValue:
    right = 0 - te.minimum(te.maximum(shift, -31), 0)
    whole = x.cast(I32)
    if a.least < a.bits:
        whole = whole << te.minimum(te.maximum(shift, 0), 31)
    wrapped = whole.cast(I64) * multiplier.cast(I64)
    if a.bits == 31:  # the upper half of twice the product
        once = ((wrapped + wrapped + (1 << 31)) >> 32).cast(I32)
    else:
        once = _divided(wrapped, te.const(a.bits, I64), Rounding.HALF_UP)
        right = right.cast(I64)
    mask = (te.const(1, once.dtype) << right) - 1
    threshold = (mask >> 1) - (once >> (once.dtype.bits - 1))
    return (once >> right) + te.select(threshold < (once & mask), te.const(1, once.dtype), 0)


def _divided(p: te.ScalarValue, distance: te.ScalarValue, rounding: Rounding) -> te.ScalarValue:
    half = (te.const(1, I64) << distance) >> 1
    if rounding is Rounding.HALF_AWAY:  # of a tie below zero, what is half an element less
        return (p + half + te.maximum(p >> 63, 0 - half)) >> distance
    up = (p + half) >> distance
    if rounding is Rounding.HALF_UP:
        return up
    is_tie = te.minimum(half, 1) & te.select(((up << distance) - half).equals(p), te.const(1, I64), 0)
    return up - (is_tie & up)


# --------------------------------------------------------------------------- samples


def quantized_multiplier(factors: float | Sequence[float] | Array, bits: int = 31) -> tuple[Array, Array]:
    """Return multipliers and shifts of positive factors: fractions from a half to one, and exponents.

    As TFLite prepares them: the fraction rounded to `bits`, one that became 1 halved.
    """
    fractions, exponents = np.frexp(np.asarray(factors, np.float64))
    whole = np.floor(fractions * (1 << bits) + 0.5).astype(np.int64)
    is_one = whole == 1 << bits
    whole = np.where(is_one, whole >> 1, whole)
    return whole.astype(np.int32), (exponents + is_one).astype(np.int32)


def _samples() -> list[Sample]:
    x = noise((2, 3, 5), I32, low=-40000, high=40000, seed="acc")
    ties = np.array([-9, -7, -6, -5, -3, -1, 0, 1, 2, 3, 5, 6, 7, 9, 2**31 - 1, -(2**31)], np.int32)
    far = noise((2, 3, 5), I64, low=-(2**40), high=2**40, seed="wide")
    n = ("a", "b", "c")
    scales = np.array([0.001, 0.5, 1.5], np.float32)
    m, s = quantized_multiplier([0.0011, 0.49, 1.7])
    half, none = np.asarray(1 << 30, np.int32), np.asarray(0, np.int32)
    made = [
        Sample("float scale", RequantizeAttrs(), (x, np.asarray(0.003, np.float32)), (n, ())),
        Sample("float near", RequantizeAttrs(U8, 7, near=True), (x, np.asarray(0.003, np.float32))),
        Sample("float per channel", RequantizeAttrs(U8, 128, 130, 250), (x, scales), (n, ("b",))),
        Sample(
            "float away",
            RequantizeAttrs(I16, rounding=Rounding.HALF_AWAY),
            (ties, np.asarray(0.5, np.float32)),
        ),
        Sample("sixteen by eight", RequantizeAttrs(I16, rounding=Rounding.HALF_UP, bits=15), _wide(far)),
    ]
    for rounding in Rounding:
        a = RequantizeAttrs(I8, 3, rounding=rounding)
        made.append(Sample(f"{rounding} per channel", a, (x, m, s), (n, ("b",), ("b",))))
        made.append(Sample(f"{rounding} ties", RequantizeAttrs(I32, rounding=rounding), (ties, half, none)))
        down = np.asarray(-2, np.int32)
        made.append(Sample(f"{rounding} down", RequantizeAttrs(I32, rounding=rounding), (ties, half, down)))
        made.append(Sample(f"{rounding} far", RequantizeAttrs(I32, -7, rounding=rounding), _far(ties)))
        known = RequantizeAttrs(I32, rounding=rounding, least=HALVES)
        made.append(Sample(f"{rounding} known", known, _far(ties)))
    return made


def _far(ties: Array) -> tuple[Array, Array, Array]:
    """Return ties of distance 35 and what is next to them, as far as accumulators go."""
    x = np.concatenate([ties * (1 << 26) + d for d in (-1, 0, 1)]).astype(np.int32)
    return x, np.asarray(1 << 8, np.int32), np.asarray(-4, np.int32)


def _wide(x: Array) -> tuple[Array, Array, Array]:
    m, s = quantized_multiplier([2.0**-26, 3e-8, 1.1e-8], 15)
    return x, m, s


DEFINITIONS: tuple[OpDef, ...] = (
    define(
        "requantize",
        RequantizeAttrs,
        _rule,
        (2, 3),
        FusionPattern.BROADCAST,
        "an integer times a factor, rounded, plus a zero point, clamped to the ends of the result",
        reference=requantized,
        compute=_compute,
        samples=_samples,
    ),
)
