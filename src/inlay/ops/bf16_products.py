"""Products of bf16 in the form that kernels compute where an instruction adds a few of them to an f32.

    matmul(cast(x, f32), cast(w, f32))      x, w: bf16
    conv_nhwc(cast(x, f32), cast(w, f32))

are the meaning: sums and result are f32. These are made of them for a device that has such an instruction:

    matmul_bf16_packed         [ceil(n/panel), ceil(k/group), panel, group]
    conv_nhwc_bf16_packed      [ceil(oc/panel), *kernel, ceil(c/group), panel, group]

The layout is that of narrow integers (`integer_products`): the `group` neighbors along a sum that are
multiplied at once lie next to each other, zeros behind the last. So does the other operand; where it is f32
it is rounded in a stage in front of the sums, which also pads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from inlay.arith.dtype import BF16, F32, DType
from inlay.arith.expr import Int, ceildiv, floordiv, lit, mod, product
from inlay.ir.op import TypeContext
from inlay.ir.types import TensorType
from inlay.loop import te
from inlay.ops import _rules as rules
from inlay.ops import convolution as floats
from inlay.ops._build import Array, widen
from inlay.ops._define import FusionPattern, OpDef, Sample, define
from inlay.ops._rules import Types
from inlay.ops._samples import noise
from inlay.ops._windows import accepted, padded, resolve
from inlay.ops.convolution import ConvAttrs, sums_last
from inlay.ops.integer_products import (
    PackIntegerAttrs,
    brought_operand,
    pack_reference,
    packed_weights_compute,
    packed_weights_type,
    unpacked,
)

SOURCES: tuple[DType, ...] = (BF16, F32)
"""What the left operand may be."""


@dataclass(frozen=True, slots=True)
class PackBf16Attrs:
    """`panel`: columns in a panel; `group`: neighbors along a sum that are multiplied at once."""

    panel: int
    group: int = 2


@dataclass(frozen=True, slots=True)
class PackedBf16Attrs:
    """`panel`, `n` columns of the result, `group`."""

    panel: int
    n: int
    group: int = 2


@dataclass(frozen=True, slots=True)
class PackedBf16ConvAttrs:
    """As for `conv` of one group, `channels` of the result, in panels of `panel`, and `group` terms."""

    panel: int
    channels: int
    group: int = 2
    strides: tuple[int, ...] = ()
    pads: tuple[int, ...] = ()
    dilations: tuple[int, ...] = ()


def rounded(x: Array) -> Array:
    """Return numbers as those of bf16, in f32."""
    return x.astype(BF16.numpy).astype(np.float32)


# --------------------------------------------------------------------------- packing


def _pack_rule(ctx: TypeContext, a: PackBf16Attrs, args: Types) -> TensorType:
    w = rules.least_rank(ctx, rules.tensor(ctx, args, 0, SOURCES), 2, "the weights")
    return packed_weights_type(ctx, w, _as_integers(a))


def _as_integers(a: PackBf16Attrs) -> PackIntegerAttrs:
    """Return the same layout as that of integers is said."""
    return PackIntegerAttrs(a.panel, a.group, BF16)


def pack(a: PackBf16Attrs, w: Array) -> Array:
    """Return an array `[*k, c, n]` in panels."""
    return pack_reference(_as_integers(a), w)


def _pack_compute(a: PackBf16Attrs, operands: Sequence[te.Tensor], result: TensorType) -> te.Tensor:
    return packed_weights_compute(_as_integers(a), operands, result)


# --------------------------------------------------------------------------- products


@dataclass(frozen=True, slots=True)
class _Brought:
    """How the left operand is brought to what the instruction reads (`integer_products.Packed`)."""

    panel: int
    group: int
    operand: DType = BF16
    shift: int = 0


def _operands(
    ctx: TypeContext, a: PackedBf16Attrs | PackedBf16ConvAttrs, columns: int, args: Types
) -> tuple[TensorType, TensorType]:
    x, w = rules.tensor(ctx, args, 0, SOURCES), rules.tensor(ctx, args, 1, (BF16,))
    for what, found in (("panel", a.panel), ("group", a.group)):
        if found < 1:
            raise ctx.fail(f"found {what} {found}, needed at least 1")
    rules.least_rank(ctx, w, 4, "the packed weights")
    ctx.equal(w.shape[0], ceildiv(columns, a.panel), "panels of the packed weights")
    ctx.equal(w.shape[-2], lit(a.panel), "columns of a panel")
    ctx.equal(w.shape[-1], lit(a.group), "terms of a group")
    ctx.equal(w.shape[-3], ceildiv(x.shape[-1], a.group), "groups of terms of the packed weights")
    return x, w


def _matmul_rule(ctx: TypeContext, a: PackedBf16Attrs, args: Types) -> TensorType:
    x, w = _operands(ctx, a, a.n, args)
    rules.least_rank(ctx, x, 1, "the left operand")
    rules.of_rank(ctx, w, 4, "the packed weights")
    return TensorType((*x.shape[:-1], lit(a.n)), F32)


def _matmul_reference(a: PackedBf16Attrs, x: Array, w: Array) -> Array:
    return np.asarray(np.matmul(rounded(x), widen(unpacked(w, x.shape[-1], a.n))))


def _matmul_compute(a: PackedBf16Attrs, operands: Sequence[te.Tensor], result: TensorType) -> te.Tensor:
    x, w = operands
    source, panel = brought_operand(x, _Brought(a.panel, a.group)), lit(a.panel)

    def body(*i: Int) -> te.ScalarValue:
        k, j = te.reduce_axis("k", w.shape[1]), te.reduce_axis("j", a.group)
        weight = w[floordiv(i[-1], panel), k, mod(i[-1], panel), j].cast(F32)
        return te.sum_over([k, j], source[(*i[:-1], k * a.group + j)].cast(F32) * weight)

    return te.compute(result.shape, body, name="matmul", tag="matmul_bf16_packed")


def _conv_rule(ctx: TypeContext, a: PackedBf16ConvAttrs, args: Types) -> TensorType:
    x, w = _operands(ctx, a, a.channels, args)
    floats.conv_operands(ctx, (TensorType(x.shape, F32), TensorType(w.shape, F32)), last=True)
    rules.of_rank(ctx, w, len(x.shape) + 2, "the packed weights")
    windows = resolve(ctx, w.shape[1:-3], a.strides, a.dilations, a.pads)
    return TensorType((x.shape[0], *windows.out(ctx, x.shape[1:-1]), lit(a.channels)), F32)


def _conv_reference(a: PackedBf16ConvAttrs, x: Array, w: Array) -> Array:
    whole = widen(unpacked(w, x.shape[-1], a.channels))
    return floats.last_reference(ConvAttrs(a.strides, a.pads, a.dilations), rounded(x), whole)


def _conv_compute(a: PackedBf16ConvAttrs, operands: Sequence[te.Tensor], result: TensorType) -> te.Tensor:
    x, w = operands
    panel, steps = lit(a.panel), w.shape[-3]
    windows = accepted(w.shape[1:-3], a.strides, a.dilations, a.pads)
    source = brought_operand(padded(x, 1, windows, result.shape[1:-1], 0), _Brought(a.panel, a.group))

    def terms(k: Sequence[Int], o: Int) -> tuple[Sequence[te.Axis], Int, te.ScalarValue]:
        c, j = te.reduce_axis("c", steps), te.reduce_axis("j", a.group)
        return [c, j], c * a.group + j, w[(floordiv(o, panel), *k, c, mod(o, panel), j)]

    return sums_last(source, windows, result.shape, F32, terms, "conv_nhwc_bf16_packed")


# --------------------------------------------------------------------------- samples


def _pack_samples() -> list[Sample]:
    shapes = (((5, 10), 4, F32), ((6, 16), 16, BF16), ((3, 3, 4, 8), 4, F32), ((1, 2, 3, 5), 8, BF16))
    return [
        Sample(f"{shape} {d} by {panel}", PackBf16Attrs(panel), (noise(shape, d, seed="w"),), exact=True)
        for shape, panel, d in shapes
    ]


def _matmul_samples() -> list[Sample]:
    made: list[Sample] = []
    cases = (((5, 8), 12, 4, BF16), ((2, 3, 9), 10, 8, F32), ((33, 70), 48, 16, BF16), ((7,), 5, 4, BF16))
    for shape, n, panel, d in cases:
        w = pack(PackBf16Attrs(panel), noise((shape[-1], n), F32, seed="w"))
        rows = tuple(f"m{i}" for i in range(len(shape) - 1))
        symbolic = ((*rows, shape[-1]), w.shape)
        made.append(
            Sample(
                f"{d} {shape} to {n} by {panel}", PackedBf16Attrs(panel, n), (noise(shape, d), w), symbolic
            )
        )
    return made


def _conv_samples() -> list[Sample]:
    made: list[Sample] = []
    for i, sample in enumerate(floats.last_samples()):
        x, w = sample.args
        assert isinstance(x, np.ndarray)
        assert isinstance(w, np.ndarray)
        attrs = sample.attrs
        assert isinstance(attrs, ConvAttrs)
        if attrs.groups > 1:
            continue
        panel = (4, 8, 16)[i % 3]
        given: dict[str, Any] = {f.name: getattr(attrs, f.name) for f in fields(attrs) if f.name != "groups"}
        packed = pack(PackBf16Attrs(panel), w)
        own = x.astype(BF16.numpy) if i % 2 else x
        whole = PackedBf16ConvAttrs(panel, w.shape[-1], **given)
        made.append(
            Sample(f"{sample.name} by {panel}", whole, (own, packed), (sample.symbolic[0], packed.shape))
        )
    return made


DEFINITIONS: tuple[OpDef, ...] = (
    define(
        "pack_bf16_weights",
        PackBf16Attrs,
        _pack_rule,
        1,
        FusionPattern.LAYOUT,
        "[*k, c, n] as bf16 in [ceil(n/panel), *k, ceil(c/group), panel, group], zeros behind",
        reference=pack,
        compute=_pack_compute,
        samples=_pack_samples,
    ),
    define(
        "matmul_bf16_packed",
        PackedBf16Attrs,
        _matmul_rule,
        2,
        FusionPattern.CONTRACTION,
        "[..., k] in bf16 times packed panels [ceil(n/panel), ceil(k/group), panel, group], sums in f32",
        reference=_matmul_reference,
        compute=_matmul_compute,
        samples=_matmul_samples,
        form_of="matmul",
        terms=lambda _, x, w: w.shape[1] * w.shape[-1],
    ),
    define(
        "conv_nhwc_bf16_packed",
        PackedBf16ConvAttrs,
        _conv_rule,
        2,
        FusionPattern.CONTRACTION,
        "convolution in bf16 of [n, *s, c] with packed panels [ceil(oc/panel), *k, ceil(c/group), panel, "
        "group], sums in f32",
        reference=_conv_reference,
        compute=_conv_compute,
        samples=_conv_samples,
        form_of="conv",
        terms=lambda _, x, w: product(w.shape[1:-2]) * w.shape[-1],
    ),
)
