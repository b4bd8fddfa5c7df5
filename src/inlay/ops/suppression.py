"""Non-maximum suppression: of boxes that overlap much, the one with the best score remains.

Boxes are taken by their scores, the best first, and of equal ones the earlier. One is kept unless it
overlaps one that was kept before by more than is allowed: the area that both cover, over the area that
either covers. The boxes of a class are in a heap, which costs `O(n)`; `log n` steps find the next one, and it
is compared with those that were kept, until enough are. Boxes that nobody asks for are never sorted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from inlay.arith.dtype import BOOL, F32, I64
from inlay.arith.expr import Int, fresh, lit, minimum, to_int
from inlay.ir.op import TypeContext
from inlay.ir.types import TensorType, TupleType
from inlay.loop import te
from inlay.loop.buffer import Buffer, Scope
from inlay.loop.scalar import Load
from inlay.loop.stmt import Alloc, For, If, Let, LoopKind, Seq, Stmt, Store
from inlay.ops import _rules as rules
from inlay.ops._build import Array, nest
from inlay.ops._define import FusionPattern, OpDef, Sample, define
from inlay.ops._heap import Element, Heap
from inlay.ops._rules import Types
from inlay.ops._samples import noise

GROUP = 16
"""Boxes that one is compared with before it is asked whether it is struck out already."""


@dataclass(frozen=True, slots=True)
class SuppressionAttrs:
    """`filters`: whether boxes need a score above the threshold."""

    filters: bool = True


def _rule(ctx: TypeContext, a: SuppressionAttrs, args: Types) -> TupleType:
    boxes, scores = (rules.of_rank(ctx, rules.tensor(ctx, args, k, (F32,)), 3, "an input") for k in (0, 1))
    for k in (2, 3):
        rules.of_rank(ctx, rules.tensor(ctx, args, k, (F32,)), 0, "a limit")
    most = rules.int_value(ctx, args, 4)
    ctx.at_least(most, 0, "the number of boxes to keep")
    ctx.equal(boxes.shape[0], scores.shape[0], "images of boxes and scores")
    ctx.equal(boxes.shape[1], scores.shape[2], "boxes and their scores")
    ctx.equal(boxes.shape[2], lit(4), "numbers of a box")
    shape = (*scores.shape[:2], most)
    return TupleType((TensorType(shape, I64), TensorType(shape, BOOL)))


def _reference(
    a: SuppressionAttrs, boxes: Array, scores: Array, overlap: Array, threshold: Array, most: int
) -> tuple[Array, Array]:
    places = np.zeros((*scores.shape[:2], most), np.int64)
    found = np.zeros(places.shape, bool)
    for b, c in np.ndindex(*scores.shape[:2]):
        kept: list[int] = []
        for p in np.argsort(-scores[b, c], kind="stable"):
            passes = not a.filters or scores[b, c, p] > threshold
            if len(kept) == most or not passes:
                continue
            if all(_overlap(boxes[b, p], boxes[b, q]) <= overlap for q in kept):
                kept.append(int(p))
        places[b, c, : len(kept)], found[b, c, : len(kept)] = kept, True
    return places, found


def _overlap(one: Array, other: Array) -> np.float32:
    sides = [
        np.maximum(np.minimum(one[2 + d], other[2 + d]) - np.maximum(one[d], other[d]), np.float32(0))
        for d in (0, 1)
    ]
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (one, other)]
    common = sides[0] * sides[1]
    union = areas[0] + areas[1] - common
    return np.float32(common / union if union > 0 else 0)


def _loops(a: SuppressionAttrs, operands: Sequence[object], outputs: Sequence[Buffer]) -> Stmt:
    boxes, scores, overlap, threshold, most = operands
    assert isinstance(most, Int)
    assert isinstance(boxes, Buffer)
    assert isinstance(scores, Buffer)
    assert isinstance(overlap, Buffer)
    assert isinstance(threshold, Buffer)
    b, c = fresh("b"), fresh("c")
    at = (to_int(b), to_int(c))
    n = scores.shape[2]
    values = Buffer("values", (n,), F32, Scope.WORKSPACE)
    order = Buffer("order", (n,), I64, Scope.WORKSPACE)
    total = Buffer("total", (lit(1),), I64, Scope.REGISTER)
    heap = Heap((values, order), lambda i: (i,), _outranks)
    suppression = _Suppression(boxes, te.Tensor(overlap)[()], outputs, at, most)
    count = fresh("count")
    passes = te.Tensor(threshold)[()] if a.filters else None
    ranked = Seq((heap.build(to_int(count)), suppression.write(heap, to_int(count))))
    each = Seq((_candidates(heap, total, scores, at, passes), Let(count, Load(total, (lit(0),)), ranked)))
    lines = [
        For(x, lit(0), n, LoopKind.SERIAL, Seq(())) for x, n in zip((b, c), scores.shape[:2], strict=True)
    ]
    body = heap.around(each)
    for buffer in (values, order, total):
        body = Alloc(buffer, body)
    return nest(lines, body)


def _outranks(one: Element, other: Element) -> te.ScalarValue:
    """Whether a score comes before another: the greater one, of equal ones the earlier, NaN behind all."""
    (a, p), (b, q) = one, other
    better = (b < a) | (b.differs(b) & ~a.differs(a))
    worse = (a < b) | (a.differs(a) & ~b.differs(b))
    return better | (~worse & (p < q))


def _candidates(
    heap: Heap, total: Buffer, scores: Buffer, at: tuple[Int, Int], threshold: te.ScalarValue | None
) -> Stmt:
    """Write the scores that are above a threshold with their places, and how many there are."""
    i, end = fresh("i"), fresh("end")
    score = te.Tensor(scores)[(*at, to_int(i))]
    passes = te.const(True, BOOL) if threshold is None else threshold < score
    take = Let(
        end,
        Load(total, (lit(0),)),
        Seq(
            (
                heap.put(to_int(end), (score, te.index(i))),
                Store(total, (lit(0),), te.index(to_int(end) + 1).scalar),
            )
        ),
    )
    scan = For(i, lit(0), scores.shape[2], LoopKind.SERIAL, If(passes.scalar, take))
    return Seq((Store(total, (lit(0),), te.index(lit(0)).scalar), scan))


@dataclass(frozen=True, slots=True)
class _Suppression:
    """What is kept of one class of one image.

    Attributes:
        boxes: of all images.
        overlap: how much boxes that are kept may overlap.
        outputs: places, and whether there is one.
        at: the image and the class.
        most: how many are kept, at most.
    """

    boxes: Buffer
    overlap: te.ScalarValue
    outputs: Sequence[Buffer]
    at: tuple[Int, Int]
    most: Int

    def write(self, heap: Heap, count: Int) -> Stmt:
        """Take boxes from a heap, and write the places of those that are kept."""
        kept = Buffer("kept", (lit(1),), I64, Scope.REGISTER)
        struck = Buffer("struck", (lit(1),), I64, Scope.REGISTER)
        places, found = self.outputs
        t, p, have = fresh("t"), fresh("p"), fresh("have")
        is_free = te.Tensor(struck)[(lit(0),)] < 1
        keep = Seq(
            (
                Store(places, (*self.at, to_int(have)), te.index(p).scalar),
                Store(kept, (lit(0),), te.index(to_int(have) + 1).scalar),
            )
        )
        nothing = Store(struck, (lit(0),), te.index(lit(0)).scalar)
        last = count - 1 - to_int(t)
        drop = heap.down(lit(0), last, heap.element(last))
        tried = Seq((nothing, self._compare(struck, to_int(p), to_int(have)), If(is_free.scalar, keep), drop))
        candidate = Let(
            have,
            Load(kept, (lit(0),)),
            If((te.index(have) < te.index(self.most)).scalar, Let(p, heap.element(lit(0))[1].scalar, tried)),
        )
        end, rest = fresh("end"), fresh("rest")
        is_found = te.index(rest) < te.index(end)
        place = te.select(is_found, te.Tensor(places)[(*self.at, to_int(rest))], te.const(0, I64))
        fill = Seq(
            (
                Store(places, (*self.at, to_int(rest)), place.scalar),
                Store(found, (*self.at, to_int(rest)), is_found.scalar),
            )
        )
        body = Seq(
            (
                Store(kept, (lit(0),), te.index(lit(0)).scalar),
                For(t, lit(0), count, LoopKind.SERIAL, candidate),
                Let(end, Load(kept, (lit(0),)), For(rest, lit(0), self.most, LoopKind.SERIAL, fill)),
            )
        )
        return Alloc(kept, Alloc(struck, body))

    def _compare(self, struck: Buffer, p: Int, have: Int) -> Stmt:
        """Set `struck` if a box overlaps one of those that were kept."""
        group, j, q = fresh("group"), fresh("j"), fresh("q")
        first = to_int(group) * GROUP
        hit = self.overlap < self._shared(p, to_int(q))
        one = Let(
            q,
            Load(self.outputs[0], (*self.at, first + to_int(j))),
            If(hit.scalar, Store(struck, (lit(0),), te.index(lit(1)).scalar)),
        )
        some = For(j, lit(0), minimum(have - first, GROUP), LoopKind.SERIAL, one)
        is_free = te.Tensor(struck)[(lit(0),)] < 1
        return For(group, lit(0), (have + (GROUP - 1)) // GROUP, LoopKind.SERIAL, If(is_free.scalar, some))

    def _shared(self, p: Int, q: Int) -> te.ScalarValue:
        """Return the area that two boxes both cover, over what either does; 0 where that is nothing."""
        x, b = te.Tensor(self.boxes), self.at[0]
        sides = [
            te.maximum(te.minimum(x[b, p, d + 2], x[b, q, d + 2]) - te.maximum(x[b, p, d], x[b, q, d]), 0.0)
            for d in (0, 1)
        ]
        areas = [(x[b, i, 2] - x[b, i, 0]) * (x[b, i, 3] - x[b, i, 1]) for i in (p, q)]
        common = sides[0] * sides[1]
        union = areas[0] + areas[1] - common
        return te.select(union > 0.0, common / union, te.const(0, F32))


def _samples() -> list[Sample]:
    boxes = noise((2, 40, 4), F32, low=0, high=8, seed="boxes")
    boxes[..., 2:] += boxes[..., :2]
    scores = noise((2, 3, 40), F32, seed="scores")
    scores[:, :, ::5] = 0.25  # equal ones
    half, least = np.asarray(0.5, np.float32), np.asarray(0.1, np.float32)
    odd = scores.copy()
    odd[:, :, ::7] = np.nan
    given = (boxes, scores, half, least)
    dims = (("b", "n", 4), ("b", "c", "n"), (), ())
    return [
        Sample("some", SuppressionAttrs(), (*given, 5), (*dims, 5), exact=True),
        Sample("many", SuppressionAttrs(), (*given, 40), (*dims, 40), exact=True),
        Sample("any", SuppressionAttrs(filters=False), (*given, 7), (*dims, "k"), exact=True),
        Sample("no numbers", SuppressionAttrs(filters=False), (boxes, odd, half, least, 40), exact=True),
        Sample("none", SuppressionAttrs(), (*given, 0), (*dims, 0), exact=True),
        Sample("far", SuppressionAttrs(), (boxes * 100, scores, half, least, 40), exact=True),
        Sample("no boxes", SuppressionAttrs(), (boxes[:, :0], scores[..., :0], half, least, 3), exact=True),
    ]


DEFINITIONS: tuple[OpDef, ...] = (
    define(
        "non_max_suppression",
        SuppressionAttrs,
        _rule,
        5,
        FusionPattern.OPAQUE,
        "the places of boxes `[b, n, 4]` (two low sides, two high ones) by scores `[b, c, n]`, the best "
        "first, of which no two overlap by more than the third operand and all have scores above the fourth; "
        "as many as the int, and which of them there are: a tuple",
        reference=_reference,
        loops=_loops,
        samples=_samples,
    ),
)
