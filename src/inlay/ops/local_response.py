"""Local response normalization, over windows of channels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from inlay.arith.dtype import F32
from inlay.arith.expr import Int
from inlay.ir.op import TypeContext
from inlay.ir.types import TensorType
from inlay.loop import te
from inlay.loop.scalar import IntrinsicOp
from inlay.ops import _rules as rules
from inlay.ops._build import Array, widen, widened
from inlay.ops._define import FusionPattern, OpDef, Sample, define
from inlay.ops._rules import FLOATS, Types
from inlay.ops._samples import noise


@dataclass(frozen=True, slots=True)
class LrnAttrs:
    """`size`: channels in a window; divided by `(bias + alpha / size * sum of squares) ** beta`."""

    size: int
    alpha: float = 1e-4
    beta: float = 0.75
    bias: float = 1.0


def _rule(ctx: TypeContext, a: LrnAttrs, args: Types) -> TensorType:
    if a.size < 1:
        raise ctx.fail(f"found size {a.size}, needed at least 1")
    return rules.least_rank(ctx, rules.tensor(ctx, args, 0, FLOATS), 2, "the input")


def _reference(a: LrnAttrs, x: Array) -> Array:
    y = widen(x)
    before = (a.size - 1) // 2
    squares = np.zeros_like(y)
    for c in range(x.shape[1]):
        window = y[:, max(0, c - before) : c - before + a.size]
        squares[:, c] = (window * window).sum(1)
    scale = y.dtype.type(a.bias) + y.dtype.type(a.alpha / a.size) * squares
    return (y / scale ** y.dtype.type(a.beta)).astype(x.dtype)


def _compute(a: LrnAttrs, operands: Sequence[te.Tensor], result: TensorType) -> te.Tensor:
    (x,) = operands
    wide, before = widened(x.dtype), (a.size - 1) // 2

    def body(n: Int, c: Int, *rest: Int) -> te.ScalarValue:
        k = te.reduce_axis("k", a.size)
        at = c + k - before
        inside = (te.index(at) >= 0) & (te.index(at) < te.index(x.shape[1]))
        v = te.select(inside, x[(n, at, *rest)].cast(wide), 0)
        return te.sum_over(k, v * v)

    squares = te.compute(x.shape, body, name="squares")

    def scaled(*i: Int) -> te.ScalarValue:
        base = squares[i] * (a.alpha / a.size) + a.bias
        power = te.intrinsic(IntrinsicOp.POW, base, te.const(a.beta, wide))
        return (x[i].cast(wide) / power).cast(x.dtype)

    return te.compute(result.shape, scaled, name="lrn")


def _samples() -> list[Sample]:
    x = noise((2, 7, 3, 2), F32, seed="lrn")
    return [
        Sample("odd", LrnAttrs(3, 0.1, 0.75, 1.0), (x,), (("n", "c", "h", 2),)),
        Sample("even", LrnAttrs(4, 0.5, 0.5, 2.0), (x,), (("n", "c", "h", 2),)),
        Sample("wide", LrnAttrs(9, 0.1), (x[:, :, 0, 0].copy(),), (("n", "c"),)),
    ]


DEFINITIONS: tuple[OpDef, ...] = (
    define(
        "lrn",
        LrnAttrs,
        _rule,
        1,
        FusionPattern.REDUCTION,
        "x divided by a power of the sum of squares over near channels",
        reference=_reference,
        compute=_compute,
        samples=_samples,
    ),
)
