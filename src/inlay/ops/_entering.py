"""The elements of a line that precede a bound, found by vectors.

Few elements of a long line are among the first of it. So a few neighbors are compared with the bound at once,
without a branch, and only where one of them precedes it they are looked at one by one, in order. The bound
moves while they are: who looks at an element compares it again.
"""

from __future__ import annotations

from collections.abc import Callable

from inlay.arith.dtype import I32
from inlay.arith.expr import Int, ceildiv, fresh, lit, minimum, to_int
from inlay.loop import te
from inlay.loop.buffer import Buffer, Scope
from inlay.loop.stmt import Alloc, For, If, LoopKind, Seq, Stmt, Store
from inlay.ops._build import widened
from inlay.ops._heap import At

LANES = 16
"""Elements that are compared at once, by one vector or a few."""
SHORT = 64
"""Elements of a line up to which there is nothing to gain."""
DENSE = 12
"""Of so many times the elements that are kept, one of a vector usually enters."""

Before = Callable[[te.ScalarValue, te.ScalarValue], te.ScalarValue]
"""Whether one value strictly precedes another, in the widened format."""


def visit_entering(
    x: Buffer,
    at: At,
    line: tuple[Int, Int, Int],
    bound: te.ScalarValue,
    before: Before,
    visit: Callable[[Int], Stmt],
) -> Stmt:
    """Visit the elements of a line that precede a bound, in order, and some that do not.

    Args:
        x: what has the line.
        at: the index of an element of the line.
        line: where to begin, from which element on to compare them at once, and the end.
        bound: as it is when an element is looked at; there is one from `DENSE` times the kept elements on.
        before: the order.
        visit: gives what is done with an element.
    """
    begin, bounded, end = line
    e, block, lane = fresh("e"), fresh("block"), fresh("lane")

    def one_by_one(first: Int, last: Int) -> Stmt:
        return For(e, first, last - first, LoopKind.SERIAL, visit(to_int(e)))

    is_side_by_side = at(to_int(e))[-1] == to_int(e)
    count = (end - begin).value
    if not is_side_by_side or (count is not None and count <= SHORT):
        return one_by_one(begin, end)
    first = begin + to_int(block) * LANES
    flag = Buffer("any_enters", (lit(1),), I32, Scope.REGISTER)

    def tell(answer: te.ScalarValue) -> Stmt:
        return Store(flag, (lit(0),), answer.scalar)

    wide, yes, no = widened(x.dtype), te.const(1, I32), te.const(0, I32)
    precedes = before(te.Tensor(x)[at(first + to_int(lane))].cast(wide), bound.cast(wide))
    so_far = te.Tensor(flag)[(lit(0),)]
    found = For(lane, lit(0), lit(LANES), LoopKind.SERIAL, tell(so_far | te.select(precedes, yes, no)))
    can_tell = (te.index(first + LANES) <= te.index(end)) & (te.index(bounded) <= te.index(first))
    body = Seq(
        (
            tell(yes),
            If(can_tell.scalar, Seq((tell(no), found))),
            If((so_far > 0).scalar, one_by_one(first, minimum(first + LANES, end))),
        )
    )
    blocks = For(block, lit(0), ceildiv(end - begin, lit(LANES)), LoopKind.SERIAL, body)
    return Alloc(flag, blocks)
