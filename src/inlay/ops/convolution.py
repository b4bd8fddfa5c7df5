"""Convolutions of one to three spatial axes.

`x` is `[n, c, *spatial]` or, for the `_nhwc` forms, `[n, *spatial, c]`. The result has as many
channels as the weights have outputs; no bias (add it). Weights:

    conv                    [oc, c/groups, *kernel]
    conv_nhwc               [*kernel, c/groups, oc]
    conv_nhwc_packed        [ceil(oc/panel), *kernel, c/groups, panel]   made by pack_conv_weights
    depthwise_conv_nhwc     [*kernel, c]              one filter for each channel

Strides, dilations and pads are as in `_windows.py`. Padding is with zeros. Narrow floats accumulate
in f32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from inlay.arith.dtype import F16, F32, I32, DType
from inlay.arith.expr import Int, ceildiv, floordiv, lit, mod, product
from inlay.ir.op import TypeContext
from inlay.ir.types import TensorType
from inlay.loop import te
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

    @property
    def is_dense(self) -> bool:
        """Whether windows have no gaps and move by one pixel, and all channels mix."""
        return self.groups == 1 and all(n == 1 for n in (*self.strides, *self.dilations))


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


def conv_operands(ctx: TypeContext, args: Types, *, last: bool = False) -> tuple[TensorType, TensorType]:
    """Return the types of the input and of the weights; `last` where channels are the last axis."""
    x, w = rules.tensors(ctx, args, NUMBERS)
    if not 3 <= len(x.shape) <= 5:
        raise ctx.fail(
            f"found input of rank {len(x.shape)}, needed 3 to 5: batch, channels and one to three "
            f"spatial axes{' between them' if last else ''}",
            id="type.rank-mismatch",
        )
    return x, w


def conv_channels(ctx: TypeContext, c: Int, per_group: Int, oc: Int, groups: int) -> None:
    """Require that the channels of the input and of the result are those of so many groups."""
    if groups < 1:
        raise ctx.fail(f"found {groups} groups, needed at least 1")
    ctx.equal(c, per_group * groups, "channels of the input and of the weights times groups")
    if groups > 1:
        ctx.equal(mod(oc, lit(groups)), lit(0), "output channels divide into groups")


def narrowed(y: te.Tensor, result: TensorType) -> te.Tensor:
    """Return sums in the element type of the result."""
    return y if y.dtype is result.dtype else then(y, lambda v: v.cast(result.dtype), "conv")


# --------------------------------------------------------------------------- channels first


def conv_rule(ctx: TypeContext, a: ConvAttrs, args: Types) -> TensorType:
    """Return the type of a convolution of `[n, c, *s]` with `[oc, c/groups, *k]`."""
    x, w = conv_operands(ctx, args)
    rules.of_rank(ctx, w, len(x.shape), "the weights")
    conv_channels(ctx, x.shape[1], w.shape[1], w.shape[0], a.groups)
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
        // windows.strides[i]
        + 1
        for i, d in enumerate(windows.dilations)
    ]
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

    return narrowed(te.compute(result.shape, body, name="conv", tag="conv"), result)


# --------------------------------------------------------------------------- channels last


def last_rule(ctx: TypeContext, a: ConvAttrs, args: Types) -> TensorType:
    """Return the type of a convolution of `[n, *s, c]` with `[*k, c/groups, oc]`."""
    x, w = conv_operands(ctx, args, last=True)
    rules.of_rank(ctx, w, len(x.shape), "the weights")
    conv_channels(ctx, x.shape[-1], w.shape[-2], w.shape[-1], a.groups)
    windows = resolve(ctx, w.shape[:-2], a.strides, a.dilations, a.pads)
    return TensorType((x.shape[0], *windows.out(ctx, x.shape[1:-1]), w.shape[-1]), x.dtype)


def last_reference(a: ConvAttrs, x: Array, w: Array) -> Array:
    """Convolve arrays `[n, *s, c]` with `[*k, c/groups, oc]`."""
    first = conv_reference(a, np.moveaxis(x, -1, 1), np.moveaxis(w, (-1, -2), (0, 1)))
    return np.moveaxis(first, 1, -1)


Terms = Callable[[Sequence[Int], Int], tuple[Sequence[te.Axis], Int, te.ScalarValue]]
"""The place in a window and a channel of the result to the axes summed beside the window, the channel of
the input and the weight."""


def sums_last(
    source: te.Tensor, windows: Windows, shape: Sequence[Int], wide: DType, terms: Terms, tag: str
) -> te.Tensor:
    """Return the sums of a convolution with channels last.

    Args:
        source: the input with its padding.
        windows: over its spatial axes.
        shape: of the result.
        wide: the format of the sums.
        terms: what is summed.
        tag: of the stage.
    """

    def body(n: Int, *rest: Int) -> te.ScalarValue:
        *at, o = rest
        k = windows.axes()
        axes, channel, weight = terms(k, o)
        value = source[(n, *windows.at(at, k), channel)].cast(wide)
        return te.sum_over([*k, *axes], value * weight.cast(wide))

    return te.compute(shape, body, name="conv", tag=tag)


def first_channel(o: Int, per_group: Int, channels: Int, groups: int) -> Int:
    """Return the first channel of the input that a channel of the result reads.

    Args:
        o: the channel of the result.
        per_group: channels of the result in a group.
        channels: channels of the input in a group.
        groups: how many groups there are.
    """
    return floordiv(o, per_group) * channels if groups > 1 else lit(0)


def last_compute(a: ConvAttrs, operands: Sequence[te.Tensor], result: TensorType) -> te.Tensor:
    """Return the stages of a convolution of `[n, *s, c]` with `[*k, c/groups, oc]`."""
    x, w = operands
    windows = accepted(w.shape[:-2], a.strides, a.dilations, a.pads)
    source = padded(x, 1, windows, result.shape[1:-1], 0)
    per_group = floordiv(w.shape[-1], lit(a.groups))

    def terms(k: Sequence[Int], o: Int) -> tuple[Sequence[te.Axis], Int, te.ScalarValue]:
        c = te.reduce_axis("c", w.shape[-2])
        return [c], first_channel(o, per_group, w.shape[-2], a.groups) + c, w[(*k, c, o)]

    y = sums_last(source, windows, result.shape, widened(x.dtype), terms, "conv_nhwc")
    return narrowed(y, result)


def depthwise_rule(ctx: TypeContext, a: DepthwiseAttrs, args: Types) -> TensorType:
    """Return the type of a convolution of each channel of `[n, *s, c]` with its filter of `[*k, c]`."""
    x, w = conv_operands(ctx, args, last=True)
    rules.of_rank(ctx, w, len(x.shape) - 1, "the weights")
    c = ctx.equal(x.shape[-1], w.shape[-1], "channels of the input and of the weights")
    windows = resolve(ctx, w.shape[:-1], a.strides, a.dilations, a.pads)
    return TensorType((x.shape[0], *windows.out(ctx, x.shape[1:-1]), c), x.dtype)


def depthwise_reference(a: DepthwiseAttrs, x: Array, w: Array) -> Array:
    """Convolve each channel of `[n, *s, c]` with its filter of `[*k, c]`."""
    grouped = ConvAttrs(a.strides, a.pads, a.dilations, w.shape[-1])
    return last_reference(grouped, x, w[..., None, :])


def depthwise_compute(a: DepthwiseAttrs, operands: Sequence[te.Tensor], result: TensorType) -> te.Tensor:
    """Return the stages of a convolution of each channel of `[n, *s, c]` with its filter of `[*k, c]`."""
    x, w = operands
    windows = accepted(w.shape[:-1], a.strides, a.dilations, a.pads)
    source = padded(x, 1, windows, result.shape[1:-1], 0)

    def terms(k: Sequence[Int], o: Int) -> tuple[Sequence[te.Axis], Int, te.ScalarValue]:
        return [], o, w[(*k, o)]

    y = sums_last(source, windows, result.shape, widened(x.dtype), terms, "depthwise_conv_nhwc")
    return narrowed(y, result)


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
    x = rules.tensor(ctx, args, 0, NUMBERS)
    w = rules.weights_of(ctx, args, x)
    conv_operands(ctx, (x, TensorType(w.shape, x.dtype)), last=True)
    rules.of_rank(ctx, w, len(x.shape) + 1, "the packed weights")
    ctx.equal(w.shape[0], ceildiv(a.channels, a.panel), "panels of the packed weights")
    ctx.equal(w.shape[-1], lit(a.panel), "channels of a panel")
    conv_channels(ctx, x.shape[-1], w.shape[-2], lit(a.channels), a.groups)
    windows = resolve(ctx, w.shape[1:-2], a.strides, a.dilations, a.pads)
    return TensorType((x.shape[0], *windows.out(ctx, x.shape[1:-1]), lit(a.channels)), x.dtype)


def _packed_reference(a: PackedConvAttrs, x: Array, w: Array) -> Array:
    columns = w.shape[0] * w.shape[-1]
    whole = np.moveaxis(w, 0, -2).reshape(*w.shape[1:-1], columns)[..., : a.channels]
    return last_reference(ConvAttrs(a.strides, a.pads, a.dilations, a.groups), x, whole)


def _packed_compute(a: PackedConvAttrs, operands: Sequence[te.Tensor], result: TensorType) -> te.Tensor:
    x, w = operands
    panel, per_group = lit(a.panel), lit(a.channels // a.groups)
    windows = accepted(w.shape[1:-2], a.strides, a.dilations, a.pads)
    source = padded(x, 1, windows, result.shape[1:-1], 0)

    def terms(k: Sequence[Int], o: Int) -> tuple[Sequence[te.Axis], Int, te.ScalarValue]:
        c = te.reduce_axis("c", w.shape[-2])
        weight = w[(floordiv(o, panel), *k, c, mod(o, panel))]
        return [c], first_channel(o, per_group, w.shape[-2], a.groups) + c, weight

    y = sums_last(source, windows, result.shape, widened(x.dtype), terms, "conv_nhwc_packed")
    return narrowed(y, result)


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
        return f"{self.x} to {self.oc} by {self.kernel} s{a.strides} p{a.pads} d{a.dilations} g{a.groups}"


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


def last_samples() -> list[Sample]:
    """Return calls of convolutions with channels last."""
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
    for sample in last_samples():
        assert isinstance(sample.attrs, ConvAttrs)
        x, w = sample.args
        assert isinstance(w, np.ndarray)
        a = sample.attrs
        attrs = PackedConvAttrs(4, w.shape[-1], a.strides, a.pads, a.dilations, a.groups)
        packed = _pack_reference(PackAttrs(4), w)
        made.append(Sample(sample.name, attrs, (x, packed), (sample.symbolic[0], packed.shape)))
    return made


def depthwise_samples() -> list[Sample]:
    """Return calls of convolutions of each channel by itself."""
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


DEFINITIONS: tuple[OpDef, ...] = (
    define(
        "conv",
        ConvAttrs,
        conv_rule,
        2,
        FusionPattern.CONTRACTION,
        "convolution of [n, c, *s] with [oc, c/groups, *k]",
        reference=conv_reference,
        compute=conv_compute,
        samples=_conv_samples,
        terms=conv_terms,
    ),
    define(
        "conv_nhwc",
        ConvAttrs,
        last_rule,
        2,
        FusionPattern.CONTRACTION,
        "convolution of [n, *s, c] with [*k, c/groups, oc]",
        reference=last_reference,
        compute=last_compute,
        samples=last_samples,
        form_of="conv",
        terms=lambda _, x, w: product(w.shape[:-1]),
    ),
    define(
        "depthwise_conv_nhwc",
        DepthwiseAttrs,
        depthwise_rule,
        2,
        FusionPattern.CONTRACTION,
        "convolution of each channel of [n, *s, c] with its own filter of [*k, c]",
        reference=depthwise_reference,
        compute=depthwise_compute,
        samples=depthwise_samples,
        form_of="conv",
        terms=lambda _, x, w: product(w.shape[:-1]),
    ),
    define(
        "pack_conv_weights",
        PackAttrs,
        _pack_rule,
        1,
        FusionPattern.LAYOUT,
        "[*k, c, oc] as panels of channels [ceil(oc/panel), *k, c, panel], zeros behind",
        reference=_pack_reference,
        compute=_pack_compute,
        samples=_pack_samples,
    ),
    define(
        "conv_nhwc_packed",
        PackedConvAttrs,
        _packed_rule,
        2,
        FusionPattern.CONTRACTION,
        "convolution of [n, *s, c] with packed panels [ceil(oc/panel), *k, c/groups, panel]",
        reference=_packed_reference,
        compute=_packed_compute,
        samples=_packed_samples,
        form_of="conv",
        terms=lambda _, x, w: product(w.shape[1:-1]),
    ),
)

CONV = DEFINITIONS[0].op
