"""Pools and reductions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from inlay.arith.dtype import I32, I64, U8
from inlay.importers.tflite.integers import (
    NONE,
    activated,
    ends_of_integers,
    multiplier_of,
    multipliers,
    requantize_as,
    requantize_by,
)
from inlay.importers.tflite.node import Kind, Node, Rule
from inlay.importers.tflite.ops_linear import FIRST, LAST, integer_products
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
    node.keeps_scale()
    pads = same_or_valid(node, padding, node.shape(x)[1:3], kernel, strides)
    return _Pool(node.op("transpose", x, perm=FIRST), kernel, strides, pads, activation)


def _average_pool(node: Node) -> Expr:
    pool = _pool(node)
    if not node.is_integer():
        made = activated(node, pool.of(node, "average_pool"), pool.activation)
        return node.op("transpose", made, perm=LAST)
    total = _summed(node, pool)
    counts = make.const(_counts(node, pool))
    half = node.op("shift_right", counts, np.asarray(1, np.int32))
    # The quotient of a sum with half of the divisor more, on the side of its sign, rounded towards zero.
    size = node.op("div", node.op("add", node.op("abs", total), half), counts)
    mean = node.op("mul", size, node.op("sign", total))
    ends = node.clamped(mean, *ends_of_integers(node, pool.activation, node.output()))
    return node.op("transpose", node.cast(ends, node.output().dtype), perm=LAST)


def _counts(node: Node, pool: _Pool) -> np.ndarray:
    """Return how many elements of the input each window has: `[1, 1, height, width]`."""
    found: list[np.ndarray] = []
    for axis in (0, 1):
        size, k, stride = node.shape(pool.x)[axis + 2].value, pool.kernel[axis], pool.strides[axis]
        if size is None:
            raise node.unsupported("has windows over an axis whose size is not known")
        windows = (size + pool.pads[axis] + pool.pads[axis + 2] - k) // stride + 1
        node.bounded(windows)
        begin = np.arange(windows) * stride - pool.pads[axis]
        found.append(np.minimum(begin + k, size) - np.maximum(begin, 0))
    node.bounded(len(found[0]), len(found[1]))
    return (found[0][:, None] * found[1]).astype(np.int32)[None, None]


def _summed(node: Node, pool: _Pool) -> Expr:
    """Sum windows of integers in i32: a convolution of each channel with ones."""
    channels = node.shape(pool.x)[1].value
    if channels is None:
        raise node.unsupported("has a number of channels that is not known")
    node.bounded(channels, *pool.kernel)
    ones = make.const(np.ones((channels, 1, *pool.kernel), np.int8))
    windows: dict[str, Any] = {"strides": pool.strides, "pads": pool.pads, "dilations": (1, 1)}
    return integer_products(node, "conv_integer", pool.x, ones, I32, groups=channels, **windows)


def _max_pool(node: Node) -> Expr:
    pool = _pool(node)
    made = pool.of(node, "max_pool")
    if not node.is_integer():
        made = activated(node, made, pool.activation)
    elif pool.activation:
        made = node.clamped(made, *ends_of_integers(node, pool.activation, node.output()))
    return node.op("transpose", made, perm=LAST)


def _l2_pool(node: Node) -> Expr:
    """Emit the root of the mean of squares of each window."""
    node.only_floats()
    pool = _pool(node)
    squares = pool._replace(x=node.op("mul", pool.x, pool.x))
    root = node.op("sqrt", squares.of(node, "average_pool"))
    return node.op("transpose", activated(node, root, pool.activation), perm=LAST)


def _axes(node: Node) -> tuple[tuple[int, ...], bool]:
    """Return the axes that are reduced, in order, and whether they stay as 1."""
    (keeps,) = node.options("ReducerOptions", "KeepDims")
    rank = len(node.shape(node.tensor(0)))
    return tuple(sorted({node.axis(a, rank) for a in node.numbers(1, "axes")})), bool(keeps)


def _reduced(node: Node, name: str) -> Expr:
    """Emit a reduction; integers of one scale are compared as they are."""
    axes, keeps = _axes(node)
    if node.kind() is Kind.QUANTIZED:
        if name == "reduce_prod":
            return _product(node, axes, keeps=keeps)
        if name not in ("reduce_max", "reduce_min"):
            raise node.unsupported("takes quantized integers")
        node.keeps_scale()
    return node.op(name, node.tensor(0), axes=axes, keepdims=keeps)


MOST_FACTORS = 256
"""Of a product of quantized integers: each is some operations."""


def _product(node: Node, axes: tuple[int, ...], *, keeps: bool) -> Expr:
    """Emit a product of integers, one factor after the other.

    The factor between scales is divided among them: each product is brought back by its root.
    """
    shape, out = node.shape(node.tensor(0)), node.output()
    sizes = [shape[a].value for a in axes]
    known = [s for s in sizes if s]
    count = math.prod(known)
    if len(known) < len(sizes) or node.input(0).dtype is U8 or count > MOST_FACTORS:
        raise node.unsupported(
            f"multiplies {count} of {node.input(0).dtype}, or along an axis of no known size"
        )
    kept = [a for a in range(len(shape)) if a not in axes]
    behind = node.op("transpose", node.centered(0), perm=(*kept, *axes))
    rows = node.reshape(behind, *(shape[a] for a in kept), count)
    whole = float(node.scale(node.input(0))) ** count / float(node.scale(out))
    if not 0 < whole < math.inf:
        raise node.unsupported(f"multiplies {count} factors of the scale {node.scale(node.input(0))}")
    m, shift = multipliers(whole ** (1 / count))
    first, *others = (node.cast(node.part(rows, len(kept), k, k + 1), I64) for k in range(count))
    for one in others:
        first = node.cast(requantize_as(node, node.op("mul", first, one), m, shift, I32), I64)
    total = requantize_as(node, first, m, shift, out.dtype, node.zero(out))
    result = [1 if a in axes else d for a, d in enumerate(shape)] if keeps else [shape[a] for a in kept]
    return node.reshape(total, *result)


def _total(node: Node, *, is_mean: bool) -> Expr:
    """Emit a sum or a mean; of integers, a sum whose count is a part of the multiplier."""
    axes, keeps = _axes(node)
    name = "reduce_mean" if is_mean else "reduce_sum"
    if node.kind() is not Kind.QUANTIZED:
        return node.op(name, node.tensor(0), axes=axes, keepdims=keeps)
    sizes = [node.shape(node.tensor(0))[a].value for a in axes]
    known = [s for s in sizes if s]
    if len(known) < len(sizes):
        raise node.unsupported("sums along an axis whose size is not known, or 0")
    count = math.prod(known)
    total = node.op("reduce_sum", node.cast(node.tensor(0), I32), axes=axes, keepdims=keeps)
    total = node.less(total, node.zero(node.input(0)) * count)
    m, shift = multiplier_of(float(node.scale(node.input(0))) / float(node.scale(node.output())))
    if is_mean:
        bits = min(count.bit_length() - 1, 32, 31 + shift)
        m, shift = (m << bits) // count, shift - bits
    pair = np.asarray(m, np.int32), np.asarray(shift, np.int32)
    return requantize_by(node, total, *pair, node.output(), NONE)


RULES: Mapping[str, Rule] = {
    "AVERAGE_POOL_2D": _average_pool,
    "MAX_POOL_2D": _max_pool,
    "L2_POOL_2D": _l2_pool,
    "MEAN": partial(_total, is_mean=True),
    "SUM": partial(_total, is_mean=False),
    "REDUCE_MAX": partial(_reduced, name="reduce_max"),
    "REDUCE_MIN": partial(_reduced, name="reduce_min"),
    "REDUCE_PROD": partial(_reduced, name="reduce_prod"),
    "REDUCE_ANY": partial(_reduced, name="reduce_any"),
    "REDUCE_ALL": partial(_reduced, name="reduce_all"),
}
