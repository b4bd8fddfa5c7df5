"""Pooling, its inverse, and the inverse of cutting an image into windows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np

from inlay.arith.expr import Int, floordiv, lit, minimum, product
from inlay.importers.onnx.node import Node, Rule
from inlay.importers.onnx.ops_nn import ints_attribute, of_same_size, padded, pads_to_same, resolved_pads
from inlay.importers.onnx.term import Term, constant, filled, integers, term
from inlay.importers.onnx.values import OnnxValue
from inlay.ir import make
from inlay.ir.expr import Expr
from inlay.ops._build import lowest


def _pool(name: str) -> Rule:
    def rule(node: Node) -> tuple[OnnxValue, ...]:
        same = _of_same_size(node, name)
        if same is not None:
            return (same.value,)
        attrs = _window(node)
        by_columns = node.flag("storage_order")
        if name == "average_pool":
            attrs["count_include_pad"] = node.flag("count_include_pad")
        result = node.result(name, node.tensor(0), **attrs)
        if len(node.proto.output) < 2:
            return (result,)
        index = Term(node, node.emit("max_pool_index", node.tensor(0), **attrs))
        if by_columns:
            index = _column_major(index, node.type(0).shape[2:])
        return result, index.value

    return rule


def _window(node: Node) -> dict[str, object]:
    dims = node.type(0).shape
    spatial = len(dims) - 2
    if spatial < 1:
        raise node.invalid(f"has an input of rank {len(dims)}")
    kernel = ints_attribute(node, "kernel_shape", spatial, 1)
    if not node.int_list("kernel_shape"):
        raise node.invalid("has no kernel_shape")
    strides = ints_attribute(node, "strides", spatial, 1)
    dilations = ints_attribute(node, "dilations", spatial, 1)
    pads = resolved_pads(node, dims[2:], kernel, strides, dilations)
    return {
        "kernel": kernel,
        "strides": strides,
        "pads": pads,
        "dilations": dilations,
        "ceil_mode": node.flag("ceil_mode"),
    }


def _of_same_size(node: Node, name: str) -> Term | None:
    """Return a pool with `SAME_*` over sizes that are not known; None where it is something else.

    Elements around the input count for nothing: they are the least of maxima, and averages are
    divided by how much of each window lies inside.
    """
    x = term(node, 0)
    spatial = x.shape[2:]
    kernel, strides, dilations = (
        ints_attribute(node, what, len(spatial), 1) for what in ("kernel_shape", "strides", "dilations")
    )
    pads = pads_to_same(node, spatial, kernel, strides, dilations)
    if not pads:
        return None
    if len(node.proto.output) > 1:
        raise node.unsupported("names places in an input that is padded to the same size")
    attrs = {"kernel": kernel, "strides": strides, "dilations": dilations}

    def pooled(of: Term, *fill: Expr) -> Term:
        return Term(node, node.emit(name, padded(node, of.expr, pads, *fill), **attrs))

    if name == "average_pool":
        y = pooled(x)
        if not node.flag("count_include_pad"):
            y = y / pooled(filled(node, 1.0, (1, 1, *spatial), x.dtype))
    else:
        y = pooled(x, make.const(np.array(lowest(x.dtype), x.dtype.numpy)))
    return Term(node, of_same_size(node, y.expr, spatial, strides))


def average_pool(node: Node, x: Term) -> OnnxValue:
    """Return the average pool that a node describes, of another tensor than its input."""
    attrs = _window(node)
    attrs["count_include_pad"] = node.flag("count_include_pad")
    return node.result("average_pool", x.expr, **attrs)


def _column_major(index: Term, spatial: Sequence[Int]) -> Term:
    """Number the elements of each image with the first spatial axis the fastest."""
    node = index.node
    size = integers(node, (product(spatial),)).reshape()
    image, left = index / size, index.op("rem", size)
    total, weight = image * size, size
    for n in reversed(spatial):
        count = integers(node, (n,)).reshape()
        weight = weight / count
        total = total + left.op("rem", count) * weight
        left = left / count
    return total


def _lp_pool(node: Node) -> OnnxValue:
    """Add up powers of magnitudes with a convolution by ones; take the root."""
    x, p = term(node, 0), float(node.int("p", 2))
    window = _window(node)
    kernel, strides, dilations = (
        ints_attribute(node, name, x.rank - 2, 1) for name in ("kernel_shape", "strides", "dilations")
    )
    pads = list(cast("Sequence[int]", window["pads"]))
    n, c, *spatial = x.shape
    count = len(spatial)
    ceil = bool(window["ceil_mode"])
    shape = [
        _windows(d, kernel[i], strides[i], dilations[i], pads[i], pads[count + i], ceil=ceil)
        for i, d in enumerate(spatial)
    ]
    if ceil:
        pads[count:] = [p + s - 1 for p, s in zip(pads[count:], strides, strict=True)]
    ones = constant(node, np.ones((1, 1, *kernel)), x.dtype)
    powers = x.op("abs").op("pow", p).reshape(n * c, 1, *spatial)
    total = powers.op("conv", ones, strides=strides, pads=tuple(pads), dilations=dilations)
    for d, size in enumerate(shape):
        total = total.part(2 + d, 0, size)
    return total.reshape(n, c, *shape).op("pow", 1.0 / p).value


def _windows(size: Int, kernel: int, stride: int, dilation: int, front: int, end: int, *, ceil: bool) -> Int:
    room = size + (front + end) - ((kernel - 1) * dilation + 1)
    if not ceil:
        return floordiv(room, lit(stride)) + 1
    return minimum(
        floordiv(room + (stride - 1), lit(stride)) + 1, floordiv(size + (front + stride - 1), lit(stride))
    )


def _global(reduction: str) -> Rule:
    def rule(node: Node) -> OnnxValue:
        axes = tuple(range(2, node.rank(0)))
        return node.result(reduction, node.tensor(0), axes=axes, keepdims=True)

    return rule


def _global_lp_pool(node: Node) -> OnnxValue:
    x, p = term(node, 0), float(node.int("p", 2))
    powers = x.op("abs").op("pow", p)
    return powers.over("sum", *range(2, x.rank), keep=True).op("pow", 1.0 / p).value


def _max_unpool(node: Node) -> OnnxValue:
    """Put every element where it came from; all else is 0."""
    x, index = term(node, 0), term(node, 1)
    count = x.rank - 2
    kernel = ints_attribute(node, "kernel_shape", count, 1)
    strides = ints_attribute(node, "strides", count, 1)
    pads = ints_attribute(node, "pads", 2 * count, 0)
    dims = list(x.shape)
    for d in range(count):
        dims[2 + d] = (x.shape[2 + d] - 1) * strides[d] + kernel[d] - pads[d] - pads[count + d]
    total = product(dims)
    flat = filled(node, 0, (total,), x.dtype)
    size = product(x.shape)
    flat = flat.op("scatter_elements", index.reshape(size), x.reshape(size), axis=0)
    y = flat.reshape(*dims)
    if not node.has(2):
        return y.value
    wanted = node.shape(2)
    if len(wanted) != x.rank:
        raise node.invalid(f"has an output shape of {len(wanted)} dims")
    # The indices count in the smallest shape; the rest is padding behind.
    ends = [w - d for w, d in zip(wanted, dims, strict=True)]
    amounts = make.shape_const((*[lit(0)] * x.rank, *ends))
    return node.result("pad", y.expr, amounts, node.number(0, x.dtype))


def _col2im(node: Node) -> OnnxValue:
    """Take columns apart into channels, taps and windows."""
    x = term(node, 0)
    image, block = node.shape(1), node.shape(2)
    count = len(image)
    strides = ints_attribute(node, "strides", count, 1)
    dilations = ints_attribute(node, "dilations", count, 1)
    pads = ints_attribute(node, "pads", 2 * count, 0)
    n, rows, columns = x.shape
    if min(pads, default=0) < 0:
        raise node.invalid(f"has pads = {list(pads)}, needed at least 0")
    padded = [image[d] + pads[d] + pads[count + d] for d in range(count)]
    out = [floordiv(padded[d] - (block[d] - 1) * dilations[d] - 1, lit(strides[d])) + 1 for d in range(count)]
    taps = product(block)
    if (columns - product(out)).value not in (0, None):
        raise node.invalid(f"has {columns} columns, needed one for each of {product(out)} windows")
    channels = floordiv(rows, taps)
    windows = x.reshape(n, channels, *block, *out)
    attrs = {"strides": strides, "dilations": dilations, "pads": pads}
    return node.result("col2im", windows.expr, make.shape_const(tuple(image)), **attrs)


RULES: Mapping[str, Rule] = {
    "MaxPool": _pool("max_pool"),
    "AveragePool": _pool("average_pool"),
    "LpPool": _lp_pool,
    "GlobalAveragePool": _global("reduce_mean"),
    "GlobalMaxPool": _global("reduce_max"),
    "GlobalLpPool": _global_lp_pool,
    "MaxUnpool": _max_unpool,
    "Col2Im": _col2im,
}
