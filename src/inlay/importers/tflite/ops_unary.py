"""Functions of one tensor, on floats, and on quantized integers by tables and requantization."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from inlay.arith.dtype import F32, I8, I16, I32, U8
from inlay.importers.tflite import tables
from inlay.importers.tflite.fixed_point import function_table, logistic, tanh
from inlay.importers.tflite.integers import (
    NONE,
    RELU,
    RELU6,
    RELU_0_TO_1,
    RELU_N1_TO_1,
    activated,
    multiplier_of,
    requantize,
)
from inlay.importers.tflite.node import Kind, Node, Rule
from inlay.ir.expr import Expr
from inlay.ops.activations import GeluForm


def _of_reals(node: Node, name: str) -> Expr:
    if node.kind() is Kind.QUANTIZED:
        raise node.unsupported("takes quantized integers")
    return node.op(name, node.tensor(0))


def _round(node: Node) -> Expr:
    node.only_floats()
    return node.op("round", node.tensor(0))


def _pair(node: Node, *, is_output: bool) -> tuple[np.float32, int]:
    t = node.output() if is_output else node.input(0)
    return node.scale(t), node.zero(t)


def _tabulated(node: Node, name: str, function: tables.Function, **attrs: object) -> Expr:
    """Emit a function: of floats, or of narrow integers by way of what they stand for."""
    if not node.is_integer():
        return node.op(name, node.tensor(0), **attrs)
    return node.looked_up(_table(node, function), node.tensor(0))


def _table(node: Node, function: tables.Function) -> np.ndarray:
    dtype, pair, out = node.input(0).dtype, _pair(node, is_output=False), _pair(node, is_output=True)
    x = tables.all_of(dtype)
    if dtype is not I16:
        return tables.of_reals(function, x, pair, out, dtype)
    steps = tables.in_512_steps(function, (float(pair[0]), pair[1]), (float(out[0]), out[1]), dtype)
    return tables.interpolated(steps, x).astype(np.int16)


def _squashed(
    node: Node,
    name: str,
    fixed: Callable[[int, int], int],
    wide: Callable[[np.ndarray, int, int], np.ndarray],
    real: tables.Function,
) -> Expr:
    """Emit the logistic function or tanh: of floats, or integers with results in a fixed scale."""
    if not node.is_integer():
        return node.op(name, node.tensor(0))
    dtype, out = node.input(0).dtype, node.output()
    scale = float(node.scale(node.input(0)))
    if dtype is U8:
        return node.looked_up(_table(node, real), node.tensor(0))
    if dtype is I16:
        x = tables.all_of(I16)
        found = wide(x, *tables.scale_of_16_bits(scale))
        return node.looked_up(tables.fitted(found, I16), node.tensor(0))
    unit, zero = (1 / 256, -128) if name == "sigmoid" else (1 / 128, 0)
    if node.scale(out) != np.float32(unit) or node.zero(out) != zero:
        raise node.unsupported(f"gives integers in steps of {node.scale(out)}, and {unit} is possible")
    table = function_table(scale, node.zero(node.input(0)), fixed, 8 if zero else 7)
    return node.looked_up(table, node.tensor(0))


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def _elu(x: np.ndarray) -> np.ndarray:
    return np.where(x < 0, np.expm1(np.minimum(x, 0)), x)


def _erf(x: np.ndarray) -> np.ndarray:
    return np.vectorize(math.erf)(x)


def _gelu(node: Node) -> Expr:
    (is_near,) = node.options("GeluOptions", "Approximate")

    def near(x: np.ndarray) -> np.ndarray:
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))

    def exact(x: np.ndarray) -> np.ndarray:
        return 0.5 * x * (1 + _erf(x * math.sqrt(0.5)))

    return _tabulated(
        node, "gelu", near if is_near else exact, form=GeluForm.TANH if is_near else GeluForm.ERF
    )


def _leaky(node: Node) -> Expr:
    (alpha,) = node.options("LeakyReluOptions", "Alpha")
    if not node.is_integer():
        x = node.tensor(0)
        slope = node.op("mul", x, np.asarray(alpha, np.float32))
        return node.op("select", node.op("greater_equal", x, np.asarray(0, np.float32)), x, slope)
    scale, out = node.scale(node.input(0)), node.scale(node.output())
    x = node.centered(0)
    above = requantize(node, x, float(scale) / float(out), node.output(), NONE)
    # A multiplier below 0 rounds as that of the opposite number: products are the same.
    turned = node.op("neg", x) if alpha < 0 else x
    slope = float(scale) * abs(float(np.float32(alpha))) / float(out)
    below = requantize(node, turned, slope, node.output(), NONE)
    return node.op("select", node.op("greater_equal", x, np.asarray(0, np.int32)), above, below)


def _prelu(node: Node) -> Expr:
    if not node.is_integer():
        x = node.tensor(0)
        slope = node.op("mul", x, node.tensor(1))
        return node.op("select", node.op("greater_equal", x, np.asarray(0, np.float32)), x, slope)
    a, b, out = (float(node.scale(t)) for t in (node.input(0), node.input(1), node.output()))
    x = node.centered(0)
    product = node.op("mul", x, node.centered(1))
    above = requantize(node, x, a / out, node.output(), NONE)
    below = requantize(node, product, a * b / out, node.output(), NONE)
    return node.op("select", node.op("greater_equal", x, np.asarray(0, np.int32)), above, below)


def _hard_swish(node: Node) -> Expr:
    if not node.is_integer():
        x = node.tensor(0)
        gate = activated(node, node.op("add", x, np.asarray(3, np.float32)), RELU6)
        return node.op("mul", x, node.op("mul", gate, np.asarray(1 / 6, np.float32)))
    dtype, (scale, zero) = node.input(0).dtype, _pair(node, is_output=False)
    out_scale, out_zero = _pair(node, is_output=True)
    if dtype not in (I8, U8):
        raise node.unsupported(f"takes {dtype}")
    found = tables.hard_swish(tables.all_of(dtype) - zero, scale, out_scale) + out_zero
    return node.looked_up(tables.fitted(found, dtype), node.tensor(0))


def _rectified(node: Node, activation: int) -> Expr:
    if not node.is_integer():
        return activated(node, node.tensor(0), activation)
    factor = float(node.scale(node.input(0))) / float(node.scale(node.output()))
    return requantize(node, node.centered(0), factor, node.output(), activation)


def _abs(node: Node) -> Expr:
    if node.kind() is not Kind.QUANTIZED:
        return node.op("abs", node.tensor(0))
    (scale, zero), (out_scale, out_zero) = _pair(node, is_output=False), _pair(node, is_output=True)
    dtype = node.input(0).dtype
    size = np.abs(tables.all_of(dtype) - zero)
    if scale != out_scale:
        m, s = multiplier_of(float(scale) / float(out_scale))
        size = tables.times(size, m, s)
    return node.looked_up(tables.fitted(size + out_zero, dtype), node.tensor(0))


def _rsqrt(node: Node) -> Expr:
    if not node.is_integer():
        return node.op("rsqrt", node.tensor(0))
    (scale, zero), (out_scale, out_zero) = _pair(node, is_output=False), _pair(node, is_output=True)
    dtype = node.input(0).dtype
    x = tables.all_of(dtype) - zero
    m, s = tables.inverse_root(np.maximum(x, 1))
    data = tables.times(np.ones_like(x), m, s + 20)
    own, shift = multiplier_of(float(np.float32(1) / (np.sqrt(scale) * out_scale)))
    found = tables.times(data, own, shift - 20) + out_zero
    found = np.where(x <= 0, np.iinfo(dtype.numpy).max, found)
    return node.looked_up(tables.fitted(found, dtype), node.tensor(0))


def _neg(node: Node) -> Expr:
    """Emit a negation. The kernels negate integers as they are, and the least one is its own negative."""
    if node.kind() is Kind.QUANTIZED:
        node.keeps_scale()
        if node.zero(node.input(0)) or node.input(0).dtype is U8:
            raise node.unsupported("takes integers with a zero point, which its kernels would leave out")
    return node.op("neg", node.tensor(0))


def _sqrt(node: Node) -> Expr:
    """Emit a root; of integers, a table of roots rounded towards 0.

    Kernels fail where an integer stands for less than 0: here it counts as 0.
    """
    if node.kind() is not Kind.QUANTIZED:
        return node.op("sqrt", node.tensor(0))
    (scale, zero), (out_scale, out_zero) = _pair(node, is_output=False), _pair(node, is_output=True)
    dtype = node.input(0).dtype
    if dtype is U8:
        raise node.unsupported("takes u8")
    size = np.maximum(tables.all_of(dtype) - zero, 0).astype(np.float32)
    steps = (np.sqrt(scale * size) / out_scale).astype(np.int64)
    return node.looked_up(tables.fitted(steps + out_zero, dtype), node.tensor(0))


def _square(node: Node) -> Expr:
    if node.kind() is Kind.QUANTIZED:
        raise node.unsupported("takes quantized integers")
    return node.op("mul", node.tensor(0), node.tensor(0))


def _quantize(node: Node) -> Expr:
    """Emit steps of reals, ties away from zero, or of other integers."""
    out = node.output()
    if node.input(0).dtype is F32:
        zero, info = node.zero(out), np.iinfo(out.dtype.numpy)
        ratio = node.op("div", node.tensor(0), np.asarray(node.scale(out)))
        half = node.op("mul", node.op("sign", ratio), np.asarray(0.5, np.float32))
        whole = node.op("trunc", node.op("add", ratio, half))
        ends = node.clamped(whole, -(1 << 20), 1 << 20)
        moved = node.op("add", node.cast(ends, I32), np.asarray(zero, np.int32))
        return node.cast(node.clamped(moved, int(info.min), int(info.max)), out.dtype)
    factor = float(node.scale(node.input(0))) / float(node.scale(out))
    return requantize(node, node.centered(0), factor, out, NONE)


def _fake_quant(node: Node) -> Expr:
    """Emit floats rounded to steps between two ends, which are moved so that 0 is a step."""
    node.only_floats()
    low, high, bits, is_narrow = node.options("FakeQuantOptions", "Min", "Max", "NumBits", "NarrowRange")
    if not (low <= 0 <= high and low < high and 2 <= bits <= 16):
        raise node.unsupported(f"has {bits} bits for {low} to {high}")
    real = np.float32
    least, most = real(is_narrow), real((1 << bits) - 1)
    scale = (real(high) - real(low)) / (most - least)
    zero = np.clip(np.floor(least - real(low) / scale + real(0.5)), least, most)
    bottom, top = (least - zero) * scale, (most - zero) * scale
    steps = node.op("sub", node.clamped(node.tensor(0), float(bottom), float(top)), np.asarray(bottom))
    steps = node.op("mul", steps, np.asarray(real(1) / scale))
    whole = node.op("floor", steps)
    is_more = node.op("greater_equal", node.op("sub", steps, whole), np.asarray(0.5, real))
    whole = node.op("add", whole, node.cast(is_more, F32))
    return node.op("add", node.op("mul", whole, np.asarray(scale)), np.asarray(bottom))


def _dequantize(node: Node) -> Expr:
    return node.reals(0)


RULES: Mapping[str, Rule] = {
    "LOGISTIC": partial(
        _squashed, name="sigmoid", fixed=logistic, wide=tables.sigmoid_of_16_bits, real=_sigmoid
    ),
    "TANH": partial(_squashed, name="tanh", fixed=tanh, wide=tables.tanh_of_16_bits, real=np.tanh),
    "ELU": partial(_tabulated, name="elu", function=_elu),
    "EXP": partial(_tabulated, name="exp", function=np.exp),
    "LOG": partial(_tabulated, name="log", function=np.log),
    "GELU": _gelu,
    "LEAKY_RELU": _leaky,
    "PRELU": _prelu,
    "HARD_SWISH": _hard_swish,
    "FLOOR": partial(_of_reals, name="floor"),
    "CEIL": partial(_of_reals, name="ceil"),
    "ROUND": _round,
    "SIN": partial(_of_reals, name="sin"),
    "COS": partial(_of_reals, name="cos"),
    "SQRT": _sqrt,
    "SIGN": partial(_of_reals, name="sign"),
    "RSQRT": _rsqrt,
    "SQUARE": _square,
    "ABS": _abs,
    "NEG": _neg,
    "RELU": partial(_rectified, activation=RELU),
    "RELU6": partial(_rectified, activation=RELU6),
    "RELU_N1_TO_1": partial(_rectified, activation=RELU_N1_TO_1),
    "RELU_0_TO_1": partial(_rectified, activation=RELU_0_TO_1),
    "QUANTIZE": _quantize,
    "DEQUANTIZE": _dequantize,
    "FAKE_QUANT": _fake_quant,
}
