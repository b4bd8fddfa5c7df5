"""Weights in few bits under products of floats: what they stand for, and products that read them so.

A block is some neighbors along an axis that share a scale, and a zero point where there is one:

    w[k, n] = (q[k, n] - zero[k // block, n]) * scale[k // block, n]

`dequantize_blocks` is that. A product that waits for memory wants the weights as they are stored:
`matmul_blocks` multiplies by a matrix in this form, and `matmul_blocks_packed` by panels of it, which
`pack_weights` makes for a device. It brings weights to floats in registers and adds up in f32; what is
rounded is what `dequantize_blocks` rounds, in another order of the sum.

**Panels.** Weights, scales and zero points are each laid out as `pack_weights` lays out a matrix. With
`bits` of 4 a byte has two neighbors along the sum, the first one in its low half, both from 0 to 15. What
is the same for all blocks is taken off as the attribute `zero`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from inlay.arith.dtype import F32, I8, I32, U8, DType
from inlay.arith.expr import Int, ceildiv, floordiv, lit, mod
from inlay.ir.op import TypeContext
from inlay.ir.types import TensorType
from inlay.loop import te
from inlay.ops import _rules as rules
from inlay.ops._build import Array, widen, widened
from inlay.ops._define import FusionPattern, OpDef, Sample, define
from inlay.ops._rules import FLOATS, Types
from inlay.ops._samples import noise
from inlay.ops.matmul import PackAttrs, matmul_shape, pack_reference, product
from inlay.ops.quantized import NARROW

BYTES: tuple[DType, ...] = (I8, U8)


@dataclass(frozen=True, slots=True)
class DequantizeBlocksAttrs:
    """`block`: elements along `axis` that share a scale."""

    block: int
    axis: int = 0


@dataclass(frozen=True, slots=True)
class BlocksAttrs:
    """`block`: terms of a sum that share a scale."""

    block: int


@dataclass(frozen=True, slots=True)
class PackedBlocksAttrs:
    """How packed weights are read.

    Attributes:
        panel: columns in a panel.
        n: columns of the result.
        block: terms of a sum that share a scale.
        bits: of a weight as it is stored, 8 or 4.
        zero: taken off every weight.
    """

    panel: int
    n: int
    block: int
    bits: int = 8
    zero: int = 0


def per_block(
    ctx: TypeContext, p: TensorType, shape: Sequence[Int], axis: int, block: int, what: str
) -> None:
    """Require one number for each block of neighbors along an axis."""
    if block < 1:
        raise ctx.fail(f"found blocks of {block}, needed at least 1")
    needed = (*shape[:axis], ceildiv(shape[axis], block), *shape[axis + 1 :])
    rules.same_shape(ctx, p, needed, what)


def zero_rule(ctx: TypeContext, zero: TensorType, q: TensorType, scale: DType) -> None:
    """Require zero points in the format of the integers or of their scales."""
    if zero.dtype not in (q.dtype, scale):
        raise ctx.fail(
            f"found zero points of {zero.dtype}, needed {q.dtype} or {scale}", id="type.dtype-mismatch"
        )


# --------------------------------------------------------------------------- dequantize


def _dequantize_rule(ctx: TypeContext, a: DequantizeBlocksAttrs, args: Types) -> TensorType:
    q, scale = rules.tensor(ctx, args, 0, (*NARROW, I32)), rules.tensor(ctx, args, 1, FLOATS)
    axis = rules.axis_of(ctx, a.axis, len(q.shape))
    per_block(ctx, scale, q.shape, axis, a.block, "the scale")
    if len(args) > 2:
        zero = rules.tensor(ctx, args, 2)
        zero_rule(ctx, zero, q, scale.dtype)
        per_block(ctx, zero, q.shape, axis, a.block, "the zero point")
    return TensorType(q.shape, scale.dtype)


def _dequantize_reference(a: DequantizeBlocksAttrs, q: Array, scale: Array, *zero: Array) -> Array:
    wide = widen(scale).dtype
    axis = a.axis % q.ndim
    places = np.arange(q.shape[axis], dtype=np.int64) // a.block
    whole = q.astype(np.int32)
    if zero and zero[0].dtype.kind in "iu":
        whole = whole - np.take(zero[0].astype(np.int32), places, axis)
    real = whole.astype(wide)
    if zero and zero[0].dtype.kind not in "iu":
        real = real - np.take(widen(zero[0]), places, axis)
    return (real * np.take(widen(scale), places, axis)).astype(scale.dtype)


def _dequantize_compute(
    a: DequantizeBlocksAttrs, operands: Sequence[te.Tensor], result: TensorType
) -> te.Tensor:
    q, scale, *zero = operands
    wide, axis = widened(scale.dtype), a.axis % q.ndim

    def body(*i: Int) -> te.ScalarValue:
        at = (*i[:axis], floordiv(i[axis], lit(a.block)), *i[axis + 1 :])
        return (_less(q[i].cast(I32), [z[at] for z in zero], wide) * scale[at].cast(wide)).cast(result.dtype)

    return te.compute(result.shape, body, name="dequantize")


def _less(q: te.ScalarValue, zero: Sequence[te.ScalarValue], wide: DType) -> te.ScalarValue:
    """Return a weight less its zero point as a float; integers are taken off as integers."""
    if not zero:
        return q.cast(wide)
    z = zero[0]
    return (q - z.cast(I32)).cast(wide) if z.dtype.is_integer else q.cast(wide) - z.cast(wide)


# --------------------------------------------------------------------------- products


def _matmul_rule(ctx: TypeContext, a: BlocksAttrs, args: Types) -> TensorType:
    x, q = rules.tensor(ctx, args, 0, (F32,)), rules.tensor(ctx, args, 1, BYTES)
    rules.of_rank(ctx, q, 2, "the weights")
    scale = rules.tensor(ctx, args, 2, (F32,))
    per_block(ctx, scale, q.shape, 0, a.block, "the scale")
    if len(args) > 3:
        zero = rules.tensor(ctx, args, 3)
        zero_rule(ctx, zero, q, scale.dtype)
        per_block(ctx, zero, q.shape, 0, a.block, "the zero point")
    return TensorType(matmul_shape(ctx, x.shape, q.shape), F32)


def _matmul_reference(a: BlocksAttrs, x: Array, *weights: Array) -> Array:
    return np.matmul(x, _dequantize_reference(DequantizeBlocksAttrs(a.block), *weights))


def _matmul_compute(a: BlocksAttrs, operands: Sequence[te.Tensor], result: TensorType) -> te.Tensor:
    x, q, *others = operands
    of_weights = TensorType(q.shape, F32)
    w = _dequantize_compute(DequantizeBlocksAttrs(a.block), (q, *others), of_weights)
    return product(x, w, result.shape, lambda p, q: p * q, "matmul")


def nibbles(w: Array) -> Array:
    """Return rows from 0 to 15, an even number of them, two in a byte: the first in the low half."""
    return (w[0::2] | (w[1::2] << 4)).astype(np.uint8)


def _packed_rule(ctx: TypeContext, a: PackedBlocksAttrs, args: Types) -> TensorType:
    x, w = rules.tensor(ctx, args, 0, (F32,)), rules.tensor(ctx, args, 1, BYTES)
    rules.least_rank(ctx, x, 1, "the left operand")
    if a.panel < 1 or a.block < 1:
        raise ctx.fail(f"found panels of {a.panel} and blocks of {a.block}, needed at least 1")
    if a.bits not in (4, 8) or (a.bits == 4 and (w.dtype is not U8 or (a.block % 2 and a.block > 1))):
        raise ctx.fail(f"found {a.bits} bits in {w.dtype}, needed 8, or 4 in u8 and even blocks")
    terms, panels = x.shape[-1], ceildiv(a.n, a.panel)
    ctx.equal(w.shape[1] * (8 // a.bits), terms, "columns of lhs and rows of the packed rhs")
    rules.same_shape(ctx, w, (panels, w.shape[1], lit(a.panel)), "the packed weights")
    for i in range(2, len(args)):
        p = rules.tensor(ctx, args, i)
        rules.same_shape(ctx, p, (panels, ceildiv(terms, a.block), lit(a.panel)), "scale or zero point")
    if len(args) > 3:
        zero_rule(ctx, rules.tensor(ctx, args, 3), w, rules.tensor(ctx, args, 2, (F32,)).dtype)
    return TensorType((*x.shape[:-1], lit(a.n)), F32)


def _packed_reference(a: PackedBlocksAttrs, x: Array, *packed: Array) -> Array:
    w, *others = (p.transpose(1, 0, 2).reshape(p.shape[1], -1)[:, : a.n] for p in packed)
    if a.bits == 4:
        w = np.stack([w & 15, w >> 4], 1).reshape(-1, w.shape[1])
    return _matmul_reference(BlocksAttrs(a.block), x, w.astype(np.int32) - a.zero, *others)


def _packed_compute(a: PackedBlocksAttrs, operands: Sequence[te.Tensor], result: TensorType) -> te.Tensor:
    x, w, scale, *zero = operands
    terms, panel, in_byte = x.shape[-1], lit(a.panel), 8 // a.bits
    whole = mod(terms, lit(a.block)) == 0

    def body(*i: Int) -> te.ScalarValue:
        at, lane = floordiv(i[-1], panel), mod(i[-1], panel)
        # Bytes of a block, where blocks divide the sum: then scales do not depend on the inner loop.
        of_block = a.block // in_byte if whole else w.shape[1]
        outer = te.reduce_axis("b", floordiv(terms, lit(a.block)) if whole else 1)
        inner, half = te.reduce_axis("k", of_block), te.reduce_axis("h", in_byte)
        row = outer * of_block + inner
        q = w[at, row, lane].cast(I32)
        if a.bits == 4:
            q = (q >> te.index(half * 4, I32)) & 15
        if a.zero:
            q = q - a.zero
        k = row * in_byte + half if a.bits == 4 else row
        block = outer + 0 if whole else floordiv(k, lit(a.block))
        real = _less(q, [z[at, block, lane] for z in zero], F32) * scale[at, block, lane]
        axes = [outer, inner, half] if a.bits == 4 else [outer, inner]
        return te.sum_over(axes, x[(*i[:-1], k)] * real)

    return te.compute(result.shape, body, name="matmul", tag="matmul_packed")


# --------------------------------------------------------------------------- samples


def _weights(k: int, n: int, block: int, dtype: DType, zero: DType | None) -> tuple[Array, ...]:
    low, high = (-128, 127) if dtype is I8 else (0, 255)
    q = noise((k, n), dtype, low=low, high=high, seed=f"q{k}")
    shape = (-(-k // block), n)
    scale = noise(shape, F32, low=0.001, high=0.01, seed="scale")
    if zero is None:
        return q, scale
    return q, scale, noise(shape, zero, low=max(low, -9), high=200 if zero is U8 else 9, seed="zero")


def _dequantize_samples() -> list[Sample]:
    rows = DequantizeBlocksAttrs(4)
    f16 = tuple(p.astype(np.float16) if p.dtype == np.float32 else p for p in _weights(6, 3, 2, I8, I8))
    turned = tuple(np.ascontiguousarray(p.T) for p in _weights(7, 3, 4, U8, F32))
    return [
        Sample("rows", rows, _weights(12, 5, 4, I8, None)),
        Sample("zero points", rows, _weights(10, 5, 4, U8, U8)),
        Sample("float zero points", DequantizeBlocksAttrs(4, -1), turned),
        Sample("f16", DequantizeBlocksAttrs(2), f16),
    ]


def _matmul_samples() -> list[Sample]:
    made: list[Sample] = []
    for name, k, block, dtype, zero in (
        ("plain", 12, 4, I8, None),
        ("zero points", 10, 4, U8, U8),
        ("float zero points", 12, 12, U8, F32),
    ):
        x = noise((3, k), F32, seed="x")
        weights = _weights(k, 5, block, dtype, zero)
        symbolic = (("m", k), *(w.shape for w in weights))
        made.append(Sample(name, BlocksAttrs(block), (x, *weights), symbolic))
    return made


def _packed_samples() -> list[Sample]:
    made: list[Sample] = []
    for rows, k, n, block, bits, zero in (
        ((1,), 64, 12, 32, 8, None),
        ((5,), 24, 10, 16, 8, I8),
        ((2, 3), 64, 9, 16, 4, U8),
        ((1,), 20, 16, 16, 4, F32),
        ((2,), 14, 5, 14, 4, None),
    ):
        q, *others = _weights(k, n, block, U8 if bits == 4 else I8, zero)
        q = nibbles(q & 15) if bits == 4 else q
        packed = [pack_reference(PackAttrs(8), np.asarray(p)) for p in (q, *others)]
        attrs = PackedBlocksAttrs(8, n, block, bits, 8 if bits == 4 else 0)
        x = noise((*rows, k), F32, seed="x")
        symbolic = ((*(f"m{i}" for i in range(len(rows))), k), *(p.shape for p in packed))
        made.append(Sample(f"{bits} bits, {rows} by {k} to {n}", attrs, (x, *packed), symbolic))
    return made


DEFINITIONS: tuple[OpDef, ...] = (
    define(
        "dequantize_blocks",
        DequantizeBlocksAttrs,
        _dequantize_rule,
        (2, 3),
        FusionPattern.LAYOUT,
        "(q - zero point) * scale, with one of each for a block of neighbors along an axis",
        reference=_dequantize_reference,
        compute=_dequantize_compute,
        samples=_dequantize_samples,
    ),
    define(
        "matmul_blocks",
        BlocksAttrs,
        _matmul_rule,
        (3, 4),
        FusionPattern.CONTRACTION,
        "matmul by a matrix in few bits, with a scale, and perhaps a zero point, for a block of rows",
        reference=_matmul_reference,
        compute=_matmul_compute,
        samples=_matmul_samples,
        terms=lambda _, x, w: x.shape[-1],
    ),
    define(
        "matmul_blocks_packed",
        PackedBlocksAttrs,
        _packed_rule,
        (3, 4),
        FusionPattern.CONTRACTION,
        "the same by packed panels; two rows in a byte with 4 bits",
        reference=_packed_reference,
        compute=_packed_compute,
        samples=_packed_samples,
        form_of="matmul",
        terms=lambda _, x, w: x.shape[-1],
    ),
)
