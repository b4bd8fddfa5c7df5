"""Pools, means, and softmax."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from inlay.arith.dtype import I32, I64
from inlay.importers.tflite.fixed_point import emitted_reciprocal, high_product, softmax_tables
from inlay.importers.tflite.integers import activated, ends_of_integers
from inlay.importers.tflite.node import Node, Rule
from inlay.importers.tflite.ops_linear import FIRST, LAST
from inlay.importers.tflite.windows import same_or_valid
from inlay.ir import make
from inlay.ir.expr import Expr


class _Pool(NamedTuple):
    """A pool: its input with channels first, its windows, its activation."""

    x: Expr
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    pads: tuple[int, ...]
    activation: int

    def of(self, node: Node, name: str) -> Expr:
        """Emit an operator over the windows."""
        return node.op(name, self.x, kernel=self.kernel, strides=self.strides, pads=self.pads)


def _pool(node: Node) -> _Pool:
    padding, *numbers, activation = node.options(
        "Pool2DOptions",
        "Padding",
        "StrideH",
        "StrideW",
        "FilterHeight",
        "FilterWidth",
        "FusedActivationFunction",
    )
    strides, kernel = tuple(numbers[:2]), tuple(numbers[2:])
    x = node.tensor(0)
    if len(node.shape(x)) != 4 or min(kernel) < 1:
        raise node.unsupported("takes tensors of other than four axes, or empty windows")
    pads = same_or_valid(node, padding, node.shape(x)[1:3], kernel, strides)
    return _Pool(node.op("transpose", x, perm=FIRST), kernel, strides, pads, activation)


def _average_pool(node: Node) -> Expr:
    pool = _pool(node)
    if not node.is_integer():
        made = activated(node, pool.of(node, "average_pool"), pool.activation)
        return node.op("transpose", made, perm=LAST)
    total = _summed(node, pool)
    ones = np.ones([1, *[d.value or 1 for d in node.shape(pool.x)[1:]]], np.int8)
    counts = _summed(node, pool._replace(x=make.const(ones)))
    half = node.op("shift_right", counts, np.asarray(1, np.int32))
    # The quotient of a sum with half of the divisor more, on the side of its sign, rounded towards zero.
    size = node.op("div", node.op("add", node.op("abs", total), half), counts)
    mean = node.op("mul", size, node.op("sign", total))
    ends = node.clamped(mean, *ends_of_integers(node, pool.activation, node.output()))
    return node.op("transpose", node.cast(ends, node.output().dtype), perm=LAST)


def _summed(node: Node, pool: _Pool) -> Expr:
    """Sum windows of integers in i32: a convolution of each channel with ones."""
    channels = node.shape(pool.x)[1].value
    if channels is None:
        raise node.unsupported("has a number of channels that is not known")
    ones = np.ones((channels, 1, *pool.kernel), np.int8)
    windows = {"strides": pool.strides, "pads": pool.pads, "dilations": (1, 1)}
    return node.op("conv_integer", pool.x, ones, groups=channels, **windows)


def _max_pool(node: Node) -> Expr:
    pool = _pool(node)
    made = pool.of(node, "max_pool")
    if not node.is_integer():
        made = activated(node, made, pool.activation)
    elif pool.activation:
        made = node.clamped(made, *ends_of_integers(node, pool.activation, node.output()))
    return node.op("transpose", made, perm=LAST)


def _mean(node: Node) -> Expr:
    (keeps,) = node.options("ReducerOptions", "KeepDims")
    axes = tuple(int(a) for a in node.array(1, "axes").reshape(-1))
    if node.is_integer():
        raise node.unsupported("takes quantized integers")
    return node.op("reduce_mean", node.tensor(0), axes=axes, keepdims=bool(keeps))


def _softmax(node: Node) -> Expr:
    (beta,) = node.options("SoftmaxOptions", "Beta")
    x = node.tensor(0)
    if not node.is_integer():
        scaled = x if beta == 1 else node.op("mul", x, np.asarray(beta, np.float32))
        return node.op("softmax", scaled, axis=-1)
    if node.input(0).dtype.bits != 8 or node.scale(node.output()) != np.float32(1 / 256):
        raise node.unsupported("takes other than 8-bit integers, or gives other than 256ths")
    table, summed = softmax_tables(float(node.scale(node.input(0))), float(beta))
    wide = node.cast(x, I64)
    distance = node.op("sub", node.op("reduce_max", wide, axes=(-1,), keepdims=True), wide)
    total = node.op("reduce_sum", node.op("gather", summed, distance, axis=0), axes=(-1,), keepdims=True)
    reciprocal, over = emitted_reciprocal(node, node.cast(total, I32))
    product = node.cast(high_product(node, node.op("gather", table, distance, axis=0), reciprocal), I64)
    bits = node.op("add", over, np.asarray(31 - 8, np.int64))
    half = node.op(
        "shift_right", node.op("shift_left", np.asarray(1, np.int64), bits), np.asarray(1, np.int64)
    )
    shares = node.op("shift_right", node.op("add", product, half), bits)  # never negative
    low = np.asarray(np.iinfo(node.output().dtype.numpy).min, np.int64)
    result = node.op(
        "minimum", node.op("add", shares, low), np.asarray(np.iinfo(node.output().dtype.numpy).max, np.int64)
    )
    return node.cast(result, node.output().dtype)


RULES: Mapping[str, Rule] = {
    "AVERAGE_POOL_2D": _average_pool,
    "MAX_POOL_2D": _max_pool,
    "MEAN": _mean,
    "SOFTMAX": _softmax,
}
