"""Element-wise operators on floats, and on integers by requantization."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from inlay.arith.dtype import F32, I8, I64
from inlay.importers.tflite.fixed_point import function_table, logistic, tanh
from inlay.importers.tflite.integers import NONE, RELU, RELU6, activated, requantize, scaled
from inlay.importers.tflite.node import Node, Rule
from inlay.ir.expr import Expr

_HEADROOM = 20
"""Bits by which summands are scaled up before they are brought to one scale."""


def _arithmetic(node: Node, name: str, options: str) -> Expr:
    (activation,) = node.options(options, "FusedActivationFunction")
    if not node.is_integer():
        return activated(node, node.op(name, node.tensor(0), node.tensor(1)), activation)
    a, b, out = (float(node.scale(t)) for t in (node.input(0), node.input(1), node.output()))
    if name == "mul":
        product = node.op("mul", node.centered(0), node.centered(1))
        return requantize(node, product, a * b / out, node.output(), activation)
    most, unit = 2 * max(a, b), np.asarray(1 << _HEADROOM, np.int32)
    terms = [
        scaled(node, node.op("mul", node.centered(i), unit), scale / most) for i, scale in ((0, a), (1, b))
    ]
    factor = most / ((1 << _HEADROOM) * out)
    return requantize(node, node.op(name, *terms), factor, node.output(), activation)


def _of_reals(node: Node, name: str) -> Expr:
    if node.is_integer():
        raise node.unsupported("takes quantized integers")
    return node.op(name, node.tensor(0))


def _tabulated(node: Node, name: str, function: Callable[[int, int], int], scale: float) -> Expr:
    """Emit a function with results in a fixed scale: of floats, or a table of all 8-bit integers."""
    if not node.is_integer():
        return node.op(name, node.tensor(0))
    out = node.output()
    zero = -128 if scale == 1 / 256 else 0
    if node.input(0).dtype is not I8 or node.scale(out) != np.float32(scale) or node.zero(out) != zero:
        raise node.unsupported(f"takes other than 8-bit integers, or gives other than steps of {scale}")
    fraction = 8 if zero else 7
    table = function_table(float(node.scale(node.input(0))), node.zero(node.input(0)), function, fraction)
    place = node.op("add", node.cast(node.tensor(0), I64), np.asarray(128, np.int64))
    return node.op("gather", table, place, axis=0)


def _leaky(node: Node) -> Expr:
    (alpha,) = node.options("LeakyReluOptions", "Alpha")
    if not node.is_integer():
        x = node.tensor(0)
        slope = node.op("mul", x, np.asarray(alpha, np.float32))
        return node.op("select", node.op("greater_equal", x, np.asarray(0, np.float32)), x, slope)
    factor = float(node.scale(node.input(0))) / float(node.scale(node.output()))
    x = node.centered(0)
    if alpha <= 0:
        raise node.unsupported(f"has the slope {alpha}")
    above, below = (requantize(node, x, f, node.output(), NONE) for f in (factor, factor * float(alpha)))
    return node.op("select", node.op("greater_equal", x, np.asarray(0, np.int32)), above, below)


def _hard_swish(node: Node) -> Expr:
    if node.is_integer():
        raise node.unsupported("takes quantized integers")
    x = node.tensor(0)
    gate = activated(node, node.op("add", x, np.asarray(3, np.float32)), RELU6)
    return node.op("mul", x, node.op("mul", gate, np.asarray(1 / 6, np.float32)))


def _extreme(node: Node, name: str) -> Expr:
    """Emit the greater or lesser of two; integers of one scale are compared as they are."""
    if node.is_integer():
        pairs = {(float(node.scale(t)), node.zero(t)) for t in (node.input(0), node.input(1), node.output())}
        if len(pairs) > 1:
            raise node.unsupported("has inputs and outputs of different scales")
    return node.op(name, node.tensor(0), node.tensor(1))


def _of_two_reals(node: Node, name: str, options: str = "") -> Expr:
    if node.is_integer():
        raise node.unsupported("takes quantized integers")
    activation = node.options(options, "FusedActivationFunction")[0] if options else NONE
    return activated(node, node.op(name, node.tensor(0), node.tensor(1)), activation)


def _squared_difference(node: Node) -> Expr:
    if node.is_integer():
        raise node.unsupported("takes quantized integers")
    difference = node.op("sub", node.tensor(0), node.tensor(1))
    return node.op("mul", difference, difference)


def _rectified(node: Node, activation: int) -> Expr:
    if not node.is_integer():
        return activated(node, node.tensor(0), activation)
    factor = float(node.scale(node.input(0))) / float(node.scale(node.output()))
    return requantize(node, node.centered(0), factor, node.output(), activation)


def _quantize(node: Node) -> Expr:
    out = node.output()
    zero = np.asarray(node.zero(out), out.dtype.numpy)
    if node.input(0).dtype is F32:
        return node.op("quantize", node.tensor(0), np.asarray(node.scale(out)), zero, dtype=out.dtype, axis=0)
    factor = float(node.scale(node.input(0))) / float(node.scale(out))
    return requantize(node, node.centered(0), factor, out, NONE)


def _dequantize(node: Node) -> Expr:
    return node.reals(0)


RULES: Mapping[str, Rule] = {
    "ADD": partial(_arithmetic, name="add", options="AddOptions"),
    "SUB": partial(_arithmetic, name="sub", options="SubOptions"),
    "MUL": partial(_arithmetic, name="mul", options="MulOptions"),
    "DIV": partial(_of_two_reals, name="div", options="DivOptions"),
    "POW": partial(_of_two_reals, name="pow"),
    "MAXIMUM": partial(_extreme, name="maximum"),
    "MINIMUM": partial(_extreme, name="minimum"),
    "SQUARED_DIFFERENCE": _squared_difference,
    "LOGISTIC": partial(_tabulated, name="sigmoid", function=logistic, scale=1 / 256),
    "TANH": partial(_tabulated, name="tanh", function=tanh, scale=1 / 128),
    "LEAKY_RELU": _leaky,
    "HARD_SWISH": _hard_swish,
    "FLOOR": partial(_of_reals, name="floor"),
    "CEIL": partial(_of_reals, name="ceil"),
    "ROUND": partial(_of_reals, name="round"),
    "SIN": partial(_of_reals, name="sin"),
    "COS": partial(_of_reals, name="cos"),
    "LOG": partial(_of_reals, name="log"),
    "EXP": partial(_of_reals, name="exp"),
    "RSQRT": partial(_of_reals, name="rsqrt"),
    "SQRT": partial(_of_reals, name="sqrt"),
    "ABS": partial(_of_reals, name="abs"),
    "NEG": partial(_of_reals, name="neg"),
    "RELU": partial(_rectified, activation=RELU),
    "RELU6": partial(_rectified, activation=RELU6),
    "QUANTIZE": _quantize,
    "DEQUANTIZE": _dequantize,
}
