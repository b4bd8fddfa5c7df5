"""Quantization: conversion to and from integers, and integer products.

A quantized value q stands for `(q - zero_point) * scale`. Scale and zero point are tensors of rank 0,
or of rank 1 with one number for each index of `axis`. Rounding is to nearest, ties to even, then
saturating. The integer products subtract the zero points first and accumulate in i32, which wraps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from inlay.arith.dtype import F16, F32, I8, I16, I32, U8, U16, DType
from inlay.arith.expr import Int
from inlay.ir.op import NoAttrs, TypeContext
from inlay.ir.types import TensorType
from inlay.loop import te
from inlay.loop.scalar import UnaryOp
from inlay.ops import _rules as rules
from inlay.ops import convolution
from inlay.ops._build import Array, saturate, saturate_array, widen, widened
from inlay.ops._define import FusionPattern, OpDef, Sample, define
from inlay.ops._rules import FLOATS, Types
from inlay.ops._samples import noise
from inlay.ops.convolution import ConvAttrs, conv_terms
from inlay.ops.matmul import matmul_shape, product

NARROW: tuple[DType, ...] = (I8, U8, I16, U16)
FACTORS: tuple[DType, ...] = (I8, U8, I16)
"""Formats that integer products take; 16 bits have room in 32 where sums are short or weights small."""
WIDEST = 1 << 20
"""Rounded quotients are clamped to this before the zero point is added: beyond every narrow type."""


@dataclass(frozen=True, slots=True)
class QuantizeAttrs:
    """`dtype` of the result; `axis` of per-axis scales and zero points."""

    dtype: DType = U8
    axis: int = 1


@dataclass(frozen=True, slots=True)
class DequantizeAttrs:
    """`axis` of per-axis scales and zero points."""

    axis: int = 1


def per_axis(ctx: TypeContext, p: TensorType, x: TensorType, axis: int, what: str) -> None:
    """Require one number, or one for each index of an axis."""
    if len(p.shape) == 0:
        return
    rules.same_shape(ctx, p, (x.shape[rules.axis_of(ctx, axis, len(x.shape))],), what)


def at_axis(p: te.Tensor, i: Sequence[Int], axis: int) -> te.ScalarValue:
    """Load a parameter for the element at an index: the one, or that of the index along an axis."""
    return p[i[axis % len(i)]] if p.ndim else p[()]


def along(p: Array, rank: int, axis: int) -> Array:
    """Return a parameter so that it broadcasts along an axis of an array."""
    return p.reshape(-1, *[1] * (rank - 1 - axis % rank)) if p.ndim else p


# --------------------------------------------------------------------------- conversion


def _quantize_rule(ctx: TypeContext, a: QuantizeAttrs, args: Types) -> TensorType:
    x, scale = rules.tensor(ctx, args, 0, FLOATS), rules.tensor(ctx, args, 1, FLOATS)
    if a.dtype not in NARROW:
        raise ctx.fail(f"cannot quantize to {a.dtype}", id="type.dtype-mismatch")
    per_axis(ctx, scale, x, a.axis, "the scale")
    if len(args) > 2:
        zero = rules.tensor(ctx, args, 2)
        rules.same_dtype(ctx, a.dtype, zero.dtype, "the zero point")
        per_axis(ctx, zero, x, a.axis, "the zero point")
    return TensorType(x.shape, a.dtype)


def _quantize_reference(a: QuantizeAttrs, x: Array, scale: Array, *zero: Array) -> Array:
    q = np.rint(widen(x) / along(widen(scale), x.ndim, a.axis).astype(widen(x).dtype))
    whole = saturate_array(q, I32, -WIDEST, WIDEST).astype(np.int64)
    if zero:
        whole = whole + along(zero[0], x.ndim, a.axis).astype(np.int64)
    info = np.iinfo(a.dtype.numpy)
    return np.clip(whole, info.min, info.max).astype(a.dtype.numpy)


def _quantize_compute(a: QuantizeAttrs, operands: Sequence[te.Tensor], result: TensorType) -> te.Tensor:
    x, scale, *zero = operands
    wide, info = widened(x.dtype), np.iinfo(a.dtype.numpy)

    def body(*i: Int) -> te.ScalarValue:
        quotient = x[i].cast(wide) / at_axis(scale, i, a.axis).cast(wide)
        q = saturate(te.unary(UnaryOp.ROUND_EVEN, quotient), I32, -WIDEST, WIDEST)
        if zero:
            q = q + at_axis(zero[0], i, a.axis).cast(I32)
        return te.minimum(te.maximum(q, int(info.min)), int(info.max)).cast(a.dtype)

    return te.compute(result.shape, body, name="quantize")


def _dequantize_rule(ctx: TypeContext, a: DequantizeAttrs, args: Types) -> TensorType:
    q, scale = rules.tensor(ctx, args, 0, (*NARROW, I32)), rules.tensor(ctx, args, 1, FLOATS)
    per_axis(ctx, scale, q, a.axis, "the scale")
    if len(args) > 2:
        zero = rules.tensor(ctx, args, 2)
        rules.same_dtype(ctx, q.dtype, zero.dtype, "the zero point")
        per_axis(ctx, zero, q, a.axis, "the zero point")
    return TensorType(q.shape, scale.dtype)


def _dequantize_reference(a: DequantizeAttrs, q: Array, scale: Array, *zero: Array) -> Array:
    whole = q.astype(np.int32)
    if zero:
        whole = whole - along(zero[0], q.ndim, a.axis).astype(np.int32)
    wide = widen(scale)
    return (whole.astype(wide.dtype) * along(wide, q.ndim, a.axis)).astype(scale.dtype)


def _dequantize_compute(a: DequantizeAttrs, operands: Sequence[te.Tensor], result: TensorType) -> te.Tensor:
    q, scale, *zero = operands
    wide = widened(scale.dtype)

    def body(*i: Int) -> te.ScalarValue:
        whole = q[i].cast(I32)
        if zero:
            whole = whole - at_axis(zero[0], i, a.axis).cast(I32)
        return (whole.cast(wide) * at_axis(scale, i, a.axis).cast(wide)).cast(result.dtype)

    return te.compute(result.shape, body, name="dequantize")


def _number(value: float, dtype: DType) -> Array:
    return np.asarray(value, dtype.numpy)


def _quantize_samples() -> list[Sample]:
    x = noise((2, 3, 4), F32, low=-3, high=3, seed="q")
    ties = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 1e9, -1e9, np.inf, -np.inf, np.nan], np.float32)
    scales = np.array([0.01, 0.5, 0.03], np.float32)
    zeros = np.array([3, -5, 0], np.int8)
    n = ("a", "b", "c")
    return [
        Sample("u8", QuantizeAttrs(), (x, _number(0.02, F32), _number(128, U8)), (n, (), ())),
        Sample("i8", QuantizeAttrs(I8), (x, _number(0.02, F32), _number(-3, I8)), (n, (), ())),
        Sample("u16", QuantizeAttrs(U16), (x, _number(1e-4, F32), _number(30000, U16))),
        Sample("i16", QuantizeAttrs(I16), (x, _number(1e-5, F32), _number(5, I16))),
        Sample("no zero point", QuantizeAttrs(I8), (x, _number(0.02, F32)), (n, ())),
        Sample("ties and ends", QuantizeAttrs(I8), (ties, _number(1, F32), _number(1, I8))),
        Sample("per axis", QuantizeAttrs(I8, 1), (x, scales, zeros), (n, ("b",), ("b",))),
        Sample("f16", QuantizeAttrs(I8), (x.astype(np.float16), _number(0.02, F16))),
    ]


def _dequantize_samples() -> list[Sample]:
    q = noise((2, 3, 4), I8, low=-128, high=127, seed="dq")
    scales = np.array([0.01, 0.5, 0.03], np.float32)
    zeros = np.array([3, -5, 127], np.int8)
    n = ("a", "b", "c")
    return [
        Sample("i8", DequantizeAttrs(), (q, _number(0.02, F32), _number(-128, I8)), (n, (), ())),
        Sample("u8", DequantizeAttrs(), (noise((5,), U8, high=255), _number(0.02, F32), _number(128, U8))),
        Sample("i32", DequantizeAttrs(), (noise((5,), I32, low=-9999, high=9999), _number(1e-3, F32))),
        Sample("per axis", DequantizeAttrs(-2), (q, scales, zeros), (n, ("b",), ("b",))),
        Sample("f16", DequantizeAttrs(), (q, _number(0.02, F16))),
    ]


# --------------------------------------------------------------------------- products


def _matmul_rule(ctx: TypeContext, a: NoAttrs, args: Types) -> TensorType:
    x, w = rules.tensor(ctx, args, 0, FACTORS), rules.tensor(ctx, args, 1, FACTORS)
    shape = matmul_shape(ctx, x.shape, w.shape)
    if len(args) > 2:
        rows = x.shape[-2:-1]
        integer_zero_point(ctx, rules.tensor(ctx, args, 2), x, rows)
    if len(args) > 3:
        columns = w.shape[-1:] if len(w.shape) > 1 else ()
        integer_zero_point(ctx, rules.tensor(ctx, args, 3), w, columns)
    return TensorType(shape, I32)


def integer_zero_point(ctx: TypeContext, zero: TensorType, x: TensorType, per: tuple[Int, ...]) -> None:
    """Require one zero point in the type of an operand, or one for each of some places."""
    rules.same_dtype(ctx, x.dtype, zero.dtype, "the zero point")
    if zero.shape:
        rules.same_shape(ctx, zero, per, "the zero point")


def _matmul_reference(a: NoAttrs, x: Array, w: Array, *zeros: Array) -> Array:
    return np.matmul(*less_zero_array((x, w), zeros, (-2, -1)))


def _matmul_compute(a: NoAttrs, operands: Sequence[te.Tensor], result: TensorType) -> te.Tensor:
    lhs, rhs = less_zero(operands[:2], operands[2:], (-2, -1))
    return product(lhs, rhs, result.shape, lambda p, q: p * q, "matmul_integer")


def less_zero(
    operands: Sequence[te.Tensor], zeros: Sequence[te.Tensor], axes: Sequence[int]
) -> list[te.Tensor]:
    """Return operands of a product as i32 less their zero points, which the last may lack.

    Args:
        operands: of the product.
        zeros: a number each, or one for each index of an axis.
        axes: those axes.
    """
    given = [*zeros, *(None for _ in operands[len(zeros) :])]
    return [_shifted(x, z, axis) for x, z, axis in zip(operands, given, axes, strict=True)]


def less_zero_array(operands: Sequence[Array], zeros: Sequence[Array], axes: Sequence[int]) -> list[Array]:
    """Do to arrays what `less_zero` does to tensors."""
    wide = [x.astype(np.int32) for x in operands]
    for i, (zero, axis) in enumerate(zip(zeros, axes, strict=False)):
        wide[i] = wide[i] - along(zero.astype(np.int32), wide[i].ndim, axis)
    return wide


def _shifted(x: te.Tensor, zero: te.Tensor | None, axis: int) -> te.Tensor:
    def body(*i: Int) -> te.ScalarValue:
        v = x[i].cast(I32)
        return v if zero is None else v - at_axis(zero, i, axis).cast(I32)

    return te.compute(x.shape, body, name="shifted")


def _matmul_samples() -> list[Sample]:
    x, w = noise((4, 5), U8, high=255, seed="x"), noise((5, 3), I8, low=-128, high=127, seed="w")
    rows = noise((4,), U8, high=255, seed="zx")
    columns = noise((3,), I8, low=-128, high=127, seed="zw")
    n = (("m", "k"), ("k", "n"))
    none = NoAttrs()
    return [
        Sample("plain", none, (x, w), n),
        Sample("lhs", none, (x, w, _number(7, U8)), (*n, ())),
        Sample("both", none, (x, w, _number(200, U8), _number(-9, I8)), (*n, (), ())),
        Sample("vectors", none, (x, w, rows, columns), (*n, ("m",), ("n",))),
        Sample("batched", none, (np.stack([x, x[::-1]]), w, _number(3, U8))),
        Sample("i16", none, (noise((4, 5), I16, low=-32768, high=32767), w, _number(-700, I16)), (*n, ())),
    ]


def _conv_rule(ctx: TypeContext, a: ConvAttrs, args: Types) -> TensorType:
    x, w = rules.tensor(ctx, args, 0, FACTORS), rules.tensor(ctx, args, 1, FACTORS)
    if len(args) > 2:
        integer_zero_point(ctx, rules.tensor(ctx, args, 2), x, ())
    if len(args) > 3:
        integer_zero_point(ctx, rules.tensor(ctx, args, 3), w, w.shape[:1])
    wide = (TensorType(x.shape, I32), TensorType(w.shape, I32))
    return convolution.conv_rule(ctx, a, wide)


def _conv_reference(a: ConvAttrs, x: Array, w: Array, *zeros: Array) -> Array:
    return convolution.conv_reference(a, *less_zero_array((x, w), zeros, (0, 0)))


def _conv_compute(a: ConvAttrs, operands: Sequence[te.Tensor], result: TensorType) -> te.Tensor:
    return convolution.conv_compute(a, less_zero(operands[:2], operands[2:], (0, 0)), result)


def _conv_samples() -> list[Sample]:
    x = noise((1, 4, 6, 5), U8, high=255, seed="x")
    w = noise((6, 2, 3, 3), I8, low=-128, high=127, seed="w")
    a = ConvAttrs((1, 2), (1, 1, 1, 1), (), 2)
    n = (("n", 4, "h", "w"), w.shape)
    return [
        Sample("plain", a, (x, w), n),
        Sample("zero", a, (x, w, _number(128, U8)), (*n, ())),
        Sample("both", a, (x, w, _number(9, U8), noise((6,), I8)), (*n, (), (6,))),
        Sample("i16", a, (noise((1, 4, 6, 5), I16, low=-9999, high=9999), w, _number(5, I16)), (*n, ())),
    ]


DEFINITIONS: tuple[OpDef, ...] = (
    define(
        "quantize",
        QuantizeAttrs,
        _quantize_rule,
        (2, 3),
        FusionPattern.BROADCAST,
        "round(x / scale) + zero point, saturated to the type of the result",
        reference=_quantize_reference,
        compute=_quantize_compute,
        samples=_quantize_samples,
    ),
    define(
        "dequantize",
        DequantizeAttrs,
        _dequantize_rule,
        (2, 3),
        FusionPattern.BROADCAST,
        "(q - zero point) * scale, in the type of the scale",
        reference=_dequantize_reference,
        compute=_dequantize_compute,
        samples=_dequantize_samples,
    ),
    define(
        "matmul_integer",
        NoAttrs,
        _matmul_rule,
        (2, 4),
        FusionPattern.CONTRACTION,
        "matmul in i32 of operands less their zero points (one, or one per row of the left and "
        "column of the right)",
        reference=_matmul_reference,
        compute=_matmul_compute,
        samples=_matmul_samples,
        terms=lambda _, x, w: x.shape[-1],
    ),
    define(
        "conv_integer",
        ConvAttrs,
        _conv_rule,
        (2, 4),
        FusionPattern.CONTRACTION,
        "conv in i32 of operands less their zero points (one, and one or one per output channel)",
        reference=_conv_reference,
        compute=_conv_compute,
        samples=_conv_samples,
        terms=conv_terms,
    ),
)
