"""Sums of integer products in the forms that kernels compute: channels last, packed, for dot products.

Operands are i8, u8 or i16 and the result is i32, which wraps. `conv_integer` and `matmul_integer` are the
meaning; these are made of them for a device, once it is known what multiplies there.

    conv_nhwc_integer               [*kernel, c/groups, oc], and zero points as conv_integer has them
    depthwise_conv_nhwc_integer     [*kernel, c]              one filter for each channel
    conv_nhwc_integer_packed        [ceil(oc/panel), *kernel, ceil(c/groups/group), panel, group]
    matmul_integer_packed           [ceil(n/panel), ceil(k/group), panel, group]

**Packed weights** are made by `pack_integer_weights` for an instruction that adds `group` products of
neighbors at once: those neighbors are its innermost axis, zeros behind the last. Their element type is what
the instruction reads, and so is the `operand` that the other side is brought to. That is a stage of its own,
`widened`, in front of the sums: elements as the instruction wants them, zeros around them where windows reach
over the edges, and behind them where the group does not divide their number. So sums have no edges.

An instruction may want one side without a sign: then a `shift` is added to all elements of it, and the sums
are those of what results, `sum((x + shift) * w)`, which is `shift * sum(w)` more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, Protocol

import numpy as np

from inlay.arith.dtype import F32, I8, I16, I32, U8, DType
from inlay.arith.expr import Int, ceildiv, floordiv, lit, mod, product
from inlay.ir.op import TypeContext
from inlay.ir.types import TensorType
from inlay.loop import te
from inlay.ops import _rules as rules
from inlay.ops import convolution as floats
from inlay.ops._build import Array
from inlay.ops._define import FusionPattern, OpDef, Sample, define
from inlay.ops._rules import Types
from inlay.ops._samples import noise
from inlay.ops._windows import accepted, padded, resolve
from inlay.ops.convolution import ConvAttrs, DepthwiseAttrs, first_channel, sums_last
from inlay.ops.matmul import inside_panels
from inlay.ops.quantized import integer_zero_point, less_zero, less_zero_array

OPERANDS: tuple[DType, ...] = (I8, U8, I16)


@dataclass(frozen=True, slots=True)
class IntegerConvAttrs(ConvAttrs):
    """As for `conv`, and `outside`: what padding is made of, in the format of the input."""

    outside: int = 0


@dataclass(frozen=True, slots=True)
class IntegerDepthwiseAttrs(DepthwiseAttrs):
    """As for `depthwise_conv_nhwc`, and `outside`: what padding is made of.

    `sums` is the format that sums are computed and given in: f32 where all are known to be below 2^24.
    """

    outside: int = 0
    sums: DType = I32


@dataclass(frozen=True, slots=True)
class PackIntegerAttrs:
    """How weights are laid out.

    Attributes:
        panel: columns in a panel.
        group: neighbors along a sum that are multiplied at once.
        dtype: of the elements.
    """

    panel: int
    group: int = 1
    dtype: DType = I8


@dataclass(frozen=True, slots=True)
class PackedIntegerAttrs:
    """`panel`, `n` columns, `group`; `operand`: what the left side, plus `shift`, is brought to."""

    panel: int
    n: int
    group: int = 1
    operand: DType = I16
    shift: int = 0


@dataclass(frozen=True, slots=True)
class PackedIntegerConvAttrs:
    """As for `conv`, `channels` of the result, in panels of `panel`; the others as above."""

    panel: int
    channels: int
    group: int = 1
    operand: DType = I16
    strides: tuple[int, ...] = ()
    pads: tuple[int, ...] = ()
    dilations: tuple[int, ...] = ()
    groups: int = 1
    outside: int = 0
    shift: int = 0


def _operands(ctx: TypeContext, args: Types) -> tuple[TensorType, TensorType]:
    return rules.tensor(ctx, args, 0, OPERANDS), rules.tensor(ctx, args, 1, OPERANDS)


def _as_sums(x: TensorType, w: TensorType) -> tuple[TensorType, TensorType]:
    """Return the operands as the rules of one element type want them: that of the sums."""
    return TensorType(x.shape, I32), TensorType(w.shape, I32)


# --------------------------------------------------------------------------- channels last


def check_padding(ctx: TypeContext, outside: int, x: TensorType) -> None:
    """Require that what padding is made of is in the format of the input."""
    info = np.iinfo(x.dtype.numpy)
    if not info.min <= outside <= info.max:
        raise ctx.fail(f"found padding with {outside}, needed a number that {x.dtype} holds")


def _last_rule(ctx: TypeContext, a: IntegerConvAttrs, args: Types) -> TensorType:
    x, w = _operands(ctx, args)
    check_padding(ctx, a.outside, x)
    if len(args) > 2 and a.outside:
        raise ctx.fail("found padding with a number beside a zero point, needed one of them")
    if len(args) > 2:
        integer_zero_point(ctx, rules.tensor(ctx, args, 2), x, ())
    if len(args) > 3:
        integer_zero_point(ctx, rules.tensor(ctx, args, 3), w, w.shape[-1:])
    return floats.last_rule(ctx, a, _as_sums(x, w))


def last_reference(a: IntegerConvAttrs, x: Array, w: Array, *zeros: Array) -> Array:
    """Convolve arrays `[n, *s, c]` with `[*k, c/groups, oc]`."""
    if a.outside:
        x, a = _padded_array(x, a.pads, a.outside), replace(a, pads=())
    return floats.last_reference(a, *less_zero_array((x, w), zeros, (0, -1)))


def _padded_array(x: Array, pads: tuple[int, ...], outside: int) -> Array:
    """Return an array `[n, *s, c]` with numbers around it."""
    count = len(pads) // 2
    around = [(0, 0), *zip(pads[:count], pads[count:], strict=True), (0, 0)]
    return np.pad(x, around, constant_values=outside) if pads else x


def _last_compute(a: IntegerConvAttrs, operands: Sequence[te.Tensor], result: TensorType) -> te.Tensor:
    x, w, *zeros = operands
    if a.outside:
        windows = accepted(w.shape[:-2], a.strides, a.dilations, a.pads)
        x, a = padded(x, 1, windows, result.shape[1:-1], a.outside, stored=True), replace(a, pads=())
    return floats.last_compute(a, less_zero((x, w), zeros, (0, -1)), result)


def _depthwise_rule(ctx: TypeContext, a: IntegerDepthwiseAttrs, args: Types) -> TensorType:
    x, w = _operands(ctx, args)
    check_padding(ctx, a.outside, x)
    if a.sums not in (I32, F32):
        raise ctx.fail(f"found sums of {a.sums}, needed i32 or f32", id="type.dtype-mismatch")
    return TensorType(floats.depthwise_rule(ctx, a, _as_sums(x, w)).shape, a.sums)


def _depthwise_reference(a: IntegerDepthwiseAttrs, x: Array, w: Array) -> Array:
    if a.outside:
        x, a = _padded_array(x, a.pads, a.outside), replace(a, pads=())
    return floats.depthwise_reference(a, x.astype(a.sums.numpy), w.astype(a.sums.numpy))


def _depthwise_compute(
    a: IntegerDepthwiseAttrs, operands: Sequence[te.Tensor], result: TensorType
) -> te.Tensor:
    x, w = operands
    if a.outside:
        windows = accepted(w.shape[:-1], a.strides, a.dilations, a.pads)
        x, a = padded(x, 1, windows, result.shape[1:-1], a.outside, stored=True), replace(a, pads=())
    wide = [te.compute(e.shape, partial(_cast_at, e, a.sums), name="wide") for e in (x, w)]
    return floats.depthwise_compute(a, wide, result)


def _cast_at(x: te.Tensor, dtype: DType, *i: Int) -> te.ScalarValue:
    return x[i].cast(dtype)


# --------------------------------------------------------------------------- packing


def _pack_rule(ctx: TypeContext, a: PackIntegerAttrs, args: Types) -> TensorType:
    w = rules.least_rank(ctx, rules.tensor(ctx, args, 0, OPERANDS), 2, "the weights")
    _holds(ctx, a.dtype, w.dtype, "the weights")
    return packed_weights_type(ctx, w, a)


def packed_weights_type(ctx: TypeContext, w: TensorType, a: PackIntegerAttrs) -> TensorType:
    """Return the type of weights `[*k, c, n]` in panels."""
    _positive(ctx, a.panel, a.group)
    *kernel, c, columns = w.shape
    shape = (ceildiv(columns, a.panel), *kernel, ceildiv(c, a.group), lit(a.panel), lit(a.group))
    return TensorType(shape, a.dtype)


def _positive(ctx: TypeContext, panel: int, group: int) -> None:
    for what, found in (("panel", panel), ("group", group)):
        if found < 1:
            raise ctx.fail(f"found {what} {found}, needed at least 1")


def _holds(ctx: TypeContext, wide: DType, narrow: DType, what: str, shift: int = 0) -> None:
    """Require that an integer format holds what another one does, with a shift added."""
    inner, outer = np.iinfo(narrow.numpy), np.iinfo(wide.numpy) if wide.is_integer else None
    if outer is None or not (outer.min <= inner.min + shift and inner.max + shift <= outer.max):
        plus = f" plus {shift}" if shift else ""
        raise ctx.fail(f"found {what} of {narrow}{plus}, needed what {wide} holds", id="type.dtype-mismatch")


def pack_reference(a: PackIntegerAttrs, w: Array) -> Array:
    """Return an array `[*k, c, n]` in panels."""
    *kernel, c, columns = w.shape
    steps, panels = -(-c // a.group), -(-columns // a.panel)
    full = np.zeros((*kernel, steps * a.group, panels * a.panel), a.dtype.numpy)
    full[..., :c, :columns] = w
    split = full.reshape(*kernel, steps, a.group, panels, a.panel)
    return np.moveaxis(np.moveaxis(split, -2, 0), -2, -1)


def packed_weights_compute(
    a: PackIntegerAttrs, operands: Sequence[te.Tensor], result: TensorType
) -> te.Tensor:
    """Return weights `[*k, c, n]` in panels."""
    (w,) = operands
    c, columns = w.shape[-2:]

    def body(p: Int, *rest: Int) -> te.ScalarValue:
        *kernel, step, lane, j = rest
        row, column = step * a.group + j, p * a.panel + lane
        inside = te.all_of(inside_panels(row, c, a.group), inside_panels(column, columns, a.panel))
        return te.guarded(inside, w[(*kernel, row, column)].cast(a.dtype), te.const(0, a.dtype))

    return te.compute(result.shape, body, name="packed")


def unpacked(w: Array, terms: int, columns: int) -> Array:
    """Return packed weights as `[*k, terms, columns]`."""
    split = np.moveaxis(np.moveaxis(w, -1, -2), 0, -2)
    whole = split.reshape(*w.shape[1:-3], w.shape[-3] * w.shape[-1], w.shape[0] * w.shape[-2])
    return whole[..., :terms, :columns]


# --------------------------------------------------------------------------- packed


class Packed(Protocol):
    """What attributes of packed forms have in common: see `PackedIntegerAttrs`."""

    @property
    def panel(self) -> int:
        """Columns in a panel."""
        ...

    @property
    def group(self) -> int:
        """Neighbors along a sum that are multiplied at once."""
        ...

    @property
    def operand(self) -> DType:
        """What the left side is brought to."""
        ...

    @property
    def shift(self) -> int:
        """What is added to the left side before."""
        ...


def packed_operands(ctx: TypeContext, a: Packed, columns: int, args: Types) -> tuple[TensorType, TensorType]:
    """Return the types of the operands of a packed form, and require that they are what it says."""
    x, w = _operands(ctx, args)
    _positive(ctx, a.panel, a.group)
    _holds(ctx, a.operand, x.dtype, "the left operand", a.shift)
    rules.least_rank(ctx, w, 4, "the packed weights")
    ctx.equal(w.shape[0], ceildiv(columns, a.panel), "panels of the packed weights")
    ctx.equal(w.shape[-2], lit(a.panel), "columns of a panel")
    ctx.equal(w.shape[-1], lit(a.group), "terms of a group")
    return x, w


def brought(value: te.ScalarValue, a: Packed) -> te.ScalarValue:
    """Return an element as an instruction wants it."""
    return (value.cast(I16) + a.shift).cast(a.operand) if a.shift else value.cast(a.operand)


def brought_operand(x: te.Tensor, a: Packed, groups: int = 1) -> te.Tensor:
    """Return what the sums read: elements as an instruction wants them, in groups with zeros behind."""
    terms, rest = floordiv(x.shape[-1], lit(groups)), mod(x.shape[-1], lit(groups * a.group))
    if x.dtype is a.operand and rest == 0 and x.body is None:
        return x
    whole = ceildiv(terms, a.group) * a.group

    def body(*i: Int) -> te.ScalarValue:
        if rest == 0:
            return brought(x[i], a)
        at = mod(i[-1], whole) if groups > 1 else i[-1]
        first = floordiv(i[-1], whole) * terms if groups > 1 else lit(0)
        value = brought(x[(*i[:-1], first + at)], a)
        return te.select(te.index(at) < te.index(terms), value, 0)

    return te.compute((*x.shape[:-1], whole * groups), body, name="widened", tag="widened", stored=True)


def _packed_rule(ctx: TypeContext, a: PackedIntegerConvAttrs, args: Types) -> TensorType:
    x, w = packed_operands(ctx, a, a.channels, args)
    floats.conv_operands(ctx, _as_sums(x, w), last=True)
    check_padding(ctx, a.outside, x)
    rules.of_rank(ctx, w, len(x.shape) + 2, "the packed weights")
    ctx.equal(mod(x.shape[-1], lit(a.groups)), lit(0), "channels of the input divide into groups")
    terms = floordiv(x.shape[-1], lit(a.groups))
    ctx.equal(w.shape[-3], ceildiv(terms, a.group), "groups of terms of the packed weights")
    floats.conv_channels(ctx, x.shape[-1], terms, lit(a.channels), a.groups)
    windows = resolve(ctx, w.shape[1:-3], a.strides, a.dilations, a.pads)
    return TensorType((x.shape[0], *windows.out(ctx, x.shape[1:-1]), lit(a.channels)), I32)


def _packed_reference(a: PackedIntegerConvAttrs, x: Array, w: Array) -> Array:
    whole = unpacked(w, x.shape[-1] // a.groups, a.channels)
    outside = a.outside + a.shift
    attrs = IntegerConvAttrs(a.strides, a.pads, a.dilations, a.groups, outside)
    return last_reference(attrs, shifted(x, a.shift), whole)


def shifted(x: Array, shift: int) -> Array:
    """Return an array with a number added, in a format that has it."""
    return x.astype(np.int16) + np.int16(shift) if shift else x


def _packed_compute(
    a: PackedIntegerConvAttrs, operands: Sequence[te.Tensor], result: TensorType
) -> te.Tensor:
    x, w = operands
    panel, per_group, steps = lit(a.panel), lit(a.channels // a.groups), w.shape[-3]
    windows = accepted(w.shape[1:-3], a.strides, a.dilations, a.pads)
    source = brought_operand(padded(x, 1, windows, result.shape[1:-1], a.outside), a, a.groups)

    def terms(k: Sequence[Int], o: Int) -> tuple[Sequence[te.Axis], Int, te.ScalarValue]:
        c, j = te.reduce_axis("c", steps), te.reduce_axis("j", a.group)
        weight = w[(floordiv(o, panel), *k, c, mod(o, panel), j)]
        first = first_channel(o, per_group, steps * a.group, a.groups)
        return [c, j], first + c * a.group + j, weight

    return sums_last(source, windows, result.shape, I32, terms, "conv_nhwc_integer_packed")


def _matmul_rule(ctx: TypeContext, a: PackedIntegerAttrs, args: Types) -> TensorType:
    x, w = packed_operands(ctx, a, a.n, args)
    rules.least_rank(ctx, x, 1, "the left operand")
    rules.of_rank(ctx, w, 4, "the packed weights")
    ctx.equal(w.shape[1], ceildiv(x.shape[-1], a.group), "groups of terms of the packed weights")
    return TensorType((*x.shape[:-1], lit(a.n)), I32)


def _matmul_reference(a: PackedIntegerAttrs, x: Array, w: Array) -> Array:
    whole = unpacked(w, x.shape[-1], a.n)
    return np.matmul(x.astype(np.int32) + a.shift, whole.astype(np.int32))


def _matmul_compute(a: PackedIntegerAttrs, operands: Sequence[te.Tensor], result: TensorType) -> te.Tensor:
    x, w = operands
    source, panel = brought_operand(x, a), lit(a.panel)

    def body(*i: Int) -> te.ScalarValue:
        k, j = te.reduce_axis("k", w.shape[1]), te.reduce_axis("j", a.group)
        weight = w[floordiv(i[-1], panel), k, mod(i[-1], panel), j].cast(I32)
        return te.sum_over([k, j], source[(*i[:-1], k * a.group + j)].cast(I32) * weight)

    return te.compute(result.shape, body, name="matmul", tag="matmul_integer_packed")


# --------------------------------------------------------------------------- samples


def _noise(shape: Sequence[int], dtype: DType, seed: str) -> Array:
    """Return numbers of the whole range, but for those of 16 bits, of which few are added in 32."""
    info = np.iinfo(dtype.numpy)
    low, high = (int(info.min), int(info.max)) if dtype is not I16 else (-9000, 9000)
    return noise(tuple(shape), dtype, low=low, high=high, seed=seed)


def _fields(attrs: object) -> dict[str, Any]:
    """Return the values of a record by name."""
    return {f.name: getattr(attrs, f.name) for f in fields(attrs)}  # type: ignore[arg-type]


def last_samples() -> list[Sample]:
    """Return calls of convolutions with channels last; that with zero points comes last."""
    made: list[Sample] = []
    formats = ((U8, I8), (I8, I8), (I16, I8))
    for i, sample in enumerate(floats.last_samples()):
        x, w = (np.shape(array) for array in sample.args)
        left, right = formats[i % len(formats)]
        arrays = (_noise(x, left, "x"), _noise(w, right, "w"))
        assert isinstance(sample.attrs, ConvAttrs)
        attrs = IntegerConvAttrs(**_fields(sample.attrs), outside=5 * (i % 2))
        made.append(Sample(f"{sample.name} {left}", attrs, arrays, sample.symbolic))
    x, w = made[0].args
    assert isinstance(x, np.ndarray)
    assert isinstance(w, np.ndarray)
    zeros = (np.asarray(99, np.uint8), _noise(w.shape[-1:], I8, "z"))
    return [*made, Sample("zero points", made[0].attrs, (x, w, *zeros))]


def _depthwise_samples() -> list[Sample]:
    made: list[Sample] = []
    for sample, dtype in zip(floats.depthwise_samples(), (U8, I8, I16, U8, I8), strict=True):
        x, w = (np.shape(array) for array in sample.args)
        arrays = (_noise(x, dtype, "x"), _noise(w, I8, "w"))
        assert isinstance(sample.attrs, DepthwiseAttrs)
        attrs = IntegerDepthwiseAttrs(**_fields(sample.attrs), outside=9 * (dtype is U8))
        made.append(Sample(f"{x} {dtype}", attrs, arrays, sample.symbolic))
    return made + [_in_floats(s) for s in made[:2]]


def _in_floats(s: Sample) -> Sample:
    assert isinstance(s.attrs, IntegerDepthwiseAttrs)
    return replace(s, name=f"{s.name} in floats", attrs=replace(s.attrs, sums=F32))


_FORMS = ((4, 2, I16), (4, 4, I16), (8, 1, I16), (3, 2, I16), (2, 2, I32), (16, 2, I16))
"""Panels, groups and operands to try."""


def _pack_samples() -> list[Sample]:
    return [
        Sample(
            f"{shape} by {panel}, {group} to {dtype}",
            PackIntegerAttrs(panel, group, dtype),
            (_noise(shape, I8, "w"),),
        )
        for shape, (panel, group, dtype) in zip(
            ((3, 3, 4, 8), (3, 3, 5, 6), (5, 16), (7, 5), (2, 3, 4), (1, 1, 1, 1)), _FORMS, strict=True
        )
    ]


def _packed_samples() -> list[Sample]:
    made: list[Sample] = []
    for i, sample in enumerate(last_samples()[:-1]):
        x, w = sample.args
        assert isinstance(x, np.ndarray)
        assert isinstance(w, np.ndarray)
        assert isinstance(sample.attrs, IntegerConvAttrs)
        panel, group, dtype = _FORMS[i % len(_FORMS)]
        operand = I16 if group > 1 else I32
        c = sample.attrs
        packed = pack_reference(PackIntegerAttrs(panel, group, I16 if dtype is I32 else dtype), w)
        shift = 128 * (i % 3 == 1 and x.dtype == np.int8)
        window = (c.strides, c.pads, c.dilations, c.groups, c.outside)
        attrs = PackedIntegerConvAttrs(panel, w.shape[-1], group, U8 if shift else operand, *window, shift)
        name = f"{sample.name} by {panel}, {group}"
        made.append(Sample(name, attrs, (x, packed), (sample.symbolic[0], packed.shape)))
    return made


def _matmul_samples() -> list[Sample]:
    made: list[Sample] = []
    cases = (((5, 7), 12, U8, I16), ((2, 3, 9), 10, I8, U8), ((33, 70), 48, U8, I16), ((6,), 5, I8, I8))
    for i, (shape, n, left, operand) in enumerate(cases):
        shift = 128 if (left, operand) == (I8, U8) else 0
        panel, group, _ = _FORMS[i]
        dtype = I16 if operand is I16 else I8
        weights = _noise((shape[-1], n), I8, "w")
        packed = pack_reference(PackIntegerAttrs(panel, group, dtype), weights)
        rows = tuple(f"m{d}" for d in range(len(shape) - 1))
        made.append(
            Sample(
                f"{left} {shape} to {n} by {panel}, {group}",
                PackedIntegerAttrs(panel, n, group, operand, shift),
                (_noise(shape, left, "x"), packed),
                ((*rows, shape[-1]), packed.shape),
            )
        )
    return made


DEFINITIONS: tuple[OpDef, ...] = (
    define(
        "conv_nhwc_integer",
        IntegerConvAttrs,
        _last_rule,
        (2, 4),
        FusionPattern.CONTRACTION,
        "conv_integer of [n, *s, c] with [*k, c/groups, oc]",
        reference=last_reference,
        compute=_last_compute,
        samples=last_samples,
        form_of="conv_integer",
        terms=lambda _, x, w: product(w.shape[:-1]),
    ),
    define(
        "depthwise_conv_nhwc_integer",
        IntegerDepthwiseAttrs,
        _depthwise_rule,
        2,
        FusionPattern.CONTRACTION,
        "convolution in i32 of each channel of [n, *s, c] with its own filter of [*k, c]",
        reference=_depthwise_reference,
        compute=_depthwise_compute,
        samples=_depthwise_samples,
        form_of="conv_integer",
        terms=lambda _, x, w: product(w.shape[:-1]),
    ),
    define(
        "pack_integer_weights",
        PackIntegerAttrs,
        _pack_rule,
        1,
        FusionPattern.LAYOUT,
        "[*k, c, n] as [ceil(n/panel), *k, ceil(c/group), panel, group], zeros behind",
        reference=pack_reference,
        compute=packed_weights_compute,
        samples=_pack_samples,
    ),
    define(
        "conv_nhwc_integer_packed",
        PackedIntegerConvAttrs,
        _packed_rule,
        2,
        FusionPattern.CONTRACTION,
        "conv_integer of [n, *s, c] with packed panels [ceil(oc/panel), *k, ceil(c/groups/group), "
        "panel, group]",
        reference=_packed_reference,
        compute=_packed_compute,
        samples=_packed_samples,
        form_of="conv_integer",
        terms=lambda _, x, w: product(w.shape[1:-2]) * w.shape[-1],
    ),
    define(
        "matmul_integer_packed",
        PackedIntegerAttrs,
        _matmul_rule,
        2,
        FusionPattern.CONTRACTION,
        "[..., k] times packed panels [ceil(n/panel), ceil(k/group), panel, group] in i32, to [..., n]",
        reference=_matmul_reference,
        compute=_matmul_compute,
        samples=_matmul_samples,
        form_of="matmul_integer",
        terms=lambda _, x, w: w.shape[1] * w.shape[-1],
    ),
)
