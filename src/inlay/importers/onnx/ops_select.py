"""Operators whose results have sizes that the data decide: Compress, Unique, NonMaxSuppression.

Each is a composition around `nonzero`, which is where the size is found out; everything else is of
known sizes.
"""

from __future__ import annotations

from collections.abc import Mapping

from inlay.arith import dtype as dt
from inlay.arith.expr import Int, minimum, product
from inlay.importers.onnx.node import Node, Rule
from inlay.importers.onnx.term import Term, arange, concat, filled, integers, term
from inlay.importers.onnx.values import OnnxValue
from inlay.ir import make
from inlay.ir.builder import Builder
from inlay.ir.expr import Var
from inlay.ir.loop_trace import Step


def _nonzero(node: Node) -> OnnxValue:
    x = term(node, 0)
    if x.rank == 0:
        x = x.reshape(1)
        return x.op("nonzero").part(0, 0, 0).value
    return x.op("nonzero").value


def places(flags: Term) -> Term:
    """Return the indices where a vector of truth values holds, as a vector."""
    return flags.op("nonzero").at(0, 0)


def _compress(node: Node) -> OnnxValue:
    x, condition = term(node, 0), term(node, 1)
    given = [a for a in node.proto.attribute if a.name == "axis"]
    if not given:
        return x.reshape(product(x.shape)).gather(places(condition)).value
    axis = node.axis(node.int("axis", 0), x.rank)
    return x.gather(places(condition), axis=axis).value


# --------------------------------------------------------------------------- unique


def _unique(node: Node) -> tuple[OnnxValue, ...]:
    """Sort, keep what differs from its neighbor, and undo the sorting where asked to."""
    x = term(node, 0)
    has_axis = any(a.name == "axis" for a in node.proto.attribute)
    axis = node.axis(node.int("axis", 0), x.rank) if has_axis else 0
    items = x.move(axis, 0) if has_axis else x.reshape(product(x.shape))
    count, rest = items.shape[0], items.shape[1:]
    rows = items.reshape(count, product(rest))
    if x.dtype.is_host_only:
        rows = rows.op("string_order")  # numbers in the same order
    order = _order(rows) if has_axis else _second(rows.reshape(count).op("sort", axis=0))
    ordered = rows.gather(order, clamp=True)
    changed = ~ordered.part(0, 1, count).equals(ordered.part(0, 0, count - 1))
    first = filled(node, 1, (minimum(count, 1),), dt.BOOL)
    begins = concat([first, changed.over("any", 1)], 0)
    starts = places(begins)
    found = starts.shape[0]
    group = begins.cast(dt.I64).op("cumsum", axis=0) - 1
    # The sort is stable: the first of equals comes first.
    indices = order.gather(starts, clamp=True)
    bounds = concat([starts, integers(node, (count,))], 0)
    counts = bounds.part(0, 1, found + 1) - starts
    inverse = filled(node, 0, (count,), dt.I64).op("scatter_elements", order, group, axis=0)
    if not node.flag("sorted", default=True):
        by_place = _second(indices.op("sort", axis=0))
        rank = filled(node, 0, (found,), dt.I64)
        rank = rank.op("scatter_elements", by_place, arange(node, found), axis=0)
        indices, counts = (t.gather(by_place, clamp=True) for t in (indices, counts))
        inverse = rank.gather(inverse, clamp=True)
    values = items.gather(indices, clamp=True)
    values = values.move(0, axis) if has_axis else values
    return tuple(t.value for t in (values, indices, inverse, counts))


def _second(pair: Term) -> Term:
    return Term(pair.node, pair.node.b.unpack(pair.expr)[1])


def _order(rows: Term) -> Term:
    """Return the order of rows by their elements from the first to the last.

    Sorting by the last column first, and stably, leaves them sorted by all.
    """
    node, (count, width) = rows.node, rows.shape

    def step(scope: Builder, i: Int, carried: tuple[Var, ...]) -> Step:
        inside = node.within(scope)
        so_far = Term(inside, carried[0])
        at = integers(inside, (width - 1 - i,))
        column = Term(inside, rows.expr).gather(at, axis=1, clamp=True).reshape(count)
        by_column = _second(column.gather(so_far, clamp=True).op("sort", axis=0))
        return Step([so_far.gather(by_column, clamp=True).expr])

    start = arange(node, count)
    done = node.b.loop([start.expr], step, count=width, name=node.loop_name)
    return Term(node, done.carried[0])


# --------------------------------------------------------------------------- non-maximum suppression


def _non_max_suppression(node: Node) -> OnnxValue:
    """Return image, class and place of each box that is kept: those of a table with room for all."""
    boxes, scores = term(node, 0), term(node, 1)
    sides = _sides(boxes, corners=not node.flag("center_point_box"))
    limits = [term(node, k).reshape() if node.has(k) else filled(node, 0.0, (), dt.F32) for k in (3, 4)]
    most = make.int_const(_most(node, scores.shape[2]))
    operands = (sides.expr, scores.expr, *(x.expr for x in limits), most)
    pair = node.emit("non_max_suppression", *operands, filters=node.has(4))
    best, counts = (Term(node, x) for x in node.b.unpack(pair))
    index = counts.op("nonzero").transpose(1, 0)
    box = best.op("gather_nd", index, batch=0, clamp=True)
    return concat([index.part(1, 0, 2), box.reshape(box.shape[0], 1)], 1).value


def _most(node: Node, count: Int) -> Int:
    if not node.has(2):
        return count * 0
    return minimum(term(node, 2).op("maximum", 0).control(), count)


def _sides(boxes: Term, *, corners: bool) -> Term:
    """Return the low sides of boxes and their high ones: `[batch, n, 4]`."""
    sides = [boxes.at(2, k) for k in range(4)]
    if corners:  # y1, x1, y2, x2, in whichever order of the two corners
        low = [sides[d].op("minimum", sides[d + 2]) for d in (0, 1)]
        high = [sides[d].op("maximum", sides[d + 2]) for d in (0, 1)]
    else:  # x, y of the center, width, height
        low = [sides[d] - sides[d + 2] * 0.5 for d in (0, 1)]
        high = [sides[d] + sides[d + 2] * 0.5 for d in (0, 1)]
    return concat([x.reshape(*boxes.shape[:2], 1) for x in (*low, *high)], 2)


RULES: Mapping[str, Rule] = {
    "NonZero": _nonzero,
    "Compress": _compress,
    "Unique": _unique,
    "NonMaxSuppression": _non_max_suppression,
}
