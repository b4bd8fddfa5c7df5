"""Detection: boxes from their codes, and of those that overlap the ones with the greatest scores.

Choosing is a loop: each step takes the greatest score that is left and removes the boxes that overlap with
its own. That is what sorting first and going through the list gives; of equal scores the first one is taken.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from inlay.arith.dtype import F32
from inlay.importers.tflite.node import Node, Rule
from inlay.ir import make
from inlay.ir.builder import Builder
from inlay.ir.expr import Expr, Var
from inlay.ir.loop_trace import Step

_GONE = np.asarray(-np.inf, np.float32)


class _Options(NamedTuple):
    """What the options say."""

    most: int
    classes: int
    per_box: int
    per_class: int
    least_score: float
    overlap: float
    scales: tuple[float, float, float, float]
    is_regular: bool


def _options(node: Node) -> _Options:
    given = node.record.custom_options()

    def number(name: str, default: float | None = None) -> Any:
        found = given.get(name, default)
        if not isinstance(found, int | float):
            raise node.unsupported(f"lacks the option {name}")
        return found

    made = _Options(
        int(number("max_detections")),
        int(number("num_classes")),
        int(number("max_classes_per_detection")),
        int(number("detections_per_class", 100)),
        float(number("nms_score_threshold")),
        float(number("nms_iou_threshold")),
        (number("y_scale"), number("x_scale"), number("h_scale"), number("w_scale")),
        bool(number("use_regular_nms", 0)),
    )
    if min(made.most, made.classes, made.per_box, made.per_class, *made.scales) <= 0:
        raise node.unsupported(f"has options that are not positive: {made}")
    return made


def _real(value: float) -> np.ndarray:
    return np.asarray(value, np.float32)


def _column(node: Node, e: Expr, i: int) -> Expr:
    """Return a column of a matrix, as a vector."""
    return node.reshape(node.part(e, 1, i, i + 1), node.shape(e)[0])


def _decoded(node: Node, count: int, options: _Options) -> tuple[Expr, Expr, Expr, Expr]:
    """Return top, left, bottom, right of boxes from their codes: center and size beside those of anchors."""
    codes = node.reals(0)
    codes = node.reshape(codes, count, node.shape(codes)[-1])
    anchors = node.reals(2)
    y, x, h, w = (_column(node, anchors, i) for i in range(4))
    sides: list[tuple[Expr, Expr]] = []
    for i, (center, size) in enumerate(((y, h), (x, w))):
        at = node.op("div", _column(node, codes, i), _real(options.scales[i]))
        middle = node.op("add", node.op("mul", at, size), center)
        length = node.op("exp", node.op("div", _column(node, codes, i + 2), _real(options.scales[i + 2])))
        half = node.op("mul", node.op("mul", length, _real(0.5)), size)
        sides.append((node.op("sub", middle, half), node.op("add", middle, half)))
    (top, bottom), (left, right) = sides
    return top, left, bottom, right


def overlaps(node: Node, boxes: tuple[Expr, ...], area: Expr, chosen: tuple[Expr, ...], own: Expr) -> Expr:
    """Return the intersection over the union of boxes with chosen ones; 0 where one of them is empty."""
    top, left, bottom, right = boxes
    zero = _real(0)

    def common(low: Expr, high: Expr, low_of: Expr, high_of: Expr) -> Expr:
        length = node.op("sub", node.op("minimum", high, high_of), node.op("maximum", low, low_of))
        return node.op("maximum", length, zero)

    both = node.op(
        "mul", common(top, bottom, chosen[0], chosen[2]), common(left, right, chosen[1], chosen[3])
    )
    ratio = node.op("div", both, node.op("sub", node.op("add", area, own), both))
    is_real = node.op("logical_and", node.op("greater", area, zero), node.op("greater", own, zero))
    return node.op("select", is_real, ratio, zero)


def _chosen(
    node: Node, boxes: tuple[Expr, ...], scores: Expr, steps: int, options: _Options
) -> tuple[Expr, Expr]:
    """Choose boxes by scores `[classes, boxes]`, for each class by itself.

    Returns:
        the places and the scores of what is chosen, `[steps, classes]`; minus infinity for nothing.
    """
    area = node.op("mul", node.op("sub", boxes[2], boxes[0]), node.op("sub", boxes[3], boxes[1]))
    classes, count = node.shape(scores)
    every = np.arange(count.value or 0, dtype=np.int64)
    is_enough = node.op("greater_equal", scores, _real(options.least_score))
    start = node.op("select", is_enough, scores, _GONE)

    def step(b: Builder, _: object, carried: tuple[Var, ...]) -> Step:
        inside = node.within(b)
        place = inside.op("argmax", carried[0], axis=1)
        best = inside.op("reduce_max", carried[0], axes=(1,))
        own = [inside.reshape(inside.op("gather", e, place, axis=0), classes, 1) for e in (*boxes, area)]
        ratio = overlaps(inside, boxes, area, tuple(own[:4]), own[4])
        is_taken = inside.op("equal", inside.reshape(place, classes, 1), every)
        is_near = inside.op("greater", ratio, _real(options.overlap))
        left = inside.op("select", inside.op("logical_or", is_taken, is_near), _GONE, carried[0])
        return Step([left], [place, best])

    done = node.builder.loop([start], step, count=steps, names=("scores",), name="choose")
    return done.stacked[0], done.stacked[1]


def _detect(node: Node) -> tuple[Expr, ...]:
    """Emit TFLite_Detection_PostProcess: boxes, classes, scores, and how many there are."""
    options = _options(node)
    codes, predictions = node.input(0).shape, node.input(1).shape
    if (
        len(codes) != 3
        or len(predictions) != 3
        or codes[0] != 1
        or codes[1] != predictions[1]
        or codes[2] < 4
    ):
        raise node.unsupported(f"takes codes {list(codes)} and scores {list(predictions)}")
    if node.output().dtype is not F32:
        raise node.unsupported(f"gives {node.output().dtype}")
    count, behind = predictions[1], predictions[2] - options.classes
    node.bounded(count, predictions[2])
    node.bounded(options.most, options.per_box)
    node.bounded(options.classes, options.per_class)
    if behind not in (0, 1):
        raise node.unsupported(f"has scores of {predictions[2]} classes for {options.classes}")
    boxes = _decoded(node, count, options)
    scores = node.reshape(node.reals(1), count, predictions[2])
    scores = node.part(scores, 1, behind, predictions[2])  # without the background
    pick = _by_class if options.is_regular else _by_box
    places, classes, values = pick(node, boxes, scores, count, options)
    is_real = node.op("greater", values, _GONE)
    table = node.op("concat", *(node.reshape(e, count, 1) for e in boxes), axis=1)
    found = node.op("gather", table, places, axis=0)
    size = options.most * options.per_box
    missing = size - (node.shape(places)[0].value or 0)
    outputs: list[Expr] = []
    for e, flags in (
        (found, node.reshape(is_real, node.shape(is_real)[0], 1)),
        (node.cast(classes, F32), is_real),
        (values, is_real),
    ):
        kept = node.op("select", flags, e, _real(0))
        rest = len(node.shape(kept)) - 1
        padded = node.op("pad", kept, make.shape_const([0] * (rest + 1) + [missing] + [0] * rest))
        outputs.append(node.reshape(padded, 1, size, *node.shape(kept)[1:]))
    each = options.per_box if not options.is_regular else 1
    total = node.op("reduce_sum", node.cast(is_real, F32), axes=(0,), keepdims=True)
    return (*outputs, node.op("div", total, _real(min(each, options.classes))))


def _by_box(
    node: Node, boxes: tuple[Expr, ...], scores: Expr, count: int, options: _Options
) -> tuple[Expr, Expr, Expr]:
    """Choose boxes by their best class, and give the best classes of each."""
    each, steps = min(options.per_box, options.classes), min(options.most, count)
    best, classes = node.builder.unpack(node.op("top_k", scores, make.int_const(each), axis=1))
    first = node.reshape(node.part(best, 1, 0, 1), 1, count)
    places, values = _chosen(node, boxes, first, steps, options)
    places, values = node.reshape(places, steps), node.reshape(values, steps, 1)
    is_real = node.op("greater", values, _GONE)
    shown = node.op("select", is_real, node.op("gather", best, places, axis=0), _GONE)
    repeated = node.op("gather", places, np.repeat(np.arange(steps, dtype=np.int64), each), axis=0)
    of_places = node.op("gather", classes, places, axis=0)
    return repeated, node.reshape(of_places, steps * each), node.reshape(shown, steps * each)


def _by_class(
    node: Node, boxes: tuple[Expr, ...], scores: Expr, count: int, options: _Options
) -> tuple[Expr, Expr, Expr]:
    """Choose boxes for each class by itself, and of all those the ones with the greatest scores."""
    steps = min(options.per_class, options.most, count)
    by_class = node.op("transpose", scores, perm=(1, 0))
    places, values = (
        node.reshape(node.op("transpose", e, perm=(1, 0)), options.classes * steps)
        for e in _chosen(node, boxes, by_class, steps, options)
    )
    most = min(options.most, options.classes * steps)
    found, order = node.builder.unpack(node.op("top_k", values, make.int_const(most), axis=0))
    classes = np.repeat(np.arange(options.classes, dtype=np.int64), steps)
    return node.op("gather", places, order, axis=0), node.op("gather", classes, order, axis=0), found


RULES: Mapping[str, Rule] = {"TFLite_Detection_PostProcess": _detect}
