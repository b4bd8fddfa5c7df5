"""Sums, products and extremes of groups of rows, and numbers of buckets."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np

from inlay.arith.dtype import I32, I64, DType
from inlay.arith.expr import Int
from inlay.importers.tflite.node import Kind, Node, Rule
from inlay.ir import make
from inlay.ir.expr import Const, Expr
from inlay.ops.scatter import Combine


def _combined(node: Node, combine: Combine, rows: Int | int) -> Expr:
    """Emit rows that begin as what changes nothing, each combined with the rows of its number.

    Rows whose number is negative go nowhere: to a row behind all others, which is cut off.
    """
    if node.kind() is Kind.QUANTIZED:
        raise node.unsupported("takes quantized integers")
    x, group = node.tensor(0), node.cast(node.tensor(1), I64)
    count = len(node.shape(group))
    rest = node.shape(x)[count:]
    start = node.number(_neutral(combine, node.dtype(x)), x)
    first = node.op("broadcast_to", start, make.shape_const((rows + 1, *rest)))
    behind = node.op("to_tensor", make.int_const(rows))
    is_kept = node.op("greater_equal", group, np.asarray(0, np.int64))
    place = node.op("select", is_kept, group, behind)
    index = node.reshape(place, *node.shape(group), 1)
    found = node.op("scatter_nd", first, index, x, combine=combine)
    return node.part(found, 0, 0, rows)


def _neutral(combine: Combine, dtype: DType) -> float:
    match combine:
        case Combine.ADD:
            return 0
        case Combine.MUL:
            return 1
        case Combine.MIN | Combine.MAX:
            info = np.finfo(dtype.numpy) if dtype.is_float else np.iinfo(dtype.numpy)
            return info.max if combine is Combine.MIN else info.min
        case Combine.REPLACE:
            raise AssertionError("rows are combined")


def _unsorted(node: Node, combine: Combine) -> Expr:
    return _combined(node, combine, node.sizes(2)[0])


def _sorted_sum(node: Node) -> Expr:
    """Emit sums of as many groups as the last number says."""
    groups = node.values[1]
    if isinstance(groups, Const) and isinstance(groups.value, np.ndarray) and groups.value.size:
        return _combined(node, Combine.ADD, int(groups.value.reshape(-1)[-1]) + 1)
    (last,) = node.read(node.op("reduce_max", node.cast(node.tensor(1), I64), axes=(0,)))
    return _combined(node, Combine.ADD, last + 1)


def _bucketize(node: Node) -> Expr:
    """Emit how many boundaries are not above each element."""
    ends = np.asarray(node.record.vector("BucketizeOptions", "Boundaries"), np.float32)
    if node.kind() is Kind.QUANTIZED or not np.all(ends[:-1] <= ends[1:]):
        raise node.unsupported("takes quantized integers, or boundaries that are not in order")
    x = node.tensor(0)
    wide = node.reshape(x, *node.shape(x), 1)
    is_above = node.op("greater_equal", node.cast(wide, node.dtype(make.const(ends))), ends)
    return node.op("reduce_sum", node.cast(is_above, I32), axes=(len(node.shape(x)),))


RULES: Mapping[str, Rule] = {
    "SEGMENT_SUM": _sorted_sum,
    "UNSORTED_SEGMENT_SUM": partial(_unsorted, combine=Combine.ADD),
    "UNSORTED_SEGMENT_PROD": partial(_unsorted, combine=Combine.MUL),
    "UNSORTED_SEGMENT_MIN": partial(_unsorted, combine=Combine.MIN),
    "UNSORTED_SEGMENT_MAX": partial(_unsorted, combine=Combine.MAX),
    "BUCKETIZE": _bucketize,
}
