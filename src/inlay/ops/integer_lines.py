"""Convolutions whose last kernel axis and channels are one axis of terms.

Channels of the input are often few at first: three, or one. Then a group of neighbors along the channels
is partly zeros, for each element of the kernel. The pixels of a line are next to each other, however, and
so are the elements that a window reads of it: `kw * c` terms of one sum, whose group is filled but for the
last. So the input is given as lines `[n, *s, w * c]`, without a place for each channel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from inlay.arith.dtype import I8, I16, I32, U8, DType
from inlay.arith.expr import Int, ceildiv, floordiv, lit, mod, product
from inlay.ir.op import TypeContext
from inlay.ir.types import TensorType
from inlay.loop import te
from inlay.ops import _rules as rules
from inlay.ops._build import Array
from inlay.ops._define import FusionPattern, OpDef, Sample, define
from inlay.ops._rules import Types
from inlay.ops._windows import accepted, padded, resolve
from inlay.ops.integer_products import (
    IntegerConvAttrs,
    PackIntegerAttrs,
    brought,
    check_padding,
    last_reference,
    last_samples,
    pack_reference,
    packed_operands,
    shifted,
    unpacked,
)


@dataclass(frozen=True, slots=True)
class PackedLinesAttrs:
    """As for packed convolutions of one group; the last axis of the input is pixels and channels in one.

    Attributes:
        panel, channels, group, operand, strides, pads, outside, shift: as there.
        dilations: of all spatial axes; that of the last is 1.
        width: of the kernel along the last axis.
        inputs: channels of the input.
    """

    panel: int
    channels: int
    width: int
    inputs: int
    group: int = 1
    operand: DType = I16
    strides: tuple[int, ...] = ()
    pads: tuple[int, ...] = ()
    dilations: tuple[int, ...] = ()
    outside: int = 0
    shift: int = 0


def _rule(ctx: TypeContext, a: PackedLinesAttrs, args: Types) -> TensorType:
    x, w = packed_operands(ctx, a, a.channels, args)
    rules.least_rank(ctx, x, 2, "the input")
    check_padding(ctx, a.outside, x)
    rules.of_rank(ctx, w, len(x.shape) + 2, "the packed weights")
    if a.inputs < 1 or a.width < 1 or (a.dilations or (1,))[-1] != 1:
        raise ctx.fail("found no channels, no width or a dilation along the last axis, needed none")
    ctx.equal(mod(x.shape[-1], lit(a.inputs)), lit(0), "a line of the input divides into pixels")
    ctx.equal(w.shape[-3], ceildiv(a.width * a.inputs, a.group), "groups of terms of the packed weights")
    windows = resolve(ctx, (*w.shape[1:-3], lit(a.width)), a.strides, a.dilations, a.pads)
    sizes = (*x.shape[1:-1], floordiv(x.shape[-1], lit(a.inputs)))
    return TensorType((x.shape[0], *windows.out(ctx, sizes), lit(a.channels)), I32)


def _reference(a: PackedLinesAttrs, x: Array, w: Array) -> Array:
    whole = unpacked(w, a.width * a.inputs, a.channels)
    whole = whole.reshape(*whole.shape[:-2], a.width, a.inputs, a.channels)
    pixels = x.reshape(*x.shape[:-1], x.shape[-1] // a.inputs, a.inputs)
    attrs = IntegerConvAttrs(a.strides, a.pads, a.dilations, 1, a.outside + a.shift)
    return last_reference(attrs, shifted(pixels, a.shift), whole)


def _compute(a: PackedLinesAttrs, operands: Sequence[te.Tensor], result: TensorType) -> te.Tensor:
    x, w = operands
    windows = accepted((*w.shape[1:-3], lit(a.width)), a.strides, a.dilations, a.pads)
    steps, panel, out = w.shape[-3], lit(a.panel), result.shape[1:-1]
    outer = windows.without_last()
    source = padded(x, 1, outer, out[:-1], a.outside) if out[:-1] else x
    before, stride = windows.before[-1] * a.inputs, windows.strides[-1] * a.inputs
    length = (out[-1] - 1) * stride + steps * a.group

    behind = windows.after[-1] or steps * a.group != a.width * a.inputs

    def line(*i: Int) -> te.ScalarValue:
        at = i[-1] - before
        inside = te.all_of(
            te.index(at) >= 0 if before else None, te.index(at) < te.index(x.shape[-1]) if behind else None
        )
        value = brought(source[(*i[:-1], at)], a)
        return te.guarded(inside, value, te.const(a.outside + a.shift, a.operand))

    whole = te.compute((*source.shape[:-1], length), line, name="widened", tag="widened", stored=True)

    def body(n: Int, *rest: Int) -> te.ScalarValue:
        *at, o = rest
        k = [te.reduce_axis(f"k{i}", extent) for i, extent in enumerate(outer.kernel)]
        t, j = te.reduce_axis("t", steps), te.reduce_axis("j", a.group)
        weight = w[(floordiv(o, panel), *k, t, mod(o, panel), j)].cast(I32)
        value = whole[(n, *outer.at(at[:-1], k), at[-1] * stride + t * a.group + j)].cast(I32)
        return te.sum_over([*k, t, j], value * weight)

    return te.compute(result.shape, body, name="conv", tag="conv_lines_integer_packed")


# --------------------------------------------------------------------------- samples


def _samples() -> list[Sample]:
    made: list[Sample] = []
    for i, (sample, group) in enumerate(
        zip(last_samples()[:-1], (2, 4, 2, 2, 2, 2, 2, 4, 2, 2), strict=True)
    ):
        x, w = sample.args
        c = sample.attrs
        assert isinstance(w, np.ndarray)
        assert isinstance(x, np.ndarray)
        assert isinstance(c, IntegerConvAttrs)
        if c.groups > 1 or (c.dilations or (1,))[-1] != 1:
            continue
        group = 4 if i % 4 == 1 else 2
        *kernel, width, inputs, channels = w.shape
        flat = w.reshape(*kernel, width * inputs, channels)
        shift = 128 * (x.dtype == np.int8)
        dtype, operand = (I8, U8) if shift else (I16, I16)
        packed = pack_reference(PackIntegerAttrs(4, group, dtype), flat)
        window = (c.strides, c.pads, c.dilations, 7 * (i % 2))
        attrs = PackedLinesAttrs(4, channels, width, inputs, group, operand, *window, shift)
        lines = x.reshape(*x.shape[:-2], x.shape[-2] * inputs)
        made.append(Sample(f"{sample.name} {group}", attrs, (lines, packed)))
    return made


DEFINITIONS: tuple[OpDef, ...] = (
    define(
        "conv_lines_integer_packed",
        PackedLinesAttrs,
        _rule,
        2,
        FusionPattern.CONTRACTION,
        "conv_integer of lines [n, *s, w * c] with packed panels [ceil(oc/panel), *k, ceil(kw*c/group), "
        "panel, group]: the last axis of the kernel and the channels are one",
        reference=_reference,
        compute=_compute,
        samples=_samples,
        form_of="conv_integer",
        terms=lambda _, x, w: product(w.shape[1:-2]) * w.shape[-1],
    ),
)
