"""Squares of an image moved into its channels, and back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from inlay.arith.dtype import F32
from inlay.arith.expr import Int, floordiv, lit, mod
from inlay.ir.op import TypeContext
from inlay.ir.types import TensorType
from inlay.loop import te
from inlay.ops import _rules as rules
from inlay.ops._build import Array
from inlay.ops._define import FusionPattern, OpDef, Sample, define
from inlay.ops._rules import Types
from inlay.ops._samples import noise


@dataclass(frozen=True, slots=True)
class BlockAttrs:
    """`block`: edge of a square; `column_row`: channels are the slowest part of depth, not the last."""

    block: int
    column_row: bool = False


def _depth_to_space_rule(ctx: TypeContext, a: BlockAttrs, args: Types) -> TensorType:
    x = rules.of_rank(ctx, rules.tensor(ctx, args, 0), 4, "the input")
    n, c, h, w = x.shape
    area = _area(ctx, a)
    ctx.equal(mod(c, area), lit(0), "channels divide by the square of the block")
    return TensorType((n, floordiv(c, area), h * a.block, w * a.block), x.dtype)


def _area(ctx: TypeContext, a: BlockAttrs) -> Int:
    if a.block < 1:
        raise ctx.fail(f"found block {a.block}, needed at least 1")
    return lit(a.block * a.block)


def _depth_to_space_compute(a: BlockAttrs, operands: Sequence[te.Tensor], result: TensorType) -> te.Tensor:
    (x,) = operands
    b, depth = lit(a.block), result.shape[1]

    def body(n: Int, c: Int, h: Int, w: Int) -> te.ScalarValue:
        inner = mod(h, b) * a.block + mod(w, b)
        channel = c * (a.block * a.block) + inner if a.column_row else inner * depth + c
        return x[n, channel, floordiv(h, b), floordiv(w, b)]

    return te.compute(result.shape, body, name="depth_to_space")


def _depth_to_space_reference(a: BlockAttrs, x: Array) -> Array:
    n, c, h, w = x.shape
    b = a.block
    if a.column_row:
        y = x.reshape(n, c // (b * b), b, b, h, w).transpose(0, 1, 4, 2, 5, 3)
    else:
        y = x.reshape(n, b, b, c // (b * b), h, w).transpose(0, 3, 4, 1, 5, 2)
    return y.reshape(n, c // (b * b), h * b, w * b)


def _space_to_depth_rule(ctx: TypeContext, a: BlockAttrs, args: Types) -> TensorType:
    x = rules.of_rank(ctx, rules.tensor(ctx, args, 0), 4, "the input")
    n, c, h, w = x.shape
    area, b = _area(ctx, a), lit(a.block)
    for size, what in ((h, "rows"), (w, "columns")):
        ctx.equal(mod(size, b), lit(0), f"{what} divide by the block")
    return TensorType((n, c * area, floordiv(h, b), floordiv(w, b)), x.dtype)


def _space_to_depth_compute(a: BlockAttrs, operands: Sequence[te.Tensor], result: TensorType) -> te.Tensor:
    (x,) = operands
    b, area = lit(a.block), lit(a.block * a.block)

    def body(n: Int, channel: Int, h: Int, w: Int) -> te.ScalarValue:
        if a.column_row:
            inner, c = mod(channel, area), floordiv(channel, area)
        else:
            inner, c = floordiv(channel, x.shape[1]), mod(channel, x.shape[1])
        return x[n, c, h * a.block + floordiv(inner, b), w * a.block + mod(inner, b)]

    return te.compute(result.shape, body, name="space_to_depth")


def _space_to_depth_reference(a: BlockAttrs, x: Array) -> Array:
    n, c, h, w = x.shape
    b = a.block
    y = x.reshape(n, c, h // b, b, w // b, b)
    y = y.transpose(0, 1, 3, 5, 2, 4) if a.column_row else y.transpose(0, 3, 5, 1, 2, 4)
    return y.reshape(n, c * b * b, h // b, w // b)


def _block_samples() -> list[Sample]:
    x = noise((2, 8, 4, 6), F32, seed="block")
    return [
        Sample(f"{a}", a, (x,), (("n", 8, 4, 6),), exact=True)
        for a in (BlockAttrs(2), BlockAttrs(2, column_row=True), BlockAttrs(1))
    ]


DEFINITIONS: tuple[OpDef, ...] = (
    define(
        "depth_to_space",
        BlockAttrs,
        _depth_to_space_rule,
        1,
        FusionPattern.LAYOUT,
        "[n, c*b*b, h, w] as [n, c, h*b, w*b]",
        reference=_depth_to_space_reference,
        compute=_depth_to_space_compute,
        samples=_block_samples,
    ),
    define(
        "space_to_depth",
        BlockAttrs,
        _space_to_depth_rule,
        1,
        FusionPattern.LAYOUT,
        "[n, c, h*b, w*b] as [n, c*b*b, h, w]",
        reference=_space_to_depth_reference,
        compute=_space_to_depth_compute,
        samples=_block_samples,
    ),
)
