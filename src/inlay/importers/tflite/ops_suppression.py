"""Non-maximum suppression: of boxes that overlap, those with the greatest scores.

Each step takes the greatest score that is left. The scores of other boxes become less the more they overlap
with it, or are gone. What is taken is written behind what was taken before, and the rest stays 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np

from inlay.arith.dtype import I32
from inlay.importers.tflite.node import Node, Rule
from inlay.importers.tflite.ops_detection import overlaps
from inlay.ir import make
from inlay.ir.builder import Builder
from inlay.ir.expr import Expr, Var
from inlay.ir.loop_trace import Step

_GONE = np.asarray(-np.inf, np.float32)


def _most(node: Node) -> int:
    """Return how many boxes are taken at most."""
    known = node.known(2)
    found = known[0].value if known else None
    found = node.output().shape[0] if found is None and len(node.output().shape) == 1 else found
    if found is None or found < 1:
        raise node.unsupported("takes a number of boxes that is computed, or not positive")
    node.bounded(found)
    return found


def _corners(node: Node) -> tuple[Expr, ...]:
    """Return top, left, bottom, right of boxes, which may be given by any two opposite corners."""
    boxes = node.tensor(0)
    count = node.shape(boxes)[0]
    sides = [node.reshape(node.part(boxes, 1, k, k + 1), count) for k in range(4)]
    low = [node.op("minimum", sides[k], sides[k + 2]) for k in (0, 1)]
    high = [node.op("maximum", sides[k], sides[k + 2]) for k in (0, 1)]
    return (*low, *high)


def _suppress(node: Node, *, is_soft: bool) -> tuple[Expr, ...]:
    node.only_floats(0, 1)
    if len(node.shape(node.tensor(0))) != 2 or len(node.shape(node.tensor(1))) != 1:
        raise node.unsupported("takes other than one list of boxes")
    most, boxes = _most(node), _corners(node)
    area = node.op("mul", node.op("sub", boxes[2], boxes[0]), node.op("sub", boxes[3], boxes[1]))
    overlap, least = (node.reshape(node.tensor(i)) for i in (3, 4))
    decay = _decay(node) if is_soft else None
    scores = node.tensor(1)
    start = node.op("select", node.op("greater", scores, least), scores, _GONE)

    def step(b: Builder, _: object, carried: tuple[Var, ...]) -> Step:
        inside = node.within(b)
        (left,) = carried
        place = inside.op("argmax", left, axis=0)
        best = inside.op("reduce_max", left, axes=(0,))
        chosen = tuple(inside.op("gather", e, place, axis=0) for e in (*boxes, area))
        ratio = overlaps(inside, boxes, area, chosen[:4], chosen[4])
        others: Expr = left
        if decay is not None:
            squares = inside.op("mul", inside.op("mul", ratio, ratio), decay)
            others = inside.op("mul", left, inside.op("exp", squares))
        ends = (make.int_const(v) for v in (0, inside.shape(left)[0], 1))
        every = inside.op("range", *ends, dtype=inside.dtype(place))
        is_near = inside.op("greater_equal", ratio, overlap)
        is_low = inside.op("logical_not", inside.op("greater", others, least))
        is_gone = inside.op("logical_or", is_near, is_low)
        is_gone = inside.op("logical_or", is_gone, inside.op("equal", every, place))
        return Step([inside.op("select", is_gone, _GONE, others)], [place, best])

    done = node.builder.loop([start], step, count=most, names=("scores",), name="suppress")
    places, values = done.stacked
    is_real = node.op("greater", values, _GONE)
    index = node.op("select", is_real, node.cast(places, I32), np.asarray(0, np.int32))
    total = node.op("reduce_sum", node.cast(is_real, I32), axes=(0,))
    if not is_soft:
        return index, total
    return index, node.op("select", is_real, values, np.asarray(0, np.float32)), total


def _decay(node: Node) -> Expr | None:
    """Return what the squares of overlaps are multiplied by in the exponent; None for no decay."""
    value = node.array(5, "a sigma")
    sigma = float(value.reshape(()))
    if sigma < 0:
        raise node.unsupported(f"has the sigma {sigma}")
    return make.const(np.asarray(-0.5 / sigma, np.float32)) if sigma else None


RULES: Mapping[str, Rule] = {
    "NON_MAX_SUPPRESSION_V4": partial(_suppress, is_soft=False),
    "NON_MAX_SUPPRESSION_V5": partial(_suppress, is_soft=True),
}
