"""Convolutions, fully connected layers, products of matrices. Tensors are `[n, h, w, c]`; the program's
are `[n, c, h, w]`.

Floats with weights in integers (hybrid models) compute with the weights' reals: the interpreter would round
the activations as well, which is its way to be fast and not the meaning of the model.

Integers of 16 bits are `256 * high + low`, a signed and an unsigned byte: two products of bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np

from inlay.arith.dtype import I8, I16, I32, I64, U8, DType
from inlay.arith.expr import floordiv, lit, product
from inlay.importers.tflite.integers import activated, multipliers, requantize, requantize_by
from inlay.importers.tflite.node import Kind, Node, Rule
from inlay.importers.tflite.windows import same_or_valid
from inlay.ir.expr import Expr
from inlay.ops.requantization import Rounding

FIRST, LAST = (0, 3, 1, 2), (0, 2, 3, 1)


def _convolution(node: Node, options: str, *, by_channel: bool) -> Expr:
    """Emit a convolution; `by_channel`: filters are `[1, h, w, c * m]`, else `[oc, h, w, c / groups]`."""
    padding, down, along, activation, rows, columns = node.options(
        options,
        "Padding",
        "StrideH",
        "StrideW",
        "FusedActivationFunction",
        "DilationHFactor",
        "DilationWFactor",
    )
    strides, dilations = (down, along), (rows, columns)
    x, kernel = node.tensor(0), node.extents(1)[1:3]
    if len(node.shape(x)) != 4 or len(node.extents(1)) != 4:
        raise node.unsupported("takes tensors of other than four axes")
    channels = node.shape(x)[3].value
    per_group = node.extents(1)[3]
    if channels is None or not channels or (not by_channel and channels % max(per_group, 1)):
        raise node.unsupported(f"has {channels} channels for filters of {per_group}")
    sizes = node.shape(x)[1:3]
    attrs = {
        "strides": strides,
        "dilations": dilations,
        "pads": same_or_valid(node, padding, sizes, kernel, strides, dilations),
        "groups": channels if by_channel else channels // per_group,
    }
    order = (3, 0, 1, 2) if by_channel else (0, 3, 1, 2)
    first = node.op("transpose", x, perm=FIRST)
    if node.is_integer():
        w = node.op("transpose", node.tensor(1), perm=order)
        total = biased(node, _products(node, "conv_integer", first, w, **attrs), per_channel=(-1, 1, 1))
        made = requantize(node, total, _factors(node), node.output(), activation, axis=1)
    else:
        w = node.op("transpose", node.reals(1), perm=order)
        made = activated(node, biased(node, node.op("conv", first, w, **attrs), (-1, 1, 1)), activation)
    return node.op("transpose", made, perm=LAST)


def _products(node: Node, name: str, x: Expr, w: Expr, **attrs: object) -> Expr:
    """Emit sums of products of integers less their zero points, as wide as the bias."""
    weights = node.quantization(node.input(1))
    if len(set(weights.zeros.tolist())) > 1:
        raise node.unsupported("has weights of several zero points")
    wide = node.input(2).dtype if node.has(2) else I64
    zeros = node.zero(node.input(0)), int(weights.zeros[0])
    return integer_products(node, name, x, w, wide, *zeros, **attrs)


def integer_products(
    node: Node, name: str, x: Expr, w: Expr, wide: DType, zero: int = 0, zero_w: int = 0, **attrs: object
) -> Expr:
    """Emit `conv_integer` or `matmul_integer` of operands less their zero points.

    Args:
        node: for messages.
        name: of the operator.
        x: of 8 or 16 bits.
        w: of 8 bits.
        wide: of the sums of 16-bit integers; those of bytes are i32.
        zero: of `x`, 0 where that has 16 bits.
        zero_w: of `w`.
        attrs: of the operator.
    """
    if node.dtype(w) not in (I8, U8):
        raise node.unsupported(f"multiplies {node.dtype(x)} by {node.dtype(w)}")
    if node.dtype(x) is I16:
        if zero:
            raise node.unsupported(f"has the zero point {zero} of integers of 16 bits")
        high = node.cast(node.op("shift_right", x, np.asarray(8, np.int16)), I8)
        low = node.cast(node.op("bitwise_and", x, np.asarray(255, np.int16)), U8)
        both = [
            node.cast(integer_products(node, name, part, w, I32, 0, zero_w, **attrs), I64)
            for part in (high, low)
        ]
        total = node.op("add", node.op("mul", both[0], np.asarray(256, np.int64)), both[1])
        return node.cast(total, wide)
    zeros: list[np.ndarray] = []
    if zero or zero_w:
        zeros.append(node.number(zero, x))
    if zero_w:
        zeros.append(node.number(zero_w, w))
    return node.op(name, x, w, *zeros, **attrs)


def _factors(node: Node) -> float | np.ndarray:
    """Return by what sums become integers of the output: one factor, or one for each channel."""
    weights = node.quantization(node.input(1))
    out = float(node.scale(node.output()))
    is_one = len(weights.scales) == 1
    if is_one and (node.record.name == "FULLY_CONNECTED" or node.input(0).dtype is U8):
        # These kernels multiply the scales in f32.
        return float(node.scale(node.input(0)) * weights.scales[0]) / out
    factors = float(node.scale(node.input(0))) * weights.scales.astype(np.float64) / out
    return float(factors[0]) if is_one else factors


def biased(node: Node, e: Expr, per_channel: tuple[int, ...], i: int = 2) -> Expr:
    """Add the bias that an input is, if it is given; `per_channel` is its shape, -1 for its length."""
    if not node.has(i):
        return e
    bias = node.reals(i) if node.dtype(e).is_float else node.tensor(i)
    shape = [node.shape(bias)[0] if d < 0 else d for d in per_channel]
    return node.op("add", e, node.cast(node.reshape(bias, *shape), node.dtype(e)))


def _fully_connected(node: Node) -> Expr:
    activation, keeps, form = node.options(
        "FullyConnectedOptions", "FusedActivationFunction", "KeepNumDims", "WeightsFormat"
    )
    if form != 0 or len(node.extents(1)) != 2 or not node.extents(1)[1]:
        raise node.unsupported("has weights in another order than rows of outputs")
    terms = node.extents(1)[1]
    x, rows = node.tensor(0), node.shape(node.tensor(0))[:-1]
    if not keeps or node.shape(x)[-1].value != terms:
        rows = (floordiv(product(node.shape(x)), lit(terms)),)
    flat = node.reshape(x, *rows, terms)
    if node.kind() is Kind.QUANTIZED:
        w = node.op("transpose", node.tensor(1), perm=(1, 0))
        total = biased(node, _products(node, "matmul_integer", flat, w), (-1,))
        # Kernels for microcontrollers do not take bytes without a sign; those that do round once.
        rounding = Rounding.HALF_UP if node.input(0).dtype is U8 else Rounding.TFLITE
        pair = multipliers(_factors(node))
        return requantize_by(node, total, *pair, node.output(), activation, rounding=rounding)
    w = node.op("transpose", node.reals(1), perm=(1, 0))
    return activated(node, biased(node, node.op("matmul", flat, w), (-1,)), activation)


def _batch_matmul(node: Node) -> Expr:
    """Emit products of matrices, either of them transposed."""
    adjoints = node.options("BatchMatMulOptions", "AdjX", "AdjY")
    is_integer = node.kind() is Kind.QUANTIZED
    operands: list[Expr] = []
    for i, is_turned in enumerate(adjoints):
        e = node.tensor(i) if is_integer else node.reals(i)
        rank = len(node.shape(e))
        turned = (*range(rank - 2), rank - 1, rank - 2)
        operands.append(node.op("transpose", e, perm=turned) if is_turned else e)
    if not is_integer:
        return node.op("matmul", *operands)
    scale = node.scale(node.input(0)) * node.scale(node.input(1))
    factor = float(scale) / float(node.scale(node.output()))
    if node.input(0).dtype is I16 and node.input(1).dtype is I16:
        wide = [node.cast(e, I64) for e in operands]
        return requantize(node, node.op("matmul", *wide), factor, node.output(), 0)
    a, b = operands
    zeros = node.zero(node.input(0)), node.zero(node.input(1))
    total = integer_products(node, "matmul_integer", a, b, I64, *zeros)
    return requantize(node, total, factor, node.output(), 0)


RULES: Mapping[str, Rule] = {
    "CONV_2D": partial(_convolution, options="Conv2DOptions", by_channel=False),
    "DEPTHWISE_CONV_2D": partial(_convolution, options="DepthwiseConv2DOptions", by_channel=True),
    "FULLY_CONNECTED": _fully_connected,
    "BATCH_MATMUL": _batch_matmul,
}
