"""Operators that pick elements by indices: gathers, scatters, searches, orders."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np

from inlay.arith.dtype import I64
from inlay.importers.tflite.integers import summed
from inlay.importers.tflite.node import Kind, Node, Rule
from inlay.ir import make
from inlay.ir.expr import Expr
from inlay.ops.scatter import Combine


def _indices(node: Node, i: int) -> Expr:
    return node.cast(node.tensor(i), I64)


def _gather(node: Node) -> Expr:
    axis, batch = node.options("GatherOptions", "Axis", "BatchDims")
    node.keeps_scale()
    x, index = node.tensor(0), _indices(node, 1)
    rank, count = len(node.shape(x)), len(node.shape(index))
    at, batch = node.axis(axis, rank), batch + count if batch < 0 else batch
    if batch == 0:
        return node.op("gather", x, index, axis=at)
    if not 0 < batch <= min(at, count):
        raise node.unsupported(f"has {batch} axes in common and picks along axis {at}")
    # The axis goes behind those in common, and tuples of one index pick slices along it.
    order = (*range(batch), at, *(a for a in range(batch, rank) if a != at))
    moved = node.op("transpose", x, perm=order)
    picked = node.op("gather_nd", moved, node.reshape(index, *node.shape(index), 1), batch=batch)
    own = count - batch
    between = at - batch
    back = (
        *range(batch),
        *(count + a for a in range(between)),
        *(batch + a for a in range(own)),
        *(count + a for a in range(between, rank - batch - 1)),
    )
    return node.op("transpose", picked, perm=back)


def _gather_nd(node: Node) -> Expr:
    node.keeps_scale()
    return node.op("gather_nd", node.tensor(0), _indices(node, 1))


def _embedding(node: Node) -> Expr:
    """Emit rows of a table by index; rows in integers are given as floats where the output is of floats."""
    rows = node.tensor(1)
    if node.input(1).dtype is not node.output().dtype:
        rows = node.reals(1)
    else:
        node.keeps_scale()
    return node.op("gather", rows, _indices(node, 0), axis=0)


def _scatter_nd(node: Node) -> Expr:
    """Emit a tensor of zeros to which updates are added."""
    shape = make.shape_const(node.sizes(2))
    update = node.tensor(1)
    zeros = node.op("broadcast_to", node.number(0, update), shape)
    return node.op("scatter_nd", zeros, _indices(node, 0), update, combine=Combine.ADD)


def _arg(node: Node, name: str) -> Expr:
    x = node.tensor(0)
    axis = node.axis(node.numbers(1, "an axis")[0], len(node.shape(x)))
    return node.cast(node.op(name, x, axis=axis), node.output().dtype)


def _one_hot(node: Node) -> Expr:
    (axis,) = node.options("OneHotOptions", "Axis")
    index = _indices(node, 0)
    rank = len(node.shape(index))
    depth = node.numbers(1, "a depth")[0]
    at = node.axis(axis, rank + 1)
    node.bounded(depth)
    places = np.arange(depth, dtype=np.int64).reshape(-1, *[1] * (rank - at))
    wide = node.reshape(index, *node.shape(index)[:at], 1, *node.shape(index)[at:])
    on, off = (node.reshape(node.tensor(i)) for i in (2, 3))
    return node.op("select", node.op("equal", wide, places), on, off)


def _top_k(node: Node) -> tuple[Expr, Expr]:
    node.keeps_scale()
    pair = node.op("top_k", node.tensor(0), make.int_const(node.sizes(1)[0]), axis=-1)
    values, places = node.builder.unpack(pair)
    return values, node.cast(places, node.output(1).dtype)


def _where(node: Node) -> Expr:
    """Emit the places of what is not 0, one in each row."""
    found = node.op("nonzero", node.tensor(0))
    return node.cast(node.op("transpose", found, perm=(1, 0)), node.output().dtype)


def _cumsum(node: Node) -> Expr:
    exclusive, is_reverse = node.options("CumsumOptions", "Exclusive", "Reverse")
    is_integer = node.kind() is Kind.QUANTIZED
    x = node.centered(0) if is_integer else node.tensor(0)
    axis = node.axis(node.numbers(1, "an axis")[0], len(node.shape(x)))
    total = node.op("cumsum", x, axis=axis, exclusive=bool(exclusive), reverse=bool(is_reverse))
    if not is_integer:
        return total
    count = node.shape(x)[axis].value
    if count is None:
        raise node.unsupported("sums quantized integers along an axis whose size is not known")
    return summed(node, total, count)


def _reverse_sequence(node: Node) -> Expr:
    """Emit rows whose first elements are reversed, as many as a tensor says."""
    axis, batch = node.options("ReverseSequenceOptions", "SeqDim", "BatchDim")
    x = node.tensor(0)
    shape = node.shape(x)
    axis, batch = node.axis(axis, len(shape)), node.axis(batch, len(shape))
    size = shape[axis].value
    if size is None:
        raise node.unsupported("reverses along an axis whose size is not known")
    node.bounded(size)
    place = np.arange(size, dtype=np.int64).reshape(-1, *[1] * (len(shape) - 1 - axis))
    lengths = node.reshape(_indices(node, 1), shape[batch], *[1] * (len(shape) - 1 - batch))
    back = node.op("sub", node.op("sub", lengths, np.asarray(1, np.int64)), place)
    index = node.op("select", node.op("less", place, lengths), back, place)
    whole = node.op("broadcast_to", index, make.shape_const(shape))
    return node.op("gather_elements", x, whole, axis=axis)


def _update_slice(node: Node) -> Expr:
    """Emit a tensor with a part replaced; the part is moved to where it fits inside."""
    node.keeps_scale()
    x, part = node.tensor(0), node.tensor(1)
    starts = _indices(node, 2)
    rooms: list[int] = []
    for whole, size in zip(node.shape(x), node.shape(part), strict=True):
        if whole.value is None or size.value is None:
            raise node.unsupported("replaces a part whose size is not known")
        rooms.append(whole.value - size.value)
    inside = node.op("minimum", node.clamped(starts, 0, None), np.array(rooms, np.int64))
    begins = node.op("to_control", inside)
    return node.op("update_slice", x, part, begins, axes=tuple(range(len(rooms))))


def _sparse_to_dense(node: Node) -> Expr:
    """Emit a tensor of one value in which elements are replaced."""
    node.keeps_scale()
    shape, values, others = make.shape_const(node.sizes(1)), node.tensor(2), node.reshape(node.tensor(3))
    index, rank = _indices(node, 0), len(node.sizes(1))
    if len(node.shape(index)) < 2:  # places in a vector, or one place
        count = 1 if not node.shape(index) else node.shape(index)[0]
        index = node.reshape(index, count, 1)
    if node.shape(index)[1].value != rank:
        raise node.unsupported(f"has places of {node.shape(index)[1]} numbers in a tensor of rank {rank}")
    values = node.op("broadcast_to", values, make.shape_const((node.shape(index)[0],)))
    whole = node.op("broadcast_to", others, shape)
    return node.op("scatter_nd", whole, index, values, combine=Combine.REPLACE)


def _densify(node: Node) -> Expr:
    """Emit a constant: its zeros were put in when the file was read."""
    node.array(0, "elements")
    return node.tensor(0)


def _on_diagonal(node: Node, e: Expr) -> Expr:
    """Return where the last two axes of a tensor have the same index."""
    rows, columns = (
        node.op("range", make.int_const(0), make.int_const(d), make.int_const(1), dtype=I64)
        for d in node.shape(e)[-2:]
    )
    return node.op("equal", node.reshape(rows, node.shape(e)[-2], 1), columns)


def _matrix_diag(node: Node) -> Expr:
    node.keeps_scale()
    x = node.tensor(0)
    *batch, n = node.shape(x)
    whole = node.op("broadcast_to", node.reshape(x, *batch, 1, n), make.shape_const((*batch, n, n)))
    zero = node.zero(node.input(0)) if node.kind() is Kind.QUANTIZED else 0
    return node.op("select", _on_diagonal(node, whole), whole, node.number(zero, x))


def _matrix_set_diag(node: Node) -> Expr:
    node.keeps_scale()
    x, diagonal = node.tensor(0), node.tensor(1)
    *batch, rows, columns = node.shape(x)
    n = node.shape(diagonal)[-1]
    padded = node.op("pad", diagonal, make.shape_const([0] * (len(batch) * 2 + 1) + [columns - n]))
    new = node.reshape(padded, *batch, 1, columns)
    if not (rows.value and columns.value):
        raise node.unsupported("takes matrices whose size is not known")
    return node.op("select", _on_diagonal(node, x), new, x)


RULES: Mapping[str, Rule] = {
    "GATHER": _gather,
    "GATHER_ND": _gather_nd,
    "EMBEDDING_LOOKUP": _embedding,
    "SCATTER_ND": _scatter_nd,
    "ARG_MAX": partial(_arg, name="argmax"),
    "ARG_MIN": partial(_arg, name="argmin"),
    "ONE_HOT": _one_hot,
    "TOPK_V2": _top_k,
    "WHERE": _where,
    "CUMSUM": _cumsum,
    "REVERSE_SEQUENCE": _reverse_sequence,
    "DYNAMIC_UPDATE_SLICE": _update_slice,
    "SPARSE_TO_DENSE": _sparse_to_dense,
    "DENSIFY": _densify,
    "MATRIX_DIAG": _matrix_diag,
    "MATRIX_SET_DIAG": _matrix_set_diag,
}
