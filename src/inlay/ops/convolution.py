"""Convolutions of one to three spatial axes, and their transposes.

`x` is `[n, c, *spatial]` or, for the `_nhwc` forms, `[n, *spatial, c]`. The result has as many
channels as the weights have outputs; no bias (add it). Weights:

    conv                    [oc, c/groups, *kernel]
    conv_nhwc               [*kernel, c/groups, oc]
    conv_nhwc_packed        [ceil(oc/panel), *kernel, c/groups, panel]   made by pack_conv_weights
    depthwise_conv_nhwc     [*kernel, c]              one filter for each channel
    conv_transpose          [c, oc/groups, *kernel]

Strides, dilations and pads are as in `_windows.py`. Padding is with zeros. Narrow floats accumulate
in f32.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from inlay.arith.dtype import F16, F32, I32
from inlay.arith.expr import Int, ceildiv, floordiv, lit, mod, product
from inlay.ir.builder import Builder
from inlay.ir.expr import Const, Expr
from inlay.ir.make import const
from inlay.ir.op import TypeContext
from inlay.ir.types import TensorType
from inlay.loop import te
from inlay.ops import _phases as phases
from inlay.ops import _rules as rules
from inlay.ops._build import Array, widen, widened
from inlay.ops._define import FusionPattern, OpDef, Sample, define
from inlay.ops._rules import ELEMENTS, NUMBERS, Types
from inlay.ops._samples import noise
from inlay.ops._windows import Windows, accepted, padded, resolve, window_view
from inlay.ops.matmul import PackAttrs
from inlay.ops.reduction import then


@dataclass(frozen=True, slots=True)
class ConvAttrs:
    """`strides`, `pads` (all fronts, then all ends), `dilations`, `groups`."""

    strides: tuple[int, ...] = ()
    pads: tuple[int, ...] = ()
    dilations: tuple[int, ...] = ()
    groups: int = 1


@dataclass(frozen=True, slots=True)
class PackedConvAttrs:
    """As for `conv`, and `channels` of the result, in panels of `panel`."""

    panel: int
    channels: int
    strides: tuple[int, ...] = ()
    pads: tuple[int, ...] = ()
    dilations: tuple[int, ...] = ()
    groups: int = 1


@dataclass(frozen=True, slots=True)
class DepthwiseAttrs:
    """`strides`, `pads` (all fronts, then all ends), `dilations`."""

    strides: tuple[int, ...] = ()
    pads: tuple[int, ...] = ()
    dilations: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ConvTransposeAttrs:
    """As for `conv`; `output_pads`: further elements behind each axis of the result."""

    strides: tuple[int, ...] = ()
    pads: tuple[int, ...] = ()
    dilations: tuple[int, ...] = ()
    groups: int = 1
    output_pads: tuple[int, ...] = ()


def _operands(
    ctx: TypeContext, args: Types, *, last: bool = False
) -> tuple[TensorType, TensorType]:
    x, w = rules.tensors(ctx, args, NUMBERS)
    if not 3 <= len(x.shape) <= 5:
        raise ctx.fail(
            f"found input of rank {len(x.shape)}, needed 3 to 5: batch, channels and one to three "
            f"spatial axes{' between them' if last else ''}",
            id="type.rank-mismatch",
        )
    return x, w


def _channels(ctx: TypeContext, c: Int, per_group: Int, oc: Int, groups: int) -> None:
    if groups < 1:
        raise ctx.fail(f"found {groups} groups, needed at least 1")
    ctx.equal(c, per_group * groups, "channels of the input and of the weights times groups")
    if groups > 1:
        ctx.equal(mod(oc, lit(groups)), lit(0), "output channels divide into groups")


def _widened(y: te.Tensor, result: TensorType) -> te.Tensor:
    return y if y.dtype is result.dtype else then(y, lambda v: v.cast(result.dtype), "conv")


# --------------------------------------------------------------------------- channels first


def conv_rule(ctx: TypeContext, a: ConvAttrs, args: Types) -> TensorType:
    """Return the type of a convolution of `[n, c, *s]` with `[oc, c/groups, *k]`."""
    x, w = _operands(ctx, args)
    rules.of_rank(ctx, w, len(x.shape), "the weights")
    _channels(ctx, x.shape[1], w.shape[1], w.shape[0], a.groups)
    windows = resolve(ctx, w.shape[2:], a.strides, a.dilations, a.pads)
    return TensorType((x.shape[0], w.shape[0], *windows.out(ctx, x.shape[2:])), x.dtype)


def conv_reference(a: ConvAttrs, x: Array, w: Array) -> Array:
    """Convolve arrays `[n, c, *s]` with `[oc, c/groups, *k]`."""
    windows = accepted([lit(k) for k in w.shape[2:]], a.strides, a.dilations, a.pads)
    return _grouped(widen(x), widen(w), windows, a.groups).astype(x.dtype)


def _grouped(x: Array, w: Array, windows: Windows, groups: int) -> Array:
    """Convolve `[n, c, *s]` with `[oc, c/g, *k]`."""
    out = [
        (x.shape[2 + i] + windows.before[i] + windows.after[i] - (w.shape[2 + i] - 1) * d - 1)
        // windows.strides[i] + 1
        for i, d in enumerate(windows.dilations)
    ]  # fmt: skip
    view = window_view(x, 2, windows, out, 0)
    s = len(out)
    view = view.reshape(x.shape[0], groups, w.shape[1], *out, *w.shape[2:])
    filters = w.reshape(groups, w.shape[0] // groups, *w.shape[1:])
    spatial, kernel = "xyz"[:s], "uvw"[:s]
    y = np.einsum(f"ngc{spatial}{kernel},gmc{kernel}->ngm{spatial}", view, filters, optimize=True)
    return y.reshape(x.shape[0], w.shape[0], *out)


def conv_terms(_attrs: object, _x: TensorType, w: TensorType) -> Int:
    """Return how many products an element of `conv` sums: all of the weights of its channel."""
    return product(w.shape[1:])


def conv_compute(a: ConvAttrs, operands: Sequence[te.Tensor], result: TensorType) -> te.Tensor:
    """Return the stages of a convolution; padding is one of them, where there is any."""
    x, w = operands
    wide = widened(x.dtype)
    windows = accepted(w.shape[2:], a.strides, a.dilations, a.pads)
    source = padded(x, 2, windows, result.shape[2:], 0)
    per_group = floordiv(w.shape[0], lit(a.groups))

    def body(n: Int, o: Int, *at: Int) -> te.ScalarValue:
        c, k = te.reduce_axis("c", w.shape[1]), windows.axes()
        base = floordiv(o, per_group) * w.shape[1] if a.groups > 1 else lit(0)
        value = source[(n, base + c, *windows.at(at, k))].cast(wide)
        return te.sum_over([c, *k], value * w[(o, c, *k)].cast(wide))

    return _widened(te.compute(result.shape, body, name="conv", tag="conv"), result)


# --------------------------------------------------------------------------- channels last


def _last_rule(ctx: TypeContext, a: ConvAttrs, args: Types) -> TensorType:
    x, w = _operands(ctx, args, last=True)
    rules.of_rank(ctx, w, len(x.shape), "the weights")
    _channels(ctx, x.shape[-1], w.shape[-2], w.shape[-1], a.groups)
    windows = resolve(ctx, w.shape[:-2], a.strides, a.dilations, a.pads)
    return TensorType((x.shape[0], *windows.out(ctx, x.shape[1:-1]), w.shape[-1]), x.dtype)


def _last_reference(a: ConvAttrs, x: Array, w: Array) -> Array:
    first = conv_reference(a, np.moveaxis(x, -1, 1), np.moveaxis(w, (-1, -2), (0, 1)))
    return np.moveaxis(first, 1, -1)


def _last_compute(a: ConvAttrs, operands: Sequence[te.Tensor], result: TensorType) -> te.Tensor:
    x, w = operands
    wide = widened(x.dtype)
    windows = accepted(w.shape[:-2], a.strides, a.dilations, a.pads)
    source = padded(x, 1, windows, result.shape[1:-1], 0)
    per_group = floordiv(w.shape[-1], lit(a.groups))

    def body(n: Int, *rest: Int) -> te.ScalarValue:
        *at, o = rest
        k, c = windows.axes(), te.reduce_axis("c", w.shape[-2])
        base = floordiv(o, per_group) * w.shape[-2] if a.groups > 1 else lit(0)
        value = source[(n, *windows.at(at, k), base + c)].cast(wide)
        return te.sum_over([*k, c], value * w[(*k, c, o)].cast(wide))

    return _widened(te.compute(result.shape, body, name="conv", tag="conv_nhwc"), result)


def _depthwise_rule(ctx: TypeContext, a: DepthwiseAttrs, args: Types) -> TensorType:
    x, w = _operands(ctx, args, last=True)
    rules.of_rank(ctx, w, len(x.shape) - 1, "the weights")
    c = ctx.equal(x.shape[-1], w.shape[-1], "channels of the input and of the weights")
    windows = resolve(ctx, w.shape[:-1], a.strides, a.dilations, a.pads)
    return TensorType((x.shape[0], *windows.out(ctx, x.shape[1:-1]), c), x.dtype)


def _depthwise_reference(a: DepthwiseAttrs, x: Array, w: Array) -> Array:
    grouped = ConvAttrs(a.strides, a.pads, a.dilations, w.shape[-1])
    return _last_reference(grouped, x, w[..., None, :])


def _depthwise_compute(
    a: DepthwiseAttrs, operands: Sequence[te.Tensor], result: TensorType
) -> te.Tensor:
    x, w = operands
    wide = widened(x.dtype)
    windows = accepted(w.shape[:-1], a.strides, a.dilations, a.pads)
    source = padded(x, 1, windows, result.shape[1:-1], 0)

    def body(n: Int, *rest: Int) -> te.ScalarValue:
        *at, c = rest
        k = windows.axes()
        value = source[(n, *windows.at(at, k), c)].cast(wide)
        return te.sum_over(k, value * w[(*k, c)].cast(wide))

    return _widened(te.compute(result.shape, body, name="conv", tag="depthwise_conv_nhwc"), result)


# --------------------------------------------------------------------------- packed


def _pack_rule(ctx: TypeContext, a: PackAttrs, args: Types) -> TensorType:
    w = rules.least_rank(ctx, rules.tensor(ctx, args, 0, ELEMENTS), 3, "the weights")
    if a.panel < 1:
        raise ctx.fail(f"found panel {a.panel}, needed at least 1")
    return TensorType((ceildiv(w.shape[-1], a.panel), *w.shape[:-1], lit(a.panel)), w.dtype)


def _pack_reference(a: PackAttrs, w: Array) -> Array:
    panels = -(-w.shape[-1] // a.panel)
    full = np.zeros((*w.shape[:-1], panels * a.panel), w.dtype)
    full[..., : w.shape[-1]] = w
    split = full.reshape(*w.shape[:-1], panels, a.panel)
    return np.moveaxis(split, -2, 0)


def _pack_compute(a: PackAttrs, operands: Sequence[te.Tensor], result: TensorType) -> te.Tensor:
    (w,) = operands

    def body(p: Int, *rest: Int) -> te.ScalarValue:
        channel = p * a.panel + rest[-1]
        value = w[(*rest[:-1], channel)]
        if mod(w.shape[-1], lit(a.panel)) == 0:
            return value
        return te.select(te.index(channel) < te.index(w.shape[-1]), value, 0)

    return te.compute(result.shape, body, name="packed")


def _packed_rule(ctx: TypeContext, a: PackedConvAttrs, args: Types) -> TensorType:
    x, w = _operands(ctx, args, last=True)
    rules.of_rank(ctx, w, len(x.shape) + 1, "the packed weights")
    ctx.equal(w.shape[0], ceildiv(a.channels, a.panel), "panels of the packed weights")
    ctx.equal(w.shape[-1], lit(a.panel), "channels of a panel")
    _channels(ctx, x.shape[-1], w.shape[-2], lit(a.channels), a.groups)
    windows = resolve(ctx, w.shape[1:-2], a.strides, a.dilations, a.pads)
    return TensorType((x.shape[0], *windows.out(ctx, x.shape[1:-1]), lit(a.channels)), x.dtype)


def _packed_reference(a: PackedConvAttrs, x: Array, w: Array) -> Array:
    columns = w.shape[0] * w.shape[-1]
    whole = np.moveaxis(w, 0, -2).reshape(*w.shape[1:-1], columns)[..., : a.channels]
    return _last_reference(ConvAttrs(a.strides, a.pads, a.dilations, a.groups), x, whole)


def _packed_compute(
    a: PackedConvAttrs, operands: Sequence[te.Tensor], result: TensorType
) -> te.Tensor:
    x, w = operands
    wide, panel = widened(x.dtype), lit(a.panel)
    windows = accepted(w.shape[1:-2], a.strides, a.dilations, a.pads)
    source = padded(x, 1, windows, result.shape[1:-1], 0)
    per_group = lit(a.channels // a.groups)

    def body(n: Int, *rest: Int) -> te.ScalarValue:
        *at, o = rest
        k, c = windows.axes(), te.reduce_axis("c", w.shape[-2])
        base = floordiv(o, per_group) * w.shape[-2] if a.groups > 1 else lit(0)
        value = source[(n, *windows.at(at, k), base + c)].cast(wide)
        weight = w[(floordiv(o, panel), *k, c, mod(o, panel))]
        return te.sum_over([*k, c], value * weight.cast(wide))

    return _widened(te.compute(result.shape, body, name="conv", tag="conv_nhwc_packed"), result)


# --------------------------------------------------------------------------- transposed


def _transpose_rule(ctx: TypeContext, a: ConvTransposeAttrs, args: Types) -> TensorType:
    x, w = _operands(ctx, args)
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


def _transpose_reference(a: ConvTransposeAttrs, x: Array, w: Array) -> Array:
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


def _transpose_decompose(b: Builder, a: ConvTransposeAttrs, args: tuple[Expr, ...]) -> Expr | None:
    """Take plain convolutions, which have schedules, where the weights are constant floats."""
    x, w = args
    assert isinstance(x.type, TensorType)
    assert isinstance(w.type, TensorType)
    values = w.value if isinstance(w, Const) else None
    if not isinstance(values, np.ndarray) or not values.size or not x.type.dtype.is_float:
        return None
    windows = accepted(w.type.shape[2:], a.strides, a.dilations, a.pads)
    more = a.output_pads or (0,) * windows.count
    axes = [
        phases.axis_of(values.shape[2 + i], stride, windows.before[i], windows.after[i], more[i])
        for i, stride in enumerate(windows.strides)
    ]
    split = [axis for axis in axes if axis is not None]
    if len(split) < len(axes) or any(d > 1 for d in windows.dilations):
        return None

    def conv(chosen: tuple[int, ...]) -> Expr:
        weights = const(phases.weights_of(values, a.groups, split, chosen))
        taps = [axis.classes[i][2] for axis, i in zip(split, chosen, strict=True)]
        fronts, ends = zip(*(s.pads(t) for s, t in zip(split, taps, strict=True)), strict=True)
        attrs = ConvAttrs(pads=(*fronts, *ends), groups=a.groups)
        return b.emit(CONV, (x, weights), attrs, name="phase")

    sizes = [
        (x.type.shape[2 + i] - 1) * windows.strides[i] + values.shape[2 + i] + more[i]
        - windows.before[i] - windows.after[i]
        for i in range(windows.count)
    ]  # fmt: skip
    shape = (x.type.shape[0], w.type.shape[1] * a.groups, *sizes)
    return phases.interleaved(b, a.groups, split, TensorType(shape, x.type.dtype), conv)


def _transpose_terms(attrs: ConvTransposeAttrs, x: TensorType, w: TensorType) -> Int:
    """Of an element that lies between strides fewer products are summed: this is the mean."""
    steps = math.prod(attrs.strides) * attrs.groups
    return ceildiv(product((w.shape[0], *w.shape[2:])), steps)


def _transpose_compute(
    a: ConvTransposeAttrs, operands: Sequence[te.Tensor], result: TensorType
) -> te.Tensor:
    x, w = operands
    wide = widened(x.dtype)
    windows = accepted(w.shape[2:], a.strides, a.dilations, a.pads)
    per_group = floordiv(x.shape[1], lit(a.groups))

    def body(n: Int, o: Int, *at: Int) -> te.ScalarValue:
        c, k = te.reduce_axis("c", per_group), windows.axes()
        inside: te.ScalarValue | None = None
        places: list[Int] = []
        for i, stride in enumerate(windows.strides):
            offset = at[i] + windows.before[i] - k[i] * windows.dilations[i]
            place = floordiv(offset, lit(stride))
            if stride > 1:
                inside = te.all_of(inside, te.index(mod(offset, lit(stride))).equals(0))
            inside = te.all_of(inside, te.index(place) >= 0)
            inside = te.all_of(inside, te.index(place) < te.index(x.shape[2 + i]))
            places.append(place)
        group = floordiv(o, w.shape[1]) if a.groups > 1 else lit(0)
        channel = group * per_group + c
        value = x[(n, channel, *places)].cast(wide)
        weight = w[(channel, o - group * w.shape[1], *k)].cast(wide)
        return te.sum_over([c, *k], te.guarded(inside, value * weight, 0))

    return _widened(te.compute(result.shape, body, name="conv", tag="conv_transpose"), result)


# --------------------------------------------------------------------------- samples


@dataclass(frozen=True, slots=True)
class _Case:
    """Shape of the input (channels first), output channels, kernel, attributes."""

    x: tuple[int, ...]
    oc: int
    kernel: tuple[int, ...]
    attrs: ConvAttrs = ConvAttrs()

    @property
    def name(self) -> str:
        """A description."""
        a = self.attrs
        return (
            f"{self.x} to {self.oc} by {self.kernel} s{a.strides} p{a.pads} d{a.dilations} "
            f"g{a.groups}"
        )


_CASES = (
    _Case((1, 3, 7, 6), 4, (3, 3)),
    _Case((2, 3, 7, 6), 4, (3, 3), ConvAttrs(pads=(1, 1, 1, 1))),
    _Case((1, 4, 9, 8), 6, (3, 2), ConvAttrs((2, 1), (1, 0, 2, 1))),
    _Case((1, 2, 11, 11), 3, (3, 3), ConvAttrs((2, 2), (2, 2, 2, 2), (2, 2))),
    _Case((2, 6, 5, 5), 4, (1, 1)),
    _Case((1, 6, 6, 5), 6, (3, 3), ConvAttrs((1, 1), (1, 1, 1, 1), (), 3)),
    _Case((1, 4, 6, 5), 8, (3, 3), ConvAttrs((2, 2), (1, 1, 1, 1), (), 4)),
    _Case((2, 3, 10), 5, (4,), ConvAttrs((3,), (2, 1))),
    _Case((1, 2, 4, 5, 6), 3, (2, 3, 2), ConvAttrs((1, 2, 1), (0, 1, 1, 0, 1, 0))),
    _Case((0, 3, 7, 6), 4, (3, 3), ConvAttrs(pads=(1, 1, 1, 1))),
)


def _arrays(case: _Case) -> tuple[Array, Array]:
    x = noise(case.x, F32, seed="x")
    return x, noise((case.oc, case.x[1] // case.attrs.groups, *case.kernel), F32, seed="w")


def _first_names(case: _Case) -> tuple[str | int, ...]:
    return ("n", case.x[1], *(f"s{i}" for i in range(len(case.kernel))))


def _last_names(case: _Case) -> tuple[str | int, ...]:
    return ("n", *(f"s{i}" for i in range(len(case.kernel))), case.x[1])


def _conv_samples() -> list[Sample]:
    made: list[Sample] = []
    for case in _CASES:
        x, w = _arrays(case)
        made.append(Sample(case.name, case.attrs, (x, w), (_first_names(case), w.shape)))
    x, w = _arrays(_CASES[1])
    made += [
        Sample("f16", _CASES[1].attrs, (x.astype(np.float16), w.astype(np.float16))),
        Sample("i32", _CASES[1].attrs, (noise(x.shape, I32), noise(w.shape, I32))),
        Sample("free channels", _CASES[1].attrs, (x, w), ((2, "c", 7, 6), ("o", "c", 3, 3))),
    ]
    return made


def _last_samples() -> list[Sample]:
    made: list[Sample] = []
    for case in _CASES:
        x, w = _arrays(case)
        x = np.ascontiguousarray(np.moveaxis(x, 1, -1))
        w = np.ascontiguousarray(np.moveaxis(w, (0, 1), (-1, -2)))
        made.append(Sample(case.name, case.attrs, (x, w), (_last_names(case), w.shape)))
    return made


def _pack_samples() -> list[Sample]:
    return [
        Sample(f"{oc} by {p}", PackAttrs(p), (noise((3, 3, 2, oc), F32),), exact=True)
        for oc, p in ((8, 4), (6, 4), (3, 16))
    ]


def _packed_samples() -> list[Sample]:
    made: list[Sample] = []
    for sample in _last_samples():
        assert isinstance(sample.attrs, ConvAttrs)
        x, w = sample.args
        assert isinstance(w, np.ndarray)
        a = sample.attrs
        attrs = PackedConvAttrs(4, w.shape[-1], a.strides, a.pads, a.dilations, a.groups)
        packed = _pack_reference(PackAttrs(4), w)
        made.append(Sample(sample.name, attrs, (x, packed), (sample.symbolic[0], packed.shape)))
    return made


def _depthwise_samples() -> list[Sample]:
    made: list[Sample] = []
    for shape, kernel, attrs in (
        ((1, 7, 6, 5), (3, 3), DepthwiseAttrs((1, 1), (1, 1, 1, 1))),
        ((2, 8, 9, 4), (3, 3), DepthwiseAttrs((2, 2), (0, 0, 1, 1))),
        ((1, 9, 9, 3), (5, 5), DepthwiseAttrs((1, 1), (4, 4, 4, 4), (2, 2))),
        ((2, 9, 3), (3,), DepthwiseAttrs()),
    ):
        x, w = noise(shape, F32, seed="x"), noise((*kernel, shape[-1]), F32, seed="w")
        names = ("n", *(f"s{i}" for i in range(len(kernel))), "c")
        made.append(Sample(f"{shape} {kernel}", attrs, (x, w), (names, (*kernel, "c"))))
    x, w = noise((1, 7, 6, 5), F16, seed="x"), noise((3, 3, 5), F16, seed="w")
    made.append(Sample("f16", made[0].attrs, (x, w)))
    return made


def _transpose_samples() -> list[Sample]:
    made: list[Sample] = []
    for shape, oc, kernel, attrs in (
        ((1, 3, 4, 5), 2, (3, 3), ConvTransposeAttrs()),
        ((2, 3, 4, 5), 2, (3, 3), ConvTransposeAttrs((2, 2), (1, 1, 1, 1), (), 1, (1, 1))),
        ((1, 4, 4, 3), 6, (2, 2), ConvTransposeAttrs((2, 2), (), (), 2)),
        ((1, 2, 5, 5), 3, (3, 2), ConvTransposeAttrs((1, 3), (2, 0, 1, 1), (2, 1))),
        ((2, 3, 6), 4, (4,), ConvTransposeAttrs((2,), (1, 1))),
        ((1, 2, 3, 3, 2), 2, (2, 2, 3), ConvTransposeAttrs((2, 1, 2))),
        ((0, 3, 4, 5), 2, (3, 3), ConvTransposeAttrs()),
    ):
        x = noise(shape, F32, seed="x")
        w = noise((shape[1], oc // attrs.groups, *kernel), F32, seed="w")
        names = ("n", shape[1], *(f"s{i}" for i in range(len(kernel))))
        made.append(Sample(f"{shape} {kernel} {attrs}", attrs, (x, w), (names, w.shape)))
    return made


DEFINITIONS: tuple[OpDef, ...] = (
    define("conv", ConvAttrs, conv_rule, 2, FusionPattern.CONTRACTION,
           "convolution of [n, c, *s] with [oc, c/groups, *k]",
           reference=conv_reference, compute=conv_compute, samples=_conv_samples,
           terms=conv_terms),
    define("conv_nhwc", ConvAttrs, _last_rule, 2, FusionPattern.CONTRACTION,
           "convolution of [n, *s, c] with [*k, c/groups, oc]",
           reference=_last_reference, compute=_last_compute, samples=_last_samples, form_of="conv",
           terms=lambda _, x, w: product(w.shape[:-1])),
    define("depthwise_conv_nhwc", DepthwiseAttrs, _depthwise_rule, 2, FusionPattern.CONTRACTION,
           "convolution of each channel of [n, *s, c] with its own filter of [*k, c]",
           reference=_depthwise_reference, compute=_depthwise_compute,
           samples=_depthwise_samples, form_of="conv", terms=lambda _, x, w: product(w.shape[:-1])),
    define("pack_conv_weights", PackAttrs, _pack_rule, 1, FusionPattern.LAYOUT,
           "[*k, c, oc] as panels of channels [ceil(oc/panel), *k, c, panel], zeros behind",
           reference=_pack_reference, compute=_pack_compute, samples=_pack_samples),
    define("conv_nhwc_packed", PackedConvAttrs, _packed_rule, 2, FusionPattern.CONTRACTION,
           "convolution of [n, *s, c] with packed panels [ceil(oc/panel), *k, c/groups, panel]",
           reference=_packed_reference, compute=_packed_compute, samples=_packed_samples,
           form_of="conv", terms=lambda _, x, w: product(w.shape[1:-1])),
    define("conv_transpose", ConvTransposeAttrs, _transpose_rule, 2, FusionPattern.CONTRACTION,
           "the gradient of conv by its input: [n, c, *s] with [c, oc/groups, *k]",
           reference=_transpose_reference, compute=_transpose_compute,
           decompose=_transpose_decompose, samples=_transpose_samples, terms=_transpose_terms),
)  # fmt: skip

CONV = DEFINITIONS[0].op
