"""A binary heap: the element that is above all at the root. An element is one number, or has several parts.

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
from inlay.loop.scalar import Load
from inlay.loop.stmt import Alloc, For, If, Let, LoopKind, Seq, Stmt, Store, While

At = Callable[[Int], tuple[Int, ...]]
Element = tuple[te.ScalarValue, ...]
"""The parts of an element, such as a value and its place."""
Above = Callable[[Element, Element], te.ScalarValue]


def _register(name: str, dtype: DType) -> Buffer:
    return Buffer(name, (lit(1),), dtype, scope=Scope.REGISTER)


@dataclass(frozen=True, slots=True)
class Heap:
    """Where a heap is, and its order.

    Attributes:
        parts: of the elements, each in a buffer.
        at: the index of an element of the heap in all of them.
        above: whether one element belongs above another, strictly.
        moving: the parts of the element that moves down.
        hole: where it would be now; once that is its position, one less than its negative.
    """

    parts: tuple[Buffer, ...]
    at: At
    above: Above
    moving: tuple[Buffer, ...] = field(init=False)
    hole: Buffer = field(init=False)

    def __post_init__(self) -> None:
        moving = tuple([_register(f"moving_{b.name}", b.dtype) for b in self.parts])
        object.__setattr__(self, "moving", moving)
        object.__setattr__(self, "hole", _register("hole", I64))

    def around(self, body: Stmt) -> Stmt:
        """Return statements with the registers that moving needs."""
        for buffer in (*self.moving, self.hole):
            body = Alloc(buffer, body)
        return body

    def build(self, size: Int) -> Stmt:
        """Make a heap of that many first elements, which are in any order."""
        t = fresh("t")
        parent = size // 2 - 1 - to_int(t)
        move = self.down(parent, size, self.element(parent))
        return For(t, lit(0), size // 2, LoopKind.SERIAL, move)

    def down(self, start: Int, size: Int, element: Element, then: Sequence[Stmt] = ()) -> Stmt:
        """Move an element down from a position in a heap of that size; `then` is done once it is taken."""
        end = fresh("at")
        taken = [Store(b, (lit(0),), x.scalar) for b, x in zip(self.moving, element, strict=True)]
        taken.append(Store(self.hole, (lit(0),), te.index(start).scalar))
        hole = te.Tensor(self.hole)[(lit(0),)]
        put = self.put(to_int(end), self._moved())
        moves = While((hole >= 0).scalar, self._step(size))
        return Seq((*taken, *then, moves, Let(end, (-hole - 1).scalar, put)))

    def _step(self, size: Int) -> Stmt:
        """Move the element one level down, if one below belongs above it; else it has its position."""
        here, below = fresh("here"), fresh("below")
        left, right = to_int(here) * 2 + 1, to_int(here) * 2 + 2
        no = te.const(False, BOOL)
        right_first = self.above(self.element(right), self.element(left))
        is_right = te.select(te.index(right) < te.index(size), right_first, no)
        moved = Seq(
            (
                self.put(to_int(here), self.element(to_int(below))),
                Store(self.hole, (lit(0),), te.index(below).scalar),
            )
        )
        stays = Store(self.hole, (lit(0),), (-te.index(here) - 1).scalar)
        goes_on = If(self.above(self.element(to_int(below)), self._moved()).scalar, moved, stays)
        picked = te.select(is_right, te.index(right), te.index(left))
        has_below = te.index(left) < te.index(size)
        tried = If(has_below.scalar, Let(below, picked.scalar, goes_on), stays)
        return Let(here, Load(self.hole, (lit(0),)), tried)

    def _moved(self) -> Element:
        return tuple([te.Tensor(b)[(lit(0),)] for b in self.moving])

    def element(self, i: Int) -> Element:
        """Return the element at a position."""
        return tuple([te.Tensor(b)[self.at(i)] for b in self.parts])

    def put(self, i: Int, element: Element) -> Stmt:
        """Write an element at a position."""
        stores = [Store(b, self.at(i), x.scalar) for b, x in zip(self.parts, element, strict=True)]
        return Seq(tuple(stores))
