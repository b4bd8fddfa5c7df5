"""The first k elements of a line, of any number: a heap of the best so far, with the worst at its root.

The first k elements become a heap. Each other one is compared with the root, which is the worst that is
kept, and takes its place if it is better: it moves down to where both below it are better, which are log2(k)
steps. In the end the root is taken away and put behind what is left, again and again. With n elements that
is O(n + m log k), of which m enter; in random order m is about k log(n / k). Of equal elements the earlier
ones are better. Source: Williams, Algorithm 232 (1964).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from inlay.arith.dtype import BOOL, I64
from inlay.arith.expr import Int, fresh, lit, maximum, to_int
from inlay.loop import te
from inlay.loop.buffer import Buffer, Scope
from inlay.loop.scalar import Load, Scalar
from inlay.loop.stmt import Alloc, For, If, Let, LoopKind, Seq, Stmt, Store
from inlay.ops._build import widened

DEEPEST = 40
"""Levels of a heap whose size is not known."""

At = Callable[[Int], tuple[Int, ...]]
Before = Callable[[te.ScalarValue, te.ScalarValue], te.ScalarValue]


@dataclass(frozen=True, slots=True)
class TopHeap:
    """A line, and where its first k elements go.

    Attributes:
        x: what is searched.
        values: of the elements that are kept.
        places: where these were.
        at: the index of an element of the line in `x`, and in the others.
        n: elements of the line.
        k: elements that are kept, of n at most.
        before: whether one value strictly precedes another, in the widened format.
    """

    x: Buffer
    values: Buffer
    places: Buffer
    at: At
    n: Int
    k: Int
    before: Before

    def search(self) -> Stmt:
        """Write the first k elements of the line, in order."""
        return _Search(
            self,
            Buffer("moving", (lit(1),), self.x.dtype, scope=Scope.REGISTER),
            Buffer("origin", (lit(1),), I64, scope=Scope.REGISTER),
            Buffer("hole", (lit(1),), I64, scope=Scope.REGISTER),
        ).all()


@dataclass(frozen=True, slots=True)
class _Search:
    """A heap and the element that moves down in it.

    Attributes:
        heap: the line.
        moving: its value.
        origin: where it was.
        hole: where it would be now; negative, less one, once it has found its place.
    """

    heap: TopHeap
    moving: Buffer
    origin: Buffer
    hole: Buffer

    def all(self) -> Stmt:
        """Fill the heap, look at the rest of the line, and sort what is kept."""
        h, e, t = self.heap, fresh("e"), fresh("t")
        k, half = h.k, h.k // 2
        first = Seq((self._put(to_int(e), Load(h.x, h.at(to_int(e))), te.index(e).scalar),))
        parent = half - 1 - to_int(t)
        heapify = self._down(parent, k, self._value(parent), self._place(parent))
        new, rest = fresh("e"), te.Tensor(h.x)
        element = rest[h.at(to_int(new))]
        root = te.Tensor(h.values)[h.at(lit(0))]
        better = h.before(self._wide(element), self._wide(root))
        enters = te.select(te.index(k) > 0, better, te.const(False, BOOL))
        scan = If(enters.scalar, self._down(lit(0), k, element.scalar, te.index(new).scalar))
        out = fresh("t")
        last = k - 1 - to_int(out)
        back = self._put(last, self._value(lit(0)), self._place(lit(0)))
        sort = self._down(lit(0), last, self._value(last), self._place(last), (back,))
        body: Stmt = Seq(
            (
                For(e, lit(0), k, LoopKind.SERIAL, first),
                For(t, lit(0), half, LoopKind.SERIAL, heapify),
                For(new, k, h.n - k, LoopKind.SERIAL, scan),
                For(out, lit(0), maximum(k - 1, 0), LoopKind.SERIAL, sort),
            )
        )
        for buffer in (self.moving, self.origin, self.hole):
            body = Alloc(buffer, body)
        return body

    def _down(self, start: Int, size: Int, value: Scalar, place: Scalar, then: Sequence[Stmt] = ()) -> Stmt:
        """Move an element down from a place in a heap of that size; `then` is done once it is taken."""
        known, end = size.value if size.value is not None else self.heap.k.value, fresh("at")
        levels = DEEPEST if known is None else max(known, 1).bit_length()
        taken = (
            Store(self.moving, (lit(0),), value),
            Store(self.origin, (lit(0),), place),
            Store(self.hole, (lit(0),), te.index(start).scalar),
        )
        hole = te.Tensor(self.hole)[(lit(0),)]
        landed = te.select(hole < 0, -hole - 1, hole)
        put = self._put(to_int(end), Load(self.moving, (lit(0),)), Load(self.origin, (lit(0),)))
        level = For(fresh("level"), lit(0), lit(levels), LoopKind.SERIAL, self._step(size))
        return Seq((*taken, *then, level, Let(end, landed.scalar, put)))

    def _step(self, size: Int) -> Stmt:
        """Move the element one level down, if what is below it is worse; else it has its place."""
        here, below = fresh("here"), fresh("below")
        left, right = to_int(here) * 2 + 1, to_int(here) * 2 + 2
        no = te.const(False, BOOL)
        is_right = te.select(te.index(right) < te.index(size), self._is_worse(right, left), no)
        moved = Seq(
            (
                self._put(to_int(here), self._value(to_int(below)), self._place(to_int(below))),
                Store(self.hole, (lit(0),), te.index(below).scalar),
            )
        )
        stays = Store(self.hole, (lit(0),), (-te.index(here) - 1).scalar)
        child = te.Tensor(self.heap.values)[self.heap.at(to_int(below))]
        place = te.Tensor(self.heap.places)[self.heap.at(to_int(below))]
        own = te.Tensor(self.moving)[(lit(0),)], te.Tensor(self.origin)[(lit(0),)]
        goes_on = If(self._after((child, place), own).scalar, moved, stays)
        picked = te.select(is_right, te.index(right), te.index(left))
        inside = (te.index(here) >= 0) & (te.index(left) < te.index(size))
        return Let(here, Load(self.hole, (lit(0),)), If(inside.scalar, Let(below, picked.scalar, goes_on)))

    def _is_worse(self, i: Int, j: Int) -> te.ScalarValue:
        values, places, at = te.Tensor(self.heap.values), te.Tensor(self.heap.places), self.heap.at
        return self._after((values[at(i)], places[at(i)]), (values[at(j)], places[at(j)]))

    def _after(
        self, one: tuple[te.ScalarValue, te.ScalarValue], other: tuple[te.ScalarValue, te.ScalarValue]
    ) -> te.ScalarValue:
        """Whether one element, a value and its place, comes behind another."""
        (a, p), (b, q) = one, other
        a, b = self._wide(a), self._wide(b)
        return self.heap.before(b, a) | (~self.heap.before(a, b) & (q < p))

    def _wide(self, value: te.ScalarValue) -> te.ScalarValue:
        return value.cast(widened(self.heap.x.dtype))

    def _value(self, i: Int) -> Scalar:
        return Load(self.heap.values, self.heap.at(i))

    def _place(self, i: Int) -> Scalar:
        return Load(self.heap.places, self.heap.at(i))

    def _put(self, i: Int, value: Scalar, place: Scalar) -> Stmt:
        at = self.heap.at(i)
        return Seq((Store(self.heap.values, at, value), Store(self.heap.places, at, place)))
