"""Convolutions and fully connected layers. Tensors are `[n, h, w, c]`; the program's are `[n, c, h, w]`.

Floats with weights in integers (hybrid models) compute with the weights' reals: the interpreter would round
the activations as well, which is its way to be fast and not the meaning of the model.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np

from inlay.arith.dtype import I8, I32
from inlay.arith.expr import floordiv, lit, product
from inlay.importers.tflite.integers import activated, requantize
from inlay.importers.tflite.node import Node, Rule
from inlay.importers.tflite.windows import same_or_valid
from inlay.ir.expr import Expr

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
    x, kernel = node.tensor(0), node.input(1).shape[1:3]
    if len(node.shape(x)) != 4 or len(node.input(1).shape) != 4:
        raise node.unsupported("takes tensors of other than four axes")
    channels = node.shape(x)[3].value
    per_group = node.input(1).shape[3]
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
        total = _biased(node, _products(node, "conv_integer", first, w, **attrs), per_channel=(-1, 1, 1))
        made = requantize(node, total, _factors(node), node.output(), activation, axis=1)
    else:
        w = node.op("transpose", node.reals(1), perm=order)
        made = activated(node, _biased(node, node.op("conv", first, w, **attrs), (-1, 1, 1)), activation)
    return node.op("transpose", made, perm=LAST)


def _products(node: Node, name: str, x: Expr, w: Expr, **attrs: object) -> Expr:
    """Emit sums of products of integers less their zero points."""
    if node.input(0).dtype is not I8 or node.input(1).dtype is not I8:
        raise node.unsupported(f"multiplies {node.input(0).dtype} by {node.input(1).dtype}")
    weights = node.quantization(node.input(1))
    zeros = [np.asarray(node.zero(node.input(0)), np.int8)]
    if weights.zeros.any():
        if len(set(weights.zeros.tolist())) > 1:
            raise node.unsupported("has weights of several zero points")
        zeros.append(np.asarray(weights.zeros[0], np.int8))
    return node.op(name, x, w, *zeros, **attrs)


def _factors(node: Node) -> float | np.ndarray:
    """Return by what sums become integers of the output: one factor, or one for each channel."""
    weights = node.quantization(node.input(1))
    out = float(node.scale(node.output()))
    if len(weights.scales) == 1 and node.record.name == "FULLY_CONNECTED":  # its reference multiplies in f32
        return float(node.scale(node.input(0)) * weights.scales[0]) / out
    factors = float(node.scale(node.input(0))) * weights.scales.astype(np.float64) / out
    return float(factors[0]) if len(factors) == 1 else factors


def _biased(node: Node, e: Expr, per_channel: tuple[int, ...]) -> Expr:
    if not node.has(2):
        return e
    bias = node.tensor(2) if node.input(2).dtype is I32 and node.is_integer() else node.reals(2)
    shape = [node.shape(bias)[0] if d < 0 else d for d in per_channel]
    return node.op("add", e, node.reshape(bias, *shape))


def _fully_connected(node: Node) -> Expr:
    activation, keeps, form = node.options(
        "FullyConnectedOptions", "FusedActivationFunction", "KeepNumDims", "WeightsFormat"
    )
    if form != 0 or len(node.input(1).shape) != 2 or not node.input(1).shape[1]:
        raise node.unsupported("has weights in another order than rows of outputs")
    terms = node.input(1).shape[1]
    x, rows = node.tensor(0), node.shape(node.tensor(0))[:-1]
    if not keeps or node.shape(x)[-1].value != terms:
        rows = (floordiv(product(node.shape(x)), lit(terms)),)
    flat = node.reshape(x, *rows, terms)
    if node.is_integer():
        w = node.op("transpose", node.tensor(1), perm=(1, 0))
        total = _biased(node, _products(node, "matmul_integer", flat, w), (-1,))
        return requantize(node, total, _factors(node), node.output(), activation)
    w = node.op("transpose", node.reals(1), perm=(1, 0))
    return activated(node, _biased(node, node.op("matmul", flat, w), (-1,)), activation)


RULES: Mapping[str, Rule] = {
    "CONV_2D": partial(_convolution, options="Conv2DOptions", by_channel=False),
    "DEPTHWISE_CONV_2D": partial(_convolution, options="DepthwiseConv2DOptions", by_channel=True),
    "FULLY_CONNECTED": _fully_connected,
}
