"""A binary heap of the elements of a line: each with its place, the one that is above all at the root.

An element that moves down goes one level further while one of the two below it belongs above it, which is
log2(n) steps; n elements become a heap in O(n). Source: Williams, Algorithm 232 (1964); Floyd, Algorithm 245.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from inlay.arith.dtype import BOOL, I64, DType
from inlay.arith.expr import Int, fresh, lit, to_int
from inlay.loop import te
from inlay.loop.buffer import Buffer, Scope
from inlay.loop.scalar import Load, Scalar
from inlay.loop.stmt import Alloc, For, If, Let, LoopKind, Seq, Stmt, Store, While

At = Callable[[Int], tuple[Int, ...]]
Element = tuple[te.ScalarValue, te.ScalarValue]
"""A value and its place."""
Above = Callable[[Element, Element], te.ScalarValue]


def _register(name: str, dtype: DType) -> Buffer:
    return Buffer(name, (lit(1),), dtype, scope=Scope.REGISTER)


@dataclass(frozen=True, slots=True)
class Heap:
    """Where a heap is, and its order.

    Attributes:
        values: of the elements.
        places: where these are in the line; they differ.
        at: the index of an element of the heap in both.
        above: whether one element belongs above another, strictly.
        moving: the value of the element that moves down.
        origin: its place.
        hole: where it would be now; once that is its position, one less than its negative.
    """

    values: Buffer
    places: Buffer
    at: At
    above: Above
    moving: Buffer = field(init=False)
    origin: Buffer = field(init=False)
    hole: Buffer = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "moving", _register("moving", self.values.dtype))
        object.__setattr__(self, "origin", _register("origin", I64))
        object.__setattr__(self, "hole", _register("hole", I64))

    def around(self, body: Stmt) -> Stmt:
        """Return statements with the registers that moving needs."""
        for buffer in (self.moving, self.origin, self.hole):
            body = Alloc(buffer, body)
        return body

    def build(self, size: Int) -> Stmt:
        """Make a heap of that many first elements, which are in any order."""
        t = fresh("t")
        parent = size // 2 - 1 - to_int(t)
        move = self.down(parent, size, self.value(parent), self.place(parent))
        return For(t, lit(0), size // 2, LoopKind.SERIAL, move)

    def down(self, start: Int, size: Int, value: Scalar, place: Scalar, then: Sequence[Stmt] = ()) -> Stmt:
        """Move an element down from a position in a heap of that size; `then` is done once it is taken."""
        end = fresh("at")
        taken = (
            Store(self.moving, (lit(0),), value),
            Store(self.origin, (lit(0),), place),
            Store(self.hole, (lit(0),), te.index(start).scalar),
        )
        hole = te.Tensor(self.hole)[(lit(0),)]
        put = self.put(to_int(end), Load(self.moving, (lit(0),)), Load(self.origin, (lit(0),)))
        moves = While((hole >= 0).scalar, self._step(size))
        return Seq((*taken, *then, moves, Let(end, (-hole - 1).scalar, put)))

    def _step(self, size: Int) -> Stmt:
        """Move the element one level down, if one below belongs above it; else it has its position."""
        here, below = fresh("here"), fresh("below")
        left, right = to_int(here) * 2 + 1, to_int(here) * 2 + 2
        no = te.const(False, BOOL)
        right_first = self.above(self._element(right), self._element(left))
        is_right = te.select(te.index(right) < te.index(size), right_first, no)
        moved = Seq(
            (
                self.put(to_int(here), self.value(to_int(below)), self.place(to_int(below))),
                Store(self.hole, (lit(0),), te.index(below).scalar),
            )
        )
        stays = Store(self.hole, (lit(0),), (-te.index(here) - 1).scalar)
        own = te.Tensor(self.moving)[(lit(0),)], te.Tensor(self.origin)[(lit(0),)]
        goes_on = If(self.above(self._element(to_int(below)), own).scalar, moved, stays)
        picked = te.select(is_right, te.index(right), te.index(left))
        has_below = te.index(left) < te.index(size)
        tried = If(has_below.scalar, Let(below, picked.scalar, goes_on), stays)
        return Let(here, Load(self.hole, (lit(0),)), tried)

    def _element(self, i: Int) -> Element:
        return te.Tensor(self.values)[self.at(i)], te.Tensor(self.places)[self.at(i)]

    def value(self, i: Int) -> Scalar:
        """Return the value at a position."""
        return Load(self.values, self.at(i))

    def place(self, i: Int) -> Scalar:
        """Return where the element at a position is in the line."""
        return Load(self.places, self.at(i))

    def put(self, i: Int, value: Scalar, place: Scalar) -> Stmt:
        """Write an element at a position."""
        at = self.at(i)
        return Seq((Store(self.values, at, value), Store(self.places, at, place)))
