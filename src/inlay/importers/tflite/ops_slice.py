"""Slices, whose ends may be computed.

Where a slice begins may be known at run time only. If it has a known size all the same, it is a gather of so
many neighbors, whose shape is known; else its ends are control integers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from inlay.arith.dtype import I64
from inlay.arith.expr import Int, lit
from inlay.importers.tflite.node import Node, Rule
from inlay.ir import make
from inlay.ir.expr import Expr

_FAR = 2**31 - 1
"""As the end of a slice that goes backward: the first element is the last one."""


def _slice(node: Node) -> Expr:
    node.keeps_scale()
    x = node.tensor(0)
    sizes, begins = node.known(2), node.known(1)
    if sizes is None:
        return _of_computed_sizes(node, x)
    for axis, size in enumerate(sizes):
        whole = node.shape(x)[axis]
        begin = begins[axis] if begins else None
        if begin is not None and begin.value is not None:
            if size.value == -1 or (begin.value == 0 and size == whole):
                x = node.part(x, axis, begin, whole) if begin.value else x
            else:
                x = node.part(x, axis, begin, begin + size)
        elif size.value == -1:
            x = node.part(x, axis, _number_at(node, 1, axis), whole)
        elif size.value is not None:
            x = _neighbors(node, x, axis, _element(node, 1, axis), size.value)
        else:
            begin = _number_at(node, 1, axis) if begin is None else begin
            x = node.part(x, axis, begin, begin + size)
    return x


def _of_computed_sizes(node: Node, x: Expr) -> Expr:
    """Emit a slice whose sizes are computed, and may be -1 for as much as there is."""
    begins, sizes = (node.cast(node.tensor(i), I64) for i in (1, 2))
    whole = node.op("to_tensor", make.shape_const(node.shape(x)))
    is_rest = node.op("less", sizes, np.asarray(0, np.int64))
    ends = node.read(node.op("select", is_rest, whole, node.op("add", begins, sizes)))
    for axis, (begin, end) in enumerate(zip(node.sizes(1), ends, strict=True)):
        x = node.part(x, axis, begin, end)
    return x


def _element(node: Node, i: int, at: int) -> Expr:
    """Return an element of a vector that is an input, as a number of 64 bits."""
    return node.reshape(node.part(node.cast(node.tensor(i), I64), 0, at, at + 1))


def _number_at(node: Node, i: int, at: int) -> Int:
    return node.read(_element(node, i, at))[0]


def _neighbors(node: Node, x: Expr, axis: int, begin: Expr, size: int) -> Expr:
    """Return so many elements of an axis, from an index on."""
    node.bounded(size)
    return node.op("gather", x, node.op("add", begin, np.arange(size, dtype=np.int64)), axis=axis)


def _strided_slice(node: Node) -> Expr:
    begin_mask, end_mask, ellipsis, new, shrink, is_offset = node.options(
        "StridedSliceOptions",
        "BeginMask",
        "EndMask",
        "EllipsisMask",
        "NewAxisMask",
        "ShrinkAxisMask",
        "Offset",
    )
    node.keeps_scale()
    x, steps = node.tensor(0), node.numbers(3, "steps")
    starts, stops = (node.known(i) or [None] * len(steps) for i in (1, 2))
    if not len(starts) == len(stops) == len(steps) or 0 in steps:
        raise node.unsupported("has ends and steps of different lengths, or a step of 0")
    rank, extra = len(node.shape(x)), sum(new >> i & 1 for i in range(len(steps)))
    result: list[int | None] = []  # for each axis: 1 for a new one, 0 for one that goes, None
    axis = 0
    for i, step in enumerate(steps):
        if ellipsis >> i & 1:
            count = rank - (len(steps) - 1 - extra)
            result += [None] * count
            axis += count
            continue
        if new >> i & 1:
            result.append(1)
            continue
        if axis >= rank:
            raise node.unsupported(f"has more ends than a tensor of rank {rank} has axes")
        start, stop = starts[i], stops[i]
        is_first, is_last = bool(begin_mask >> i & 1), bool(end_mask >> i & 1)
        if is_offset and not is_last:
            start = _number_at(node, 1, i) if start is None else start
            stop = (_number_at(node, 2, i) if stop is None else stop) + start
        if shrink >> i & 1:
            x = _at(node, x, axis, i, start)
            result.append(0)
        else:
            size = _known_size(node, result) if step == 1 and not is_first and start is None else None
            if size is not None:
                x = _neighbors(node, x, axis, _from_front(node, x, axis, i), size)
            else:
                start = lit(0 if step > 0 else -1) if is_first else start
                start = _number_at(node, 1, i) if start is None else start
                if is_last:
                    stop = node.shape(x)[axis] if step > 0 else lit(-_FAR)
                stop = _number_at(node, 2, i) if stop is None else stop
                x = _ranged(node, x, axis, start, stop, step)
            result.append(None)
        axis += 1
    result += [None] * (rank - axis)
    return _reshaped(node, x, result)


def _known_size(node: Node, before: Sequence[int | None]) -> int | None:
    """Return the size that the file says the next axis of the result has, if it says so."""
    shape, at = node.output().shape, sum(d != 0 for d in before)
    return shape[at] if at < len(shape) and shape[at] >= 0 else None


def _from_front(node: Node, x: Expr, axis: int, i: int) -> Expr:
    """Return where a slice begins, which may count from behind, as an index from the front."""
    begin = _element(node, 1, i)
    size = node.op("to_tensor", make.int_const(node.shape(x)[axis]))
    return node.op(
        "select", node.op("less", begin, np.asarray(0, np.int64)), node.op("add", begin, size), begin
    )


def _at(node: Node, x: Expr, axis: int, i: int, begin: Int | None) -> Expr:
    """Return one element of an axis, which stays as 1."""
    if begin is None or begin.value is None:
        return _neighbors(node, x, axis, _from_front(node, x, axis, i), 1)
    if begin.value < 0:
        begin = begin + node.shape(x)[axis]
    return node.part(x, axis, begin, begin + 1)


def _ranged(node: Node, x: Expr, axis: int, start: Int, stop: Int, step: int) -> Expr:
    """Cut a range out of an axis."""
    size = node.shape(x)[axis].value
    if size is None or start.value is None or stop.value is None:
        return (
            x
            if (start, stop, step) == (lit(0), node.shape(x)[axis], 1)
            else node.part(x, axis, start, stop, step)
        )
    found = range(size)[slice(start.value, stop.value, step)]
    if found == range(size):
        return x
    if found.step < 0:
        node.bounded(len(found))
        return node.op("gather", x, np.array(found, np.int64), axis=axis)
    return node.part(x, axis, found.start, max(found.stop, found.start), found.step)


def _reshaped(node: Node, x: Expr, result: Sequence[int | None]) -> Expr:
    """Remove the axes that are marked with 0, and add those with 1."""
    if all(d is None for d in result):
        return x
    sizes, shape = list(node.shape(x)), list[Int | int]()
    for d in result:
        if d == 1:
            shape.append(1)
        else:
            size = sizes.pop(0)
            if d is None:
                shape.append(size)
    return node.reshape(x, *shape)


RULES: Mapping[str, Rule] = {"SLICE": _slice, "STRIDED_SLICE": _strided_slice}
