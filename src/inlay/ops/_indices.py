"""What operators on indices have in common: see `indexing` for what a wrong one means.

A negative index counts from the end. Compute rules clamp or leave out, so that no kernel leaves its
memory; references refuse in the words of the compiled check.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from inlay.arith.dtype import I64
from inlay.arith.expr import Int
from inlay.ir.op import TypeContext
from inlay.ir.types import TensorType
from inlay.loop import te
from inlay.ops import _rules as rules
from inlay.ops._build import Array
from inlay.ops.index_checks import extremes, require_inside


def wrapped(index: te.ScalarValue, size: Int) -> te.ScalarValue:
    """Return an index as i64, counted from the front."""
    v = index.cast(I64)
    return te.select(v < 0, v + te.index(size), v) if index.dtype.is_signed else v


def clamped(index: te.ScalarValue, size: Int) -> te.ScalarValue:
    """Return an index that is inside an axis, if the axis has any element."""
    return te.maximum(te.minimum(wrapped(index, size), te.index(size - 1)), 0)


def have_elements(sizes: Sequence[Int]) -> te.ScalarValue | None:
    """Whether every axis has an element; None where it is sure: then nothing needs to guard."""
    condition: te.ScalarValue | None = None
    for size in sizes:
        if size.value is None or size.value < 1:
            condition = te.all_of(condition, te.index(size) > 0)
    return condition


def np_wrapped(index: Array, size: int) -> Array:
    """As `wrapped`."""
    index = index.astype(np.int64)
    return np.where(index < 0, index + size, index)


def np_clamped(index: Array, size: int) -> Array:
    """As `clamped`."""
    return np.clip(np_wrapped(index, size), 0, max(size - 1, 0))


def np_inside(why: str, index: Array, *sizes: int, columns: int = 0) -> None:
    """Refuse indices outside their axes, in the words of the compiled check."""
    ends = extremes(index, columns)
    for k, size in enumerate(sizes):
        require_inside(why, int(ends[2 * k]), ~int(ends[2 * k + 1]), size)


def element_axes(ctx: TypeContext, axis: int, x: TensorType, index: TensorType) -> int:
    """Return the indexed axis of tensors that have an index for each element, and check the others."""
    rank = len(x.shape)
    axis = rules.axis_of(ctx, axis, rank)
    rules.of_rank(ctx, index, rank, "the indices")
    for d in range(rank):
        if d != axis:
            ctx.at_least(x.shape[d] - index.shape[d], 0, f"axis {d} of the indices is in the data")
    return axis


def tuples(ctx: TypeContext, index: TensorType, most: int) -> int:
    """Return how many axes the last dim of the indices addresses."""
    rules.least_rank(ctx, index, 1, "the indices")
    depth = index.shape[-1].value
    if depth is None or depth > most:
        raise ctx.fail(
            f"found indices of {index.shape[-1]} axes, needed a known number of at most {most}",
            id="type.dynamic-rank" if depth is None else "type.op-argument",
        )
    return depth
