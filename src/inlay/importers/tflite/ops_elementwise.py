"""Element-wise operators on floats, and on integers by requantization."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np

from inlay.arith.dtype import F32
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
    "LOGISTIC": partial(_of_reals, name="sigmoid"),
    "TANH": partial(_of_reals, name="tanh"),
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
