"""What elements are there, rows that are looked up and combined, and windows with gaps."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from inlay.arith.dtype import I64
from inlay.arith.expr import Int, lit, product
from inlay.importers.tflite.node import Node, Rule
from inlay.ir import make
from inlay.ir.expr import Expr
from inlay.ops.scatter import Combine

_SUM, _MEAN, _ROOT = range(3)
_ADD, _MUL, _MIN, _MAX, _ALL, _ANY = range(1, 7)
_COMBINED = {
    _ADD: "add",
    _MUL: "mul",
    _MIN: "minimum",
    _MAX: "maximum",
    _ALL: "logical_and",
    _ANY: "logical_or",
}
MOST_PLACES = 1 << 10
"""In a window, along one axis: each is an operation."""


def _unique(node: Node) -> tuple[Expr, ...]:
    """Emit the elements of a vector once each, as they come, and for each element which it is.

    All pairs are compared, so it takes the square of the length.
    """
    x = node.tensor(0)
    if len(node.shape(x)) != 1:
        raise node.unsupported("takes a tensor of other than one axis")
    node.keeps_scale()
    (n,) = node.shape(x)
    node.bounded(n.value or 1, n.value or 1)
    at = node.op("range", make.int_const(0), make.int_const(n), make.int_const(1), dtype=I64)
    own = node.reshape(at, n, 1)
    same = node.op("equal", node.reshape(x, n, 1), x)
    same = node.op("logical_or", same, node.op("equal", own, at))  # what is no number is equal to nothing
    behind = node.op("to_tensor", make.int_const(n))
    first = node.op("reduce_min", node.op("select", same, at, behind), axes=(1,))
    is_first = node.op("equal", first, at)
    number = node.op("cumsum", node.cast(is_first, I64), axis=0)
    places = node.op("nonzero", is_first)
    values = node.op("gather", x, node.part(places, 0, 0, 1), axis=0, clamp=True)
    rank = node.op("gather", node.op("sub", number, np.asarray(1, np.int64)), first, axis=0, clamp=True)
    return node.reshape(values, node.shape(places)[1]), node.cast(rank, node.output(1).dtype)


def _embedding_lookup_sparse(node: Node) -> Expr:
    """Emit rows of a table, weighted, and combined where their indices but for the last are the same.

    Indices are in order, as the format requires; what has no rows is 0.
    """
    node.only_floats(3, 4)
    (combiner,) = node.options("EmbeddingLookupSparseOptions", "Combiner")
    ids, indices, weights, table = (node.tensor(i) for i in (0, 1, 3, 4))
    *outer, _ = node.sizes(2)
    rows, depth = product(outer), len(node.shape(indices))
    if depth != 2 or not outer:
        raise node.unsupported("takes indices of other than two axes, or one number each")
    place: Expr | None = None
    for axis, size in enumerate(outer):
        column = node.reshape(node.cast(node.part(indices, 1, axis, axis + 1), I64), node.shape(ids)[0])
        wide = None if place is None else node.op("mul", place, node.op("to_tensor", make.int_const(size)))
        place = column if wide is None else node.op("add", wide, column)
    assert place is not None
    rest = node.shape(table)[1:]
    weight = node.reshape(weights, *node.shape(ids), *[1] * len(rest))
    taken = node.op("mul", node.op("gather", table, node.cast(ids, I64), axis=0), weight)
    total = _added(node, rows, rest, place, taken)
    if combiner != _SUM:
        one = weight if combiner == _MEAN else node.op("mul", weight, weight)
        divisor = _added(node, rows, [lit(1)] * len(rest), place, one)
        divisor = node.op("sqrt", divisor) if combiner == _ROOT else divisor
        is_empty = node.op("equal", divisor, np.asarray(0, np.float32))
        total = node.op("div", total, node.op("select", is_empty, np.asarray(1, np.float32), divisor))
    return node.reshape(total, *outer, *rest)


def _added(node: Node, rows: Int, rest: list[Int] | tuple[Int, ...], place: Expr, taken: Expr) -> Expr:
    """Return rows of 0 to each of which those of its number are added."""
    start = node.op("broadcast_to", np.asarray(0, np.float32), make.shape_const((rows, *rest)))
    index = node.reshape(place, *node.shape(place), 1)
    return node.op("scatter_nd", start, index, taken, combine=Combine.ADD)


def _dilate(node: Node) -> Expr:
    """Emit a tensor with a value between its elements, some of them along each axis."""
    x, steps, value = node.tensor(0), node.numbers(1, "dilations"), node.tensor(2)
    node.keeps_scale()
    if len(steps) != len(node.shape(x)) or min(steps, default=1) < 1:
        raise node.unsupported(f"has the dilations {steps}")
    value = node.reshape(value)
    for axis, step in enumerate(steps):
        if step == 1:
            continue
        shape = node.shape(x)
        node.bounded(*(d.value or 1 for d in shape), step)
        pads = [0] * (2 * len(shape) + 2)
        pads[len(shape) + 1 + axis + 1] = step - 1
        apart = node.reshape(x, *shape[: axis + 1], 1, *shape[axis + 1 :])
        wide = node.op("pad", apart, make.shape_const(pads), value)
        joined = node.reshape(wide, *shape[:axis], shape[axis] * step, *shape[axis + 1 :])
        x = node.part(joined, axis, 0, (shape[axis] - 1) * step + 1)
    return x


def _reduce_window(node: Node) -> Expr:
    """Emit what combines the elements of each window with a first value: an axis after the other."""
    (function,) = node.options("ReduceWindowOptions", "ReduceFunction")
    name = _COMBINED.get(function)
    x, first = node.tensor(0), node.reshape(node.tensor(1))
    windows, strides, gaps = (node.numbers(i, "windows") for i in (2, 3, 4))
    numbers = (*windows, *strides, *gaps)
    if name is None or {len(v) for v in (windows, strides, gaps)} != {len(node.shape(x))} or min(numbers) < 1:
        raise node.unsupported(f"has the function {function} in windows {windows} at {strides}, {gaps} apart")
    if node.input(0).quantization is not None:
        raise node.unsupported("takes quantized integers")
    if max(windows) > MOST_PLACES or math.prod(max(g, 1) for g in gaps) > 1 << 40:
        raise node.unsupported(f"has windows of {windows}")
    for axis, (window, stride, gap) in enumerate(zip(windows, strides, gaps, strict=True)):
        size = node.shape(x)[axis].value
        if size is None or size < (window - 1) * gap + 1:
            raise node.unsupported(
                "has windows over an axis whose size is not known, or that does not have one"
            )
        count = (size - (window - 1) * gap - 1) // stride + 1
        found: Expr | None = None
        for k in range(window):
            at = node.part(x, axis, k * gap, k * gap + (count - 1) * stride + 1, stride)
            found = at if found is None else node.op(name, found, at)
        assert found is not None
        x = found
    return node.op(name, x, first)


RULES: Mapping[str, Rule] = {
    "UNIQUE": _unique,
    "EMBEDDING_LOOKUP_SPARSE": _embedding_lookup_sparse,
    "DILATE": _dilate,
    "REDUCE_WINDOW": _reduce_window,
}
