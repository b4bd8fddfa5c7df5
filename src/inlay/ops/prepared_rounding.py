"""Requantization by constants that were prepared: what a kernel computes instead of `requantize`.

`requantize` has a multiplier and a shift for each channel, and roundings that depend on both. Where the
shifts are known, all of that is one product in 64 bits of which the upper half is wanted:

    result = clamp(zero + ((upper(x * multiplier) + offset) >> distance), low, high)

`offset` is half of what is shifted out, and the zero point where that has room. `upper` is the upper half of
the product, which `nudge` says how to round:

* `down`: as it is. This is one rounding with ties up.
* `up`: with `2**30` added, which is what TFLite's first rounding makes of the ties of its second one for
  accumulators that are not negative; for others the result is right or at most zero.
* `away`: with `2**30` added, and `2**31` taken off where the rounded product is negative: the pair of
  roundings for all accumulators.

For the pair of roundings, the doubled upper half with ties up, `once`, is divided by `2**r` with ties away
from zero: `(once + 2**(r-1) - (once < 0)) >> r`. Its lowest bit is worth nothing else, so it is shifted out
first, and 32 bits hold all sums. Multipliers are not negative.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from inlay.arith.dtype import I8, I32, I64, DType
from inlay.arith.expr import Int
from inlay.ir.op import TypeContext
from inlay.ir.types import TensorType
from inlay.loop import te
from inlay.ops import _rules as rules
from inlay.ops._build import Array
from inlay.ops._define import FusionPattern, OpDef, Sample, define
from inlay.ops._rules import Types
from inlay.ops._samples import noise
from inlay.ops.quantized import along, at_axis, per_axis
from inlay.ops.requantization import RESULTS

MOST_DISTANCE = 30
"""The greatest distance; the least one is 1."""
MOST_OFFSET = 1 << 30
"""Offsets are less than this: the upper half of a product is no more, and 32 bits hold the sum."""


class Nudge(StrEnum):
    """What is added to products before their upper half is taken."""

    DOWN = "down"
    UP = "up"
    AWAY = "away"


@dataclass(frozen=True, slots=True)
class PreparedAttrs:
    """`dtype` of the result, `zero` added after the shift, `low` and `high` ends; `axis` of the operands."""

    dtype: DType = I8
    zero: int = 0
    low: int = -128
    high: int = 127
    nudge: Nudge = Nudge.DOWN
    axis: int = 1


def _rule(ctx: TypeContext, a: PreparedAttrs, args: Types) -> TensorType:
    x = rules.tensor(ctx, args, 0, (I32,))
    for i, what in ((1, "the multiplier"), (2, "the offset"), (3, "the distance")):
        factor = rules.tensor(ctx, args, i, (I32,))
        per_axis(ctx, factor, x, a.axis, what)
    if a.dtype not in RESULTS:
        raise ctx.fail(f"cannot requantize to {a.dtype}", id="type.dtype-mismatch")
    info = np.iinfo(a.dtype.numpy)
    if not info.min <= a.low <= a.high <= info.max:
        raise ctx.fail(f"found the ends {a.low} and {a.high}, needed ends in order that {a.dtype} holds")
    if not -(1 << 15) <= a.zero < 1 << 16:
        raise ctx.fail(f"found the zero point {a.zero}, needed one of 16 bits")
    return TensorType(x.shape, a.dtype)


def prepared(a: PreparedAttrs, x: Array, multiplier: Array, offset: Array, distance: Array) -> Array:
    """Return the meaning on arrays: accumulators, and constants that are one or one for each channel."""
    m, c, d = (along(e, x.ndim, a.axis).astype(np.int64) for e in (multiplier, offset, distance))
    p = x.astype(np.int64) * m
    if a.nudge is Nudge.AWAY:
        once = (p + (1 << 30)) >> 31
        upper = (once - (once < 0)) >> 1
    else:
        upper = (p + (1 << 30 if a.nudge is Nudge.UP else 0)) >> 32
    return np.clip(((upper + c) >> np.clip(d, 0, 31)) + a.zero, a.low, a.high).astype(a.dtype.numpy)


def _compute(a: PreparedAttrs, operands: Sequence[te.Tensor], result: TensorType) -> te.Tensor:
    x, *constants = operands

    def body(*i: Int) -> te.ScalarValue:
        m, offset, distance = (at_axis(e, i, a.axis) for e in constants)
        p = x[i].cast(I64) * m.cast(I64)
        match a.nudge:
            case Nudge.DOWN:
                upper = (p >> 32).cast(I32)
            case Nudge.UP:
                upper = ((p + (1 << 30)) >> 32).cast(I32)
            case Nudge.AWAY:
                once = ((p + (1 << 30)) >> 31).cast(I32)
                upper = (once + (once >> 31)) >> 1
        whole = (upper + offset) >> distance
        if a.zero:
            whole = whole + a.zero
        return te.minimum(te.maximum(whole, a.low), a.high).cast(a.dtype)

    return te.compute(result.shape, body, name="requantize")


def _samples() -> list[Sample]:
    x = noise((2, 3, 5), I32, low=-(2**31), high=2**31 - 1, seed="prepared")
    m = np.array([1 << 30, 1518500249, (1 << 31) - 1], np.int32)
    offset, distance = (
        np.array([1 << 23, 1 << 24, (1 << 25) - 77], np.int32),
        np.array([24, 25, 26], np.int32),
    )
    one = [np.asarray(v, np.int32) for v in (1234567890, 8, 4)]
    dims = (("a", "b", "c"), ("b",), ("b",), ("b",))
    made = [
        Sample(f"{nudge} per channel", PreparedAttrs(nudge=nudge), (x, m, offset, distance), dims)
        for nudge in Nudge
    ]
    few = noise((4, 6), I32, low=-600, high=600, seed="few")
    return [*made, Sample("one", PreparedAttrs(I8, 3, -100, 90, Nudge.AWAY), (few, *one))]


DEFINITIONS: tuple[OpDef, ...] = (
    define(
        "requantize_prepared",
        PreparedAttrs,
        _rule,
        4,
        FusionPattern.BROADCAST,
        "requantize by a multiplier and a known shift: the upper half of a product, an offset, a shift",
        reference=prepared,
        compute=_compute,
        samples=_samples,
        form_of="requantize",
    ),
)
