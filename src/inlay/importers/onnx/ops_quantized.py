"""Quantization: conversions to and from integers, and integer products.

Scales and zero points come as one number, as a vector along an axis, or in blocks along an axis; where
they are of a quantize, blocks are spread out to one number per element. A product of quantized operands is
the exact integer product, rescaled once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from inlay.arith import dtype as dt
from inlay.arith.dtype import DType
from inlay.importers.onnx import load
from inlay.importers.onnx.node import Node, Rule
from inlay.importers.onnx.ops_nn import channel_bias, conv_attributes
from inlay.importers.onnx.term import Term, arange, term
from inlay.importers.onnx.values import OnnxValue
from inlay.ir.expr import Expr

NARROW = (dt.I8, dt.U8, dt.I16, dt.U16)


def parameter(node: Node, i: int) -> Term:
    """Return a scale or zero point; a vector of one number is a number."""
    p = term(node, i)
    return p.reshape() if p.rank == 1 and p.shape[0] == 1 else p


def _spread(p: Term, x: Term, axis: int, block: int) -> Term:
    """Return a parameter with one number for each element, or what broadcasts to that."""
    if p.rank == 0:
        return p
    if p.rank == 1 and not block:
        return p.along(axis, x.rank)
    if not block:
        raise p.node.invalid(f"has parameters of rank {p.rank} without blocks")
    places = arange(p.node, x.shape[axis]) / block
    return p.gather(places, axis=axis, clamp=True)


def _quantize(node: Node) -> OnnxValue:
    stored = node.value(2).stored if node.has(2) else node.int("output_dtype", 0)
    if not load.is_narrow(stored):
        return _quantized(node, node.type(2).dtype if node.has(2) else _output_type(node)).value
    found = load.integers_of(stored)
    if found is None:
        raise node.unsupported(f"quantizes to {load.elem_type_name(stored)}")
    to, low, high = found
    return replace(_quantized(node, to).clamp(low, high).value, stored=stored)


def _quantized(node: Node, to: DType) -> Term:
    """Return the input in steps of its scale, saturated to a format."""
    if to not in NARROW:
        raise node.unsupported(f"quantizes to {to}")
    x, scale = term(node, 0), parameter(node, 1)
    zero = parameter(node, 2) if node.has(2) else None
    axis, block = _axis_and_block(node, x)
    if not x.dtype.is_float:
        x = x.cast(scale.dtype)
    precision = load.dtype_of(node.int("precision", 0)) or scale.dtype
    if not block and scale.rank <= 1 and x.dtype is precision is scale.dtype:
        more = () if zero is None else (zero,)
        return x.op("quantize", scale, *more, dtype=to, axis=axis)
    quotient = x.cast(precision) / _spread(scale, x, axis, block).cast(precision)
    return _saturated(quotient, zero and _spread(zero, x, axis, block), to)


def _saturated(x: Term, zero: Term | None, to: DType) -> Term:
    """Round to nearest, ties to even, add the zero point and clamp to a format."""
    bounds = np.iinfo(to.numpy)
    # Beyond any narrow format and its zero point, and exact in f32.
    whole = x.cast(dt.F32).op("round").clamp(-float(2**20), float(2**20)).cast(dt.I32)
    if zero is not None:
        whole = whole + zero.cast(dt.I32)
    return whole.clamp(int(bounds.min), int(bounds.max)).cast(to)


def _output_type(node: Node) -> DType:
    asked = node.int("output_dtype", 0)
    found = load.dtype_of(asked) if asked else dt.U8
    if found is None:
        raise node.unsupported(f"quantizes to {load.elem_type_name(asked)}")
    return found


def _axis_and_block(node: Node, x: Term) -> tuple[int, int]:
    block = node.int("block_size", 0)
    if not block and parameter(node, 1).rank == 0:
        return 0, 0
    return node.axis(node.int("axis", 1), x.rank), block


def _dequantize(node: Node) -> OnnxValue:
    q, scale = term(node, 0), parameter(node, 1)
    zero = parameter(node, 2) if node.has(2) else None
    axis, block = _axis_and_block(node, q)
    asked = node.int("output_dtype", 0)
    to = (load.dtype_of(asked) if asked else scale.dtype) or scale.dtype
    if q.dtype is dt.F32:  # a constant that was stored in a narrower float format
        return (q.cast(scale.dtype) * _spread(scale, q, axis, block)).cast(to).value
    if q.dtype not in (*NARROW, dt.I32):
        raise node.unsupported(f"converts from {q.dtype}")
    if not block and scale.rank <= 1:
        more = () if zero is None else (zero,)
        return q.op("dequantize", scale, *more, axis=axis).cast(to).value
    if not block:
        raise node.invalid(f"has parameters of rank {scale.rank} without blocks")
    more = () if zero is None else (zero,)
    return q.op("dequantize_blocks", scale, *more, block=block, axis=axis).cast(to).value


def _zeros(node: Node, *inputs: int) -> tuple[Expr, ...]:
    """Return the zero points that are given; one that is left out before another is 0."""
    last = max((i for i in inputs if node.has(i)), default=-1)
    found: list[Expr] = []
    for i in inputs:
        if i <= last:
            operand = i - inputs[0]
            dtype = node.type(operand).dtype
            zero = parameter(node, i) if node.has(i) else None
            found.append(node.number(0, dtype) if zero is None else zero.expr)
    return tuple(found)


def _matmul_integer(node: Node) -> OnnxValue:
    zeros = _zeros(node, 2, 3)
    if zeros and len(node.type_of(zeros[0]).shape) > 1:
        raise node.unsupported("has zero points for each matrix of a batch")
    return node.result("matmul_integer", node.tensor(0), node.tensor(1), *zeros)


def _conv_integer(node: Node) -> OnnxValue:
    attrs = conv_attributes(node, node.type(0), node.type(1))
    return node.result("conv_integer", node.tensor(0), node.tensor(1), *_zeros(node, 2, 3), **attrs)


def dynamically_quantized(x: Term) -> tuple[Term, Term, Term]:
    """Return a tensor as u8, its scale and its zero point, as DynamicQuantizeLinear does."""
    low = x.over("min").op("minimum", 0.0)
    high = x.over("max").op("maximum", 0.0)
    scale = (high - low) / 255.0
    scale = scale.equals(0.0).where(1.0, scale)
    zero = (-low / scale).op("round").clamp(0.0, 255.0).cast(dt.U8)
    return x.op("quantize", scale, zero, dtype=dt.U8, axis=0), scale, zero


def quantized_product(x: Term, weights: Term, scale: Term, zero: Term) -> Term:
    """Multiply reals with weights in integers: quantize, multiply exactly, and scale once."""
    q, of_x, zero_of_x = dynamically_quantized(x)
    total = q.op("matmul_integer", weights, zero_of_x, zero)
    return total.cast(dt.F32) * (of_x * scale)


def _q_linear_conv(node: Node) -> OnnxValue:
    x, w = node.tensor(0), node.tensor(3)
    attrs = conv_attributes(node, node.type(0), node.type(3))
    zeros = (parameter(node, 2).expr, parameter(node, 5).expr)
    total = node.emit("conv_integer", x, w, *zeros, **attrs)
    spatial = node.rank(0) - 2
    if node.has(8):
        total = channel_bias(node, total, node.tensor(8), spatial)
    return requantized(Term(node, total), parameter(node, 1) * parameter(node, 4), 1, node).value


def _q_linear_matmul(node: Node) -> OnnxValue:
    """Inputs: a, its scale and zero point; b, its scale and zero point; scale and zero of y."""
    a, b = node.tensor(0), node.tensor(3)
    zeros = (parameter(node, 2).expr, parameter(node, 5).expr)
    total = node.emit("matmul_integer", a, b, *zeros)
    left, right, product = parameter(node, 1), parameter(node, 4), Term(node, total)
    if left.rank == 0 or product.rank < 2:
        return requantized(product, left * right, -1, node).value
    if right.rank == 0:
        return requantized(product, left * right, -2, node).value
    return _rescaled(product, left.reshape(left.shape[0], 1) * right, node).value


def requantized(total: Term, scale: Term, axis: int, node: Node, at: int = 6) -> Term:
    """Return a product in i32 as a quantized value; inputs `at` and behind are its scale and zero point.

    `scale` is that of the product: one, or one for each index of an axis.
    """
    zero, made = node.array(at + 1), parameter(node, at + 1)
    if zero is None or zero.size != 1 or parameter(node, at).rank or made.dtype not in NARROW:
        along = scale.along(axis % total.rank, total.rank) if scale.rank else scale
        return _rescaled(total, along, node, at)
    ratio = scale.cast(dt.F32) / parameter(node, at).cast(dt.F32)
    return total.op("requantize", ratio, dtype=made.dtype, zero=int(zero.reshape(())), axis=axis)


def _rescaled(total: Term, scale: Term, node: Node, at: int = 6) -> Term:
    """Do the same in floats, where a factor is no vector along an axis or the zero point is not known."""
    zero = parameter(node, at + 1)
    ratio = scale.cast(dt.F32) / parameter(node, at).cast(dt.F32)
    return _saturated(total.cast(dt.F32) * ratio, zero, zero.dtype)


RULES: Mapping[str, Rule] = {
    "QuantizeLinear": _quantize,
    "DequantizeLinear": _dequantize,
    "MatMulInteger": _matmul_integer,
    "ConvInteger": _conv_integer,
    "QLinearConv": _q_linear_conv,
    "QLinearMatMul": _q_linear_matmul,
}
