"""Weights in few bits under products of floats: what they stand for, and products that read them so.

A block is some neighbors along an axis that share a scale, and a zero point where there is one:

    w[k, n] = (q[k, n] - zero[k // block, n]) * scale[k // block, n]

`dequantize_blocks` is that. A product that waits for memory wants the weights as they are stored:
`matmul_blocks` multiplies by a matrix in this form, and `matmul_blocks_packed` by panels of it, which
`pack_weights` makes for a device. It brings weights to floats in registers and adds up in f32; what is
rounded is what `dequantize_blocks` rounds, in another order of the sum.

**Panels.** Weights, scales and zero points are each laid out as `pack_weights` lays out a matrix. With
`bits` of 4 a word has neighbors along the sum, the first in its lowest bits, all from 0 to 15. What is the
same for all blocks is taken off as the attribute `zero`.

The products of a word may be one term of the sum, which is scaled once (`by_word`). Its weights are all in
registers then, for all rows of a tile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add

import numpy as np

from inlay.arith.dtype import F32, I8, I32, U8, U16, U32, DType
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
WORDS: tuple[DType, ...] = (U8, U16, U32)
"""Formats of words with 2, 4 and 8 weights of 4 bits."""


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
class PackedWeightsAttrs:
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


@dataclass(frozen=True, slots=True)
class PackedBlocksAttrs(PackedWeightsAttrs):
    """How packed weights are brought to floats.

    Attributes:
        by_word: whether the products of a word are one term of the sum, which is scaled once.
    """

    by_word: bool = False


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


def half_bytes(w: Array, dtype: DType) -> Array:
    """Return rows from 0 to 15 as words, the first rows in the lowest bits.

    Args:
        w: `[k, n]`, k a multiple of what a word has.
        dtype: of the words.
    """
    count = 2 * dtype.itemsize
    parts = w.reshape(-1, count, w.shape[1]).astype(dtype.numpy)
    shifts = (4 * np.arange(count)).astype(dtype.numpy)[:, None]
    return np.bitwise_or.reduce(parts << shifts, axis=1, dtype=dtype.numpy)


def _packed_rule(ctx: TypeContext, a: PackedBlocksAttrs, args: Types) -> TensorType:
    x, w = rules.tensor(ctx, args, 0, (F32,)), rules.tensor(ctx, args, 1, WORDS if a.bits == 4 else BYTES)
    rules.least_rank(ctx, x, 1, "the left operand")
    if a.panel < 1 or a.block < 1:
        raise ctx.fail(f"found panels of {a.panel} and blocks of {a.block}, needed at least 1")
    if a.bits not in (4, 8):
        raise ctx.fail(f"found {a.bits} bits, needed 8, or 4 in words")
    terms, panels = x.shape[-1], ceildiv(a.n, a.panel)
    in_word = _in_word(a, w.dtype)
    if a.block % in_word and (terms.value is None or a.block < terms.value):
        raise ctx.fail(f"found blocks of {a.block} in words of {in_word}, needed whole words")
    ctx.equal(w.shape[1] * in_word, terms, "columns of lhs and rows of the packed rhs")
    rules.same_shape(ctx, w, (panels, w.shape[1], lit(a.panel)), "the packed weights")
    for i, formats in ((2, (F32,)), (3, (F32, *BYTES)))[: len(args) - 2]:
        p = rules.tensor(ctx, args, i, formats)
        rules.same_shape(ctx, p, (panels, ceildiv(terms, a.block), lit(a.panel)), "scale or zero point")
    return TensorType((*x.shape[:-1], lit(a.n)), F32)


def _packed_reference(a: PackedBlocksAttrs, x: Array, *packed: Array) -> Array:
    w, *others = (p.transpose(1, 0, 2).reshape(p.shape[1], -1)[:, : a.n] for p in packed)
    if a.bits == 4:
        shifts = (4 * np.arange(2 * w.itemsize)).astype(w.dtype)[:, None]
        w = (w[:, None] >> shifts & w.dtype.type(15)).reshape(-1, w.shape[1])
    return _matmul_reference(BlocksAttrs(a.block), x, w.astype(np.int32) - a.zero, *others)


def _packed_compute(a: PackedBlocksAttrs, operands: Sequence[te.Tensor], result: TensorType) -> te.Tensor:
    x, w, scale, *zero = operands
    terms, panel, in_word = x.shape[-1], lit(a.panel), _in_word(a, w.dtype)
    whole = mod(terms, lit(a.block)) == 0

    def body(*i: Int) -> te.ScalarValue:
        at, lane = floordiv(i[-1], panel), mod(i[-1], panel)
        # Words of a block, where blocks divide the sum: then scales do not depend on the inner loop.
        of_block = a.block // in_word if whole else w.shape[1]
        outer = te.reduce_axis("b", floordiv(terms, lit(a.block)) if whole else 1)
        word = outer * of_block + (inner := te.reduce_axis("k", of_block))
        block = outer + 0 if whole else floordiv(word * in_word, lit(a.block))
        bits = w[at, word, lane].cast(I32)

        def term(part: Int) -> te.ScalarValue:
            """Return a product of the word, not yet scaled."""
            q = (bits >> te.index(part * 4, I32)) & 15 if a.bits == 4 else bits
            real = (q - a.zero if a.zero else q).cast(F32)
            real = real - zero[0][at, block, lane].cast(F32) if zero else real
            return x[(*i[:-1], word * in_word + part)] * (
                real if a.by_word else real * scale[at, block, lane]
            )

        if a.by_word:
            products = [term(lit(part)) for part in range(in_word)]
            return te.sum_over([outer, inner], reduce(add, products) * scale[at, block, lane])
        parts = [te.reduce_axis("h", in_word)] if in_word > 1 else []
        return te.sum_over([outer, inner, *parts], term(parts[0] if parts else lit(0)))

    return te.compute(result.shape, body, name="matmul", tag="matmul_packed")


def _in_word(a: PackedBlocksAttrs, dtype: DType) -> int:
    """Return how many weights an element of the packed ones has."""
    return 2 * dtype.itemsize if a.bits == 4 else 1


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
    for rows, k, n, block, bits, zero, by_word in (
        ((1,), 64, 12, 32, 8, None, False),
        ((5,), 24, 10, 16, 8, I8, False),
        ((2, 3), 64, 9, 16, 4, U8, True),
        ((1,), 20, 16, 16, 4, F32, True),
        ((2,), 14, 5, 14, 4, None, False),
        ((3,), 28, 7, 16, 4, U8, False),
        ((4,), 15, 3, 5, 8, I8, False),
    ):
        q, *others = _weights(k, n, block, U8 if bits == 4 else I8, zero)
        if bits == 4:
            words = next(d for d in reversed(WORDS) if k % (2 * d.itemsize) == 0)
            q = half_bytes(q & 15, words)
        packed = [pack_reference(PackAttrs(8), np.asarray(p)) for p in (q, *others)]
        attrs = PackedBlocksAttrs(8, n, block, bits, 8 if bits == 4 else 0, by_word)
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
        "the same by packed panels; neighbors along the sum in words with 4 bits",
        reference=_packed_reference,
        compute=_packed_compute,
        samples=_packed_samples,
        form_of="matmul",
        terms=lambda _, x, w: x.shape[-1],
    ),
)
