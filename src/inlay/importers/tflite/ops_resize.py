"""Resizing of images, and convolutions that enlarge them. Tensors are `[n, h, w, c]`."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from inlay.arith.dtype import F32, I32, I64, U8
from inlay.arith.expr import lit
from inlay.importers.tflite.integers import activated, requantize
from inlay.importers.tflite.node import Node, Rule
from inlay.importers.tflite.ops_linear import FIRST, LAST, biased, integer_products
from inlay.importers.tflite.windows import same_or_valid
from inlay.ir import make
from inlay.ir.expr import Expr

_UNIT = 1 << 10
"""Weights of integers are in units of 1/1024."""


def _sizes(node: Node, options: str) -> tuple[Expr, list[int], list[int], bool, bool]:
    """Return the input, its sizes, the new ones, whether corners are aligned, whether centers are halves."""
    aligned, halved = node.options(options, "AlignCorners", "HalfPixelCenters")
    x, new = node.tensor(0), _new_sizes(node)
    node.keeps_scale()
    old = [d.value for d in node.shape(x)[1:3]]
    known = [d for d in old if d]
    if len(node.shape(x)) != 4 or len(known) != 2 or len(new) != 2 or min(new) < 1:
        raise node.unsupported(f"resizes {old} to {new}")
    for size in (*known, *new):
        node.bounded(size)
    return x, known, new, bool(aligned), bool(halved)


def _new_sizes(node: Node) -> list[int]:
    """Return height and width that an input says, or the file, where that input is computed."""
    known = node.known(1)
    found = [d.value for d in known] if known else list[int | None](node.output().shape[1:3])
    if None in found or any(d is not None and d < 1 for d in found):
        raise node.unsupported(f"resizes to {found}")
    return [d for d in found if d is not None]


def _nearest(node: Node) -> Expr:
    x, old, new, aligned, halved = _sizes(node, "ResizeNearestNeighborOptions")
    for axis, (a, b) in enumerate(zip(old, new, strict=True), 1):
        is_aligned = aligned and b > 1
        scale = np.float32(a - 1) / np.float32(b - 1) if is_aligned else np.float32(a) / np.float32(b)
        at = (np.arange(b, dtype=np.float32) + np.float32(0.5 if halved else 0)) * scale
        place = np.floor(at + np.float32(0.5)) if aligned else np.floor(at)
        x = node.op("gather", x, np.clip(place.astype(np.int64), 0, a - 1), axis=axis)
    return x


def _bilinear(node: Node) -> Expr:
    x, old, new, aligned, halved = _sizes(node, "ResizeBilinearOptions")
    dtype = node.input(0).dtype
    if dtype is F32:
        for axis, (a, b) in enumerate(zip(old, new, strict=True), 1):
            x = _between(node, x, axis, *_real_steps(a, b, is_aligned=aligned, is_halved=halved))
        return x
    if dtype is U8:
        return _bilinear_of_bytes(node, x, old, new, is_aligned=aligned, is_halved=halved)
    wide = I32 if dtype.bits == 8 else I64
    total = node.cast(x, wide)
    for axis, (a, b) in enumerate(zip(old, new, strict=True), 1):
        total = _between(node, total, axis, *_integer_steps(a, b, is_aligned=aligned, is_halved=halved))
    # Half of the divisor more, on the side of the sign, rounded towards zero.
    half = node.op("mul", node.op("sign", total), node.number(1 << 19, total))
    return node.cast(node.op("div", node.op("add", total, half), node.number(1 << 20, total)), dtype)


def _bilinear_of_bytes(
    node: Node, x: Expr, old: list[int], new: list[int], *, is_aligned: bool, is_halved: bool
) -> Expr:
    """Emit what the kernels compute in f32 for bytes without a sign, in their order."""
    (*rows, down, _), (*columns, along, _) = (
        _real_steps(a, b, is_aligned=is_aligned, is_halved=is_halved) for a, b in zip(old, new, strict=True)
    )
    real, total = node.cast(x, F32), None
    for right in (False, True):
        for lower in (False, True):
            part = node.op("gather", node.op("gather", real, rows[lower], axis=1), columns[right], axis=2)
            part = node.op("mul", part, (down if lower else 1 - down).reshape(-1, 1, 1))
            part = node.op("mul", part, (along if right else 1 - along).reshape(-1, 1))
            total = part if total is None else node.op("add", total, part)
    assert total is not None
    return node.cast(node.op("add", total, np.asarray(0.5, np.float32)), U8)


def _between(
    node: Node, x: Expr, axis: int, low: np.ndarray, high: np.ndarray, weight: np.ndarray, unit: int
) -> Expr:
    """Emit weighted sums of two elements of an axis each."""
    column = weight.reshape(-1, *[1] * (3 - axis))
    parts = [
        node.op("mul", node.op("gather", x, place, axis=axis), w.astype(node.dtype(x).numpy))
        for place, w in ((low, unit - column), (high, column))
    ]
    return node.op("add", *parts)


def _real_steps(
    old: int, new: int, *, is_aligned: bool, is_halved: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """Return for each new element the two old ones, the weight of the second, and what is all of it."""
    scale = np.float32(old) / np.float32(new)
    if is_aligned and new > 1:
        scale = np.float32(old - 1) / np.float32(new - 1)
    at = np.arange(new, dtype=np.float32)
    at = (at + np.float32(0.5)) * scale - np.float32(0.5) if is_halved else at * scale
    low = np.maximum(np.floor(at), 0)
    high = np.minimum(np.ceil(at), old - 1)
    return low.astype(np.int64), high.astype(np.int64), (at - low).astype(np.float32), 1


def _integer_steps(
    old: int, new: int, *, is_aligned: bool, is_halved: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """Return the same as `_real_steps` in units of 1/1024."""
    scale = (_UNIT * old + new // 2) // new
    if is_aligned and new > 1:
        scale = (_UNIT * (old - 1) + (new - 1) // 2) // (new - 1)
    at = np.arange(new, dtype=np.int64) * scale
    if is_halved:
        at = at + scale // 2 - _UNIT // 2
    # Quotients are rounded towards zero.
    low = np.maximum(np.trunc(at / _UNIT).astype(np.int64), 0)
    high = np.minimum(np.trunc((at + _UNIT - 1) / _UNIT).astype(np.int64), old - 1)
    return low, high, at - _UNIT * low, _UNIT


# --------------------------------------------------------------------------- transposed convolution


def _transposed_convolution(node: Node) -> Expr:
    """Emit a convolution over the input with zeros between its elements."""
    padding, down, along, activation = node.options(
        "TransposeConvOptions", "Padding", "StrideH", "StrideW", "FusedActivationFunction"
    )
    shape, strides = node.output_sizes(0), (down, along)
    x, kernel = node.tensor(2), node.extents(1)[1:3]
    if len(shape) != 4 or len(node.shape(x)) != 4 or len(node.extents(1)) != 4:
        raise node.unsupported("takes tensors of other than four axes")
    new = [s for s in shape[1:3] if s]
    if any(s < 1 for s in strides) or len(new) < 2 or min(new) < 1:
        raise node.unsupported(f"enlarges to {shape}, by the strides {strides}")
    sizes = [d.value for d in node.shape(x)[1:3]]
    known = [s for s in sizes if s]
    if len(known) < 2:
        raise node.unsupported("enlarges axes whose sizes are not known")
    pads = same_or_valid(node, padding, [lit(s) for s in new], kernel, strides)
    fronts = [k - 1 - p for k, p in zip(kernel, pads[:2], strict=True)]
    ends = [
        s + k - 1 - f - ((n - 1) * stride + 1)
        for s, k, f, n, stride in zip(new, kernel, fronts, known, strides, strict=True)
    ]
    if min(*fronts, *ends) < 0 and node.input(2).dtype is not F32 and node.zero(node.input(2)):
        raise node.unsupported(f"pads by {fronts} and {ends}")
    first = _spread(node, node.op("transpose", x, perm=FIRST), strides, fronts, ends)
    # Filters `[oc, h, w, ic]`, turned around.
    is_float = node.input(2).dtype is F32
    w = node.op("flip", node.reals(1) if is_float else node.tensor(1), axes=(1, 2))
    w = node.op("transpose", w, perm=(0, 3, 1, 2))
    attrs = {"strides": (1, 1), "dilations": (1, 1), "pads": (0, 0, 0, 0), "groups": 1}
    if is_float:
        made = biased(node, node.op("conv", first, w, **attrs), (-1, 1, 1), 3)
        return node.op("transpose", activated(node, made, activation), perm=LAST)
    t, weights = node.input(2), node.quantization(node.input(1))
    wide = node.input(3).dtype if node.has(3) else I64
    zeros = node.zero(t), int(weights.zeros[0])
    total = integer_products(node, "conv_integer", first, w, wide, *zeros, **attrs)
    total = biased(node, total, (-1, 1, 1), 3)
    factors = float(node.scale(t)) * weights.scales.astype(np.float64) / float(node.scale(node.output()))
    one = float(factors[0]) if len(factors) == 1 else factors
    made = requantize(node, total, one, node.output(), activation, axis=1)
    return node.op("transpose", made, perm=LAST)


def _spread(node: Node, x: Expr, strides: tuple[int, int], fronts: list[int], ends: list[int]) -> Expr:
    """Put zeros between the elements of the last two axes, and around them."""
    t = node.input(2)
    zero = node.number(0 if t.dtype is F32 else node.zero(t), x)
    n, c, h, w = node.shape(x)
    if max(strides) > 1:
        apart = node.reshape(x, n, c, h, 1, w, 1)
        pads = [0] * 6 + [0, 0, 0, strides[0] - 1, 0, strides[1] - 1]
        apart = node.op("pad", apart, make.shape_const(pads), zero)
        x = node.reshape(apart, n, c, h * strides[0], w * strides[1])
    behind = [e - (s - 1) for e, s in zip(ends, strides, strict=True)]
    return node.op("pad", x, make.shape_const([0, 0, *fronts, 0, 0, *behind]), zero)


RULES: Mapping[str, Rule] = {
    "RESIZE_BILINEAR": _bilinear,
    "RESIZE_NEAREST_NEIGHBOR": _nearest,
    "TRANSPOSE_CONV": _transposed_convolution,
}
