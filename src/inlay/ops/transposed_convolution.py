"""Transposed convolution: the gradient of a convolution by its input.

`x` is `[n, c, *spatial]`, weights are `[c, oc/groups, *kernel]`. Strides, dilations and pads are as in
`_windows.py`. Narrow floats accumulate in f32.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from inlay.arith.dtype import F32
from inlay.arith.expr import Int, ceildiv, floordiv, lit, mod, product
from inlay.ir.builder import Builder
from inlay.ir.expr import Expr
from inlay.ir.op import TypeContext
from inlay.ir.types import TensorType
from inlay.loop import te
from inlay.ops import _phases as phases
from inlay.ops import _rules as rules
from inlay.ops._build import Array, widen, widened
from inlay.ops._define import FusionPattern, OpDef, Sample, define
from inlay.ops._rules import Types
from inlay.ops._samples import noise
from inlay.ops._windows import accepted, resolve
from inlay.ops.convolution import CONV, ConvAttrs, conv_operands, narrowed


@dataclass(frozen=True, slots=True)
class ConvTransposeAttrs:
    """As for `conv`; `output_pads`: further elements behind each axis of the result."""

    strides: tuple[int, ...] = ()
    pads: tuple[int, ...] = ()
    dilations: tuple[int, ...] = ()
    groups: int = 1
    output_pads: tuple[int, ...] = ()


def _rule(ctx: TypeContext, a: ConvTransposeAttrs, args: Types) -> TensorType:
    x, w = conv_operands(ctx, args)
    rules.of_rank(ctx, w, len(x.shape), "the weights")
    if a.groups < 1:
        raise ctx.fail(f"found {a.groups} groups, needed at least 1")
    c = ctx.equal(x.shape[1], w.shape[0], "channels of the input and of the weights")
    if a.groups > 1:
        ctx.equal(mod(c, lit(a.groups)), lit(0), "input channels divide into groups")
    windows = resolve(ctx, w.shape[2:], a.strides, a.dilations, a.pads)
    more = rules.per_axis(ctx, a.output_pads, windows.count, 0, "output_pads", 0)
    dims = [x.shape[0], w.shape[1] * a.groups]
    for i in range(windows.count):
        reach = (windows.kernel[i] - 1) * windows.dilations[i] + 1
        cut = windows.before[i] + windows.after[i]
        size = (x.shape[2 + i] - 1) * windows.strides[i] + reach - cut + more[i]
        ctx.at_least(size, 0, "the result is not cut away by pads")
        dims.append(size)
    return TensorType(tuple(dims), x.dtype)


def _reference(a: ConvTransposeAttrs, x: Array, w: Array) -> Array:
    windows = accepted([lit(k) for k in w.shape[2:]], a.strides, a.dilations, a.pads)
    more = a.output_pads or (0,) * windows.count
    n, c, *sizes = x.shape
    per_group, s = w.shape[1], windows.count
    reach = [(w.shape[2 + i] - 1) * windows.dilations[i] + 1 for i in range(s)]
    whole = [(sizes[i] - 1) * windows.strides[i] + reach[i] + more[i] for i in range(s)]
    y = np.zeros((n, a.groups, per_group, *whole), widen(x).dtype)
    inputs = widen(x).reshape(n, a.groups, c // a.groups, *sizes)
    filters = widen(w).reshape(a.groups, c // a.groups, *w.shape[1:])
    spatial = "xyz"[:s]
    for k in np.ndindex(*w.shape[2:]):
        part = np.einsum(f"ngc{spatial},gcm->ngm{spatial}", inputs, filters[(..., *k)])
        place = tuple(
            slice(
                k[i] * windows.dilations[i],
                k[i] * windows.dilations[i] + (sizes[i] - 1) * windows.strides[i] + 1,
                windows.strides[i],
            )
            for i in range(s)
        )
        if x.size:
            y[(..., *place)] += part
    cut = tuple(slice(windows.before[i], whole[i] - windows.after[i]) for i in range(s))
    return y.reshape(n, a.groups * per_group, *whole)[(..., *cut)].astype(x.dtype)


def _decompose(b: Builder, a: ConvTransposeAttrs, args: tuple[Expr, ...]) -> Expr | None:
    """Take plain convolutions, which have schedules, where windows of floats are known."""
    x, w = args
    assert isinstance(x.type, TensorType)
    assert isinstance(w.type, TensorType)
    kernel = [n.value for n in w.type.shape[2:] if n.value]
    if len(kernel) < len(w.type.shape) - 2 or not x.type.dtype.is_float:
        return None
    windows = accepted(w.type.shape[2:], a.strides, a.dilations, a.pads)
    more = a.output_pads or (0,) * windows.count
    axes = [
        phases.axis_of(kernel[i], stride, windows.before[i], windows.after[i], more[i])
        for i, stride in enumerate(windows.strides)
    ]
    split = [axis for axis in axes if axis is not None]
    if len(split) < len(axes) or any(d > 1 for d in windows.dilations):
        return None

    def conv(chosen: tuple[int, ...]) -> Expr:
        weights = phases.weights_of(b, w, a.groups, split, chosen)
        taps = [axis.classes[i][2] for axis, i in zip(split, chosen, strict=True)]
        fronts, ends = zip(*(s.pads(t) for s, t in zip(split, taps, strict=True)), strict=True)
        attrs = ConvAttrs(pads=(*fronts, *ends), groups=a.groups)
        return b.emit(CONV, (x, weights), attrs, name="phase")

    sizes = [
        (x.type.shape[2 + i] - 1) * windows.strides[i]
        + kernel[i]
        + more[i]
        - windows.before[i]
        - windows.after[i]
        for i in range(windows.count)
    ]
    shape = (x.type.shape[0], w.type.shape[1] * a.groups, *sizes)
    return phases.interleaved(b, a.groups, split, TensorType(shape, x.type.dtype), conv)


def _terms(attrs: ConvTransposeAttrs, x: TensorType, w: TensorType) -> Int:
    """Of an element that lies between strides fewer products are summed: this is the mean."""
    steps = math.prod(attrs.strides) * attrs.groups
    return ceildiv(product((w.shape[0], *w.shape[2:])), steps)


def _compute(a: ConvTransposeAttrs, operands: Sequence[te.Tensor], result: TensorType) -> te.Tensor:
    x, w = operands
    wide = widened(x.dtype)
    windows = accepted(w.shape[2:], a.strides, a.dilations, a.pads)
    per_group = floordiv(x.shape[1], lit(a.groups))

    def body(n: Int, o: Int, *at: Int) -> te.ScalarValue:
        c = te.reduce_axis("c", per_group)
        met = [windows.meeting(i, u + windows.before[i], x.shape[2 + i]) for i, u in enumerate(at)]
        inside = te.all_of(*(one.inside for one in met))
        group = floordiv(o, w.shape[1]) if a.groups > 1 else lit(0)
        channel = group * per_group + c
        value = x[(n, channel, *(one.window for one in met))].cast(wide)
        weight = w[(channel, o - group * w.shape[1], *(one.tap for one in met))].cast(wide)
        return te.sum_over([c, *(one.axis for one in met)], te.guarded(inside, value * weight, 0))

    return narrowed(te.compute(result.shape, body, name="conv", tag="conv_transpose"), result)


def _samples() -> list[Sample]:
    made: list[Sample] = []
    for shape, oc, kernel, attrs in (
        ((1, 3, 4, 5), 2, (3, 3), ConvTransposeAttrs()),
        ((2, 3, 4, 5), 2, (3, 3), ConvTransposeAttrs((2, 2), (1, 1, 1, 1), (), 1, (1, 1))),
        ((1, 4, 4, 3), 6, (2, 2), ConvTransposeAttrs((2, 2), (), (), 2)),
        ((1, 2, 5, 5), 3, (3, 2), ConvTransposeAttrs((1, 3), (2, 0, 1, 1), (2, 1))),
        ((2, 3, 6), 4, (4,), ConvTransposeAttrs((2,), (1, 1))),
        ((1, 2, 3, 3, 2), 2, (2, 2, 3), ConvTransposeAttrs((2, 1, 2))),
        ((1, 2, 5), 2, (2,), ConvTransposeAttrs((3,), (1, 0))),
        ((1, 2, 4), 2, (5,), ConvTransposeAttrs((4,), (3, 1), (6,))),
        ((1, 2, 4, 3), 2, (3, 4), ConvTransposeAttrs((5, 2), (), (3, 2))),
        ((1, 2, 2, 4), 2, (3, 5), ConvTransposeAttrs((2, 3), (3, 0, 2, 1))),
        ((0, 3, 4, 5), 2, (3, 3), ConvTransposeAttrs()),
    ):
        x = noise(shape, F32, seed="x")
        w = noise((shape[1], oc // attrs.groups, *kernel), F32, seed="w")
        names = ("n", shape[1], *(f"s{i}" for i in range(len(kernel))))
        made.append(Sample(f"{shape} {kernel} {attrs}", attrs, (x, w), (names, w.shape)))
    return made


DEFINITIONS: tuple[OpDef, ...] = (
    define(
        "conv_transpose",
        ConvTransposeAttrs,
        _rule,
        2,
        FusionPattern.CONTRACTION,
        "the gradient of conv by its input: [n, c, *s] with [c, oc/groups, *k]",
        reference=_reference,
        compute=_compute,
        decompose=_decompose,
        samples=_samples,
        terms=_terms,
    ),
)
