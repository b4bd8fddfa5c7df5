"""Products of two matrices in few bits, with a scale for a block of terms on each side.

The weights are those of `weight_blocks`. The other side is rounded as the program runs: a block of neighbors
along the last axis gets the scale with which its largest magnitude is 127,

    s[m, b] = max |x[m, b * block + k]| / 127        q[m, k] = round(x[m, k] / s[m, k // block])

so `dequantize_blocks(q, s)` is x with seven bits and a sign. A product of two such sides is a sum of integers
in each block, exact in i32, scaled, and added up over blocks in floats:

    y[m, n] = sum over b of s[m, b] * sw[b, n] * (sum over k of q[m, k] * (w[k, n] - zero[b, n]))

**Panels.** Dot-product instructions add up four products of neighbors along the sum (`loop/dots.py`), so
packed weights have four neighbors next to each other, `[ceil(n / panel), bytes / 4, panel, 4]`, all from 0
up. With `bits` of 4, byte j of a group has neighbor j in its low half and neighbor 4 + j in its high one.
Zero points are taken off the sums: times the sum of the integers of the other side, which `sum_blocks` makes.

**Steps.** The kernel writes out the dot products of a block, or of `STEP` terms of a longer one: as many
groups of weights as registers hold beside the sums of a few rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from inlay.arith.dtype import F32, I8, I32, U8
from inlay.arith.expr import Int, ceildiv, floordiv, lit, mod
from inlay.ir.op import TypeContext
from inlay.ir.types import TensorType
from inlay.loop import te
from inlay.loop.scalar import UnaryOp
from inlay.ops import _rules as rules
from inlay.ops._build import Array, saturate, saturate_array
from inlay.ops._define import FusionPattern, OpDef, Sample, define
from inlay.ops._rules import Types
from inlay.ops._samples import noise
from inlay.ops.matmul import PackAttrs, matmul_shape, pack_reference
from inlay.ops.reduction import then
from inlay.ops.weight_blocks import BYTES, BlocksAttrs, PackedWeightsAttrs, per_block, zero_rule

MOST = 127
"""Largest magnitude of a rounded number; -128 is not used, so that negating stays exact."""
STEP = 32
"""Terms whose dot products are written out, at most."""
GROUP = 4
"""Products that an instruction adds up."""
WIDEST_GROUP = 2 * GROUP
"""Neighbors that packed weights have side by side, at most."""


def step_of(block: int) -> int:
    """Return how many terms of a block are added up before they are scaled."""
    return min(block, STEP)


# --------------------------------------------------------------------------- rounding


def _one_of_each(ctx: TypeContext, a: BlocksAttrs, x: TensorType) -> tuple[Int, ...]:
    """Return the shape of one number for each block of the last axis."""
    rules.least_rank(ctx, x, 1, "the operand")
    if a.block < 1:
        raise ctx.fail(f"found blocks of {a.block}, needed at least 1")
    return (*x.shape[:-1], ceildiv(x.shape[-1], a.block))


def _scales_rule(ctx: TypeContext, a: BlocksAttrs, args: Types) -> TensorType:
    return TensorType(_one_of_each(ctx, a, rules.tensor(ctx, args, 0, (F32,))), F32)


def _in_blocks(x: Array, block: int) -> Array:
    """Return the last axis as blocks, the last one filled up with zeros."""
    rest = -x.shape[-1] % block
    filled = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, rest)])
    return filled.reshape(*x.shape[:-1], -1, block)


def _scales_reference(a: BlocksAttrs, x: Array) -> Array:
    return np.asarray(np.abs(_in_blocks(x, a.block)).max(-1, initial=0) / np.float32(MOST))


def _scales_compute(a: BlocksAttrs, operands: Sequence[te.Tensor], result: TensorType) -> te.Tensor:
    (x,) = operands

    def body(*i: Int) -> te.ScalarValue:
        k = te.reduce_axis("k", a.block)
        return te.max_over(k, te.unary(UnaryOp.ABS, _term(x, a.block, i, k)))

    largest = te.compute(result.shape, body, name="largest")
    return then(largest, lambda v: v / te.const(MOST, F32), "block_scales")


def _term(x: te.Tensor, block: int, i: tuple[Int, ...], k: Int) -> te.ScalarValue:
    """Return an element of a block, 0 behind the end of the last axis."""
    at = i[-1] * block + k
    is_whole = mod(x.shape[-1], lit(block)) == 0
    inside = None if is_whole else te.index(at) < te.index(x.shape[-1])
    return te.guarded(inside, x[(*i[:-1], at)], te.const(0, x.dtype))


def _quantize_rule(ctx: TypeContext, a: BlocksAttrs, args: Types) -> TensorType:
    x, scale = rules.tensor(ctx, args, 0, (F32,)), rules.tensor(ctx, args, 1, (F32,))
    rules.same_shape(ctx, scale, _one_of_each(ctx, a, x), "the scale")
    return TensorType(x.shape, I8)


def _quantize_reference(a: BlocksAttrs, x: Array, scale: Array) -> Array:
    each = np.repeat(scale, a.block, -1)[..., : x.shape[-1]]
    with np.errstate(all="ignore"):
        q = np.where(each == 0, np.float32(0), np.rint(x / each))
    return saturate_array(q.astype(np.float32), I8, -MOST, MOST)


def _quantize_compute(a: BlocksAttrs, operands: Sequence[te.Tensor], result: TensorType) -> te.Tensor:
    x, scale = operands

    def body(*i: Int) -> te.ScalarValue:
        each = scale[(*i[:-1], floordiv(i[-1], lit(a.block)))]
        q = te.unary(UnaryOp.ROUND_EVEN, x[i] / each)
        return saturate(te.select(each.equals(0.0), 0.0, q), I32, -MOST, MOST).cast(I8)

    return te.compute(result.shape, body, name="quantize_blocks")


def _sums_rule(ctx: TypeContext, a: BlocksAttrs, args: Types) -> TensorType:
    return TensorType(_one_of_each(ctx, a, rules.tensor(ctx, args, 0, (I8,))), I32)


def _sums_reference(a: BlocksAttrs, q: Array) -> Array:
    return _in_blocks(q, a.block).sum(-1, dtype=np.int32)


def _sums_compute(a: BlocksAttrs, operands: Sequence[te.Tensor], result: TensorType) -> te.Tensor:
    (q,) = operands

    def body(*i: Int) -> te.ScalarValue:
        k = te.reduce_axis("k", a.block)
        return te.sum_over(k, _term(q, a.block, i, k).cast(I32))

    return te.compute(result.shape, body, name="sum_blocks")


# --------------------------------------------------------------------------- products


def _matmul_rule(ctx: TypeContext, a: BlocksAttrs, args: Types) -> TensorType:
    x, scale = rules.tensor(ctx, args, 0, (I8,)), rules.tensor(ctx, args, 1, (F32,))
    w = rules.of_rank(ctx, rules.tensor(ctx, args, 2, BYTES), 2, "the weights")
    rules.same_shape(ctx, scale, _one_of_each(ctx, a, x), "the scale of the left operand")
    per_block(ctx, rules.tensor(ctx, args, 3, (F32,)), w.shape, 0, a.block, "the scale")
    if len(args) > 4:
        zero = rules.tensor(ctx, args, 4)
        zero_rule(ctx, zero, w, F32)
        per_block(ctx, zero, w.shape, 0, a.block, "the zero point")
    return TensorType(matmul_shape(ctx, x.shape, w.shape), F32)


def _matmul_reference(a: BlocksAttrs, x: Array, scale: Array, w: Array, *others: Array) -> Array:
    return _product(a.block, x, scale, w.astype(np.int32), *others)


def _product(block: int, x: Array, scale: Array, w: Array, each: Array, zero: Array | None = None) -> Array:
    """Return the product of integers, block by block, with scales and zero points of the weights."""
    y = np.zeros((*x.shape[:-1], w.shape[1]), np.float32)
    for b in range(each.shape[0]):
        q, own = (v.astype(np.int32) for v in (x[..., b * block :][..., :block], w[b * block :][:block]))
        total = np.matmul(q, own).astype(np.float32)
        if zero is not None:
            total = total - q.sum(-1, keepdims=True).astype(np.float32) * zero[b].astype(np.float32)
        y += total * (scale[..., b, None] * each[b])
    return y


def _matmul_compute(a: BlocksAttrs, operands: Sequence[te.Tensor], result: TensorType) -> te.Tensor:
    x, scale, w, each, *zero = operands

    def body(*i: Int) -> te.ScalarValue:
        k = te.reduce_axis("k", x.shape[-1])
        block = floordiv(k, lit(a.block))
        whole = w[k, i[-1]].cast(F32)
        real = whole - zero[0][block, i[-1]].cast(F32) if zero else whole
        left = x[(*i[:-1], k)].cast(F32) * scale[(*i[:-1], block)]
        return te.sum_over(k, left * (real * each[block, i[-1]]))

    return te.compute(result.shape, body, name="matmul")


def packed_groups(w: Array, panel: int, bits: int) -> Array:
    """Return rows from 0 up in panels, four neighbors side by side; with 4 bits eight, two in a byte.

    Args:
        w: `[k, n]`, integers below `2 ** bits`; k a multiple of 4, or of 8 with 4 bits.
        panel: columns in a panel.
        bits: of one, 8 or 4.

    Returns:
        bytes, `[ceil(n / panel), k * bits / 32, panel, 4]`.
    """
    rows = pack_reference(PackAttrs(panel), w.astype(np.uint8))  # [panels, k, panel]
    grouped = rows.reshape(rows.shape[0], -1, 8 // bits, GROUP, panel).swapaxes(-1, -2)
    low = grouped[:, :, 0]
    return np.ascontiguousarray(low if bits == 8 else low | (grouped[:, :, 1] << 4))


def _unpacked(w: Array, bits: int, n: int) -> Array:
    """Return the rows that `packed_groups` packed."""
    parts = [w] if bits == 8 else [w & 15, w >> 4]
    panels, _, panel, _ = w.shape
    rows = np.stack(parts, 2).swapaxes(-1, -2).reshape(panels, -1, panel)
    return rows.transpose(1, 0, 2).reshape(rows.shape[1], -1)[:, :n]


def _packed_rule(ctx: TypeContext, a: PackedWeightsAttrs, args: Types) -> TensorType:
    x, scale = rules.tensor(ctx, args, 0, (I8,)), rules.tensor(ctx, args, 1, (F32,))
    sums, w = rules.tensor(ctx, args, 2, (I32,)), rules.tensor(ctx, args, 3, (U8,))
    rules.least_rank(ctx, x, 1, "the left operand")
    if (
        a.bits not in (4, 8)
        or a.panel < 1
        or a.block < 1
        or a.block % step_of(a.block)
        or a.block % WIDEST_GROUP
    ):
        raise ctx.fail(
            f"found {a.bits} bits, panels of {a.panel}, blocks of {a.block}, needed 4 or 8 bits and blocks "
            f"of whole groups of {WIDEST_GROUP} and whole steps of {STEP}"
        )
    terms, panels = x.shape[-1], ceildiv(a.n, a.panel)
    ctx.equal(mod(terms, lit(a.block)), lit(0), "terms behind whole blocks")
    blocks = floordiv(terms, lit(a.block))
    rules.same_shape(ctx, scale, (*x.shape[:-1], blocks), "the scale of the left operand")
    steps = floordiv(terms, lit(step_of(a.block)))
    rules.same_shape(ctx, sums, (*x.shape[:-1], steps), "the sums of the left operand")
    ctx.equal(w.shape[1] * (GROUP * 8 // a.bits), terms, "columns of lhs and rows of the packed rhs")
    rules.same_shape(ctx, w, (panels, w.shape[1], lit(a.panel), lit(GROUP)), "the packed weights")
    for i, formats in ((4, (F32,)), (5, (F32, U8)))[: len(args) - 4]:
        p = rules.tensor(ctx, args, i, formats)
        rules.same_shape(ctx, p, (panels, blocks, lit(a.panel)), "scale or zero point")
    return TensorType((*x.shape[:-1], lit(a.n)), F32)


def _packed_reference(
    a: PackedWeightsAttrs, x: Array, scale: Array, _sums: Array, w: Array, *packed: Array
) -> Array:
    others = (p.transpose(1, 0, 2).reshape(p.shape[1], -1)[:, : a.n] for p in packed)
    return _product(a.block, x, scale, _unpacked(w, a.bits, a.n).astype(np.int32) - a.zero, *others)


def _packed_compute(a: PackedWeightsAttrs, operands: Sequence[te.Tensor], result: TensorType) -> te.Tensor:
    x, scale, sums, w, each, *zero = operands
    step, panel = step_of(a.block), lit(a.panel)

    def body(*i: Int) -> te.ScalarValue:
        at, lane, row = floordiv(i[-1], panel), mod(i[-1], panel), i[:-1]
        c = te.reduce_axis("c", floordiv(x.shape[-1], lit(step)))
        block = floordiv(c, lit(a.block // step))

        def weight(group: Int, half: int, j: Int) -> te.ScalarValue:
            q = w[at, group, lane, j]
            return q if a.bits == 8 else (q >> 4 if half else q & 15)

        total = sums[(*row, c)] * -a.zero if a.zero else te.const(0, I32)
        wide = GROUP * 8 // a.bits
        for group in range(step // wide):
            for half in range(8 // a.bits):
                at_x = c * step + (group * wide + half * GROUP)
                at_w = c * (step // wide) + group
                total = te.dot(
                    total, GROUP, lambda j, g=at_w, h=half, k=at_x: (weight(g, h, j), x[(*row, k + j)])
                )
        real = total.cast(F32)
        if zero:
            real = real - sums[(*row, c)].cast(F32) * zero[0][at, block, lane].cast(F32)
        return te.sum_over(c, real * (scale[(*row, block)] * each[at, block, lane]))

    return te.compute(result.shape, body, name="matmul", tag="matmul_packed")


# --------------------------------------------------------------------------- samples


def _rounding_samples() -> list[Sample]:
    x = noise((2, 3, 12), F32, low=-3, high=3, seed="x")
    odd = np.array([[0, 0, 0, 0, 1, -2, 3e38, 1e-45, 2.5, -127, 0.5, 1.5]], np.float32)
    return [
        Sample("blocks", BlocksAttrs(4), (x,), (("a", "b", 12),)),
        Sample("a short block", BlocksAttrs(5), (x,), (("a", "b", 12),)),
        Sample("open terms", BlocksAttrs(4), (x[0],), (("a", "k"),)),
        Sample("zeros and ties", BlocksAttrs(4), (odd,)),
    ]


def _quantize_samples() -> list[Sample]:
    made: list[Sample] = []
    for s in _rounding_samples():
        assert isinstance(s.attrs, BlocksAttrs)
        (x,) = s.args
        made.append(Sample(s.name, s.attrs, (x, _scales_reference(s.attrs, np.asarray(x)))))
    return made


def _sums_samples() -> list[Sample]:
    q = noise((2, 3, 12), I8, low=-127, high=127, seed="q")
    return [
        Sample("blocks", BlocksAttrs(4), (q,), (("a", "b", 12),), exact=True),
        Sample("a short block", BlocksAttrs(5), (q,), (("a", "b", 12),), exact=True),
    ]


def _sides(rows: tuple[int, ...], k: int, n: int, block: int, most: int) -> tuple[Array, ...]:
    x = noise((*rows, k), I8, low=-127, high=127, seed="x")
    scale = noise((*rows, -(-k // block)), F32, low=0.001, high=0.01, seed="s")
    w = noise((k, n), U8, low=0, high=most, seed="w")
    each = noise((-(-k // block), n), F32, low=0.001, high=0.01, seed="sw")
    return x, scale, w, each, noise(each.shape, F32, low=0, high=most, seed="z")


def _matmul_samples() -> list[Sample]:
    plain = _sides((3,), 12, 5, 4, 255)
    short = _sides((2, 2), 10, 3, 4, 15)
    return [
        Sample("plain", BlocksAttrs(4), plain[:4], (("m", 12), ("m", 3), (12, 5), (3, 5))),
        Sample("zero points, a short block", BlocksAttrs(4), short),
    ]


def _packed_samples() -> list[Sample]:
    made: list[Sample] = []
    for rows, k, n, block, bits, has_zeros in (
        ((1,), 64, 12, 32, 4, False),
        ((5,), 48, 10, 16, 8, True),
        ((2, 3), 128, 9, 64, 4, True),
        ((17,), 64, 16, 64, 8, False),
    ):
        x, scale, w, each, zero = _sides(rows, k, n, block, 15 if bits == 4 else 255)
        zero = zero.astype(np.uint8) if bits == 8 else zero
        others = [pack_reference(PackAttrs(8), p) for p in ((each, zero) if has_zeros else (each,))]
        sums = _sums_reference(BlocksAttrs(step_of(block)), x)
        args = (x, scale, sums, packed_groups(w, 8, bits), *others)
        attrs = PackedWeightsAttrs(8, n, block, bits, 0 if has_zeros else 8)
        names = [f"m{i}" for i in range(len(rows))]
        symbolic = (*((*names, p.shape[-1]) for p in (x, scale, sums)), *(p.shape for p in args[3:]))
        made.append(Sample(f"{bits} bits, {rows} by {k} to {n}", attrs, args, symbolic))
    return made


def _terms(_: object, x: TensorType, *_others: TensorType) -> Int:
    """Return the products that are summed for one element."""
    return x.shape[-1]


DEFINITIONS: tuple[OpDef, ...] = (
    define(
        "block_scales",
        BlocksAttrs,
        _scales_rule,
        1,
        FusionPattern.REDUCTION,
        "the largest magnitude of each block of neighbors along the last axis, over 127",
        reference=_scales_reference,
        compute=_scales_compute,
        samples=_rounding_samples,
    ),
    define(
        "quantize_blocks",
        BlocksAttrs,
        _quantize_rule,
        2,
        FusionPattern.LAYOUT,
        "x / scale, with one scale for a block, to the nearest of -127 to 127; 0 where the scale is 0",
        reference=_quantize_reference,
        compute=_quantize_compute,
        samples=_quantize_samples,
    ),
    define(
        "sum_blocks",
        BlocksAttrs,
        _sums_rule,
        1,
        FusionPattern.REDUCTION,
        "the sum of each block of neighbors along the last axis, in i32",
        reference=_sums_reference,
        compute=_sums_compute,
        samples=_sums_samples,
    ),
    define(
        "matmul_quantized_blocks",
        BlocksAttrs,
        _matmul_rule,
        (4, 5),
        FusionPattern.CONTRACTION,
        "matmul of integers with a scale for a block of terms on each side, and zero points of weights",
        reference=_matmul_reference,
        compute=_matmul_compute,
        samples=_matmul_samples,
        terms=_terms,
    ),
    define(
        "matmul_quantized_blocks_packed",
        PackedWeightsAttrs,
        _packed_rule,
        (5, 6),
        FusionPattern.CONTRACTION,
        "the same by packed panels of groups, with the sums of what is left of them",
        reference=_packed_reference,
        compute=_packed_compute,
        samples=_packed_samples,
        form_of="matmul",
        terms=_terms,
    ),
)
