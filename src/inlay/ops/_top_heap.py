"""The first k elements of a line, of any number: a heap of the best so far, with the worst at its root.

The first k elements become a heap. Each other one is compared with the root, which is the worst that is
kept, and takes its place if it is better: it moves down to where both below it are better, which are log2(k)
steps. In the end the root is taken away and put behind what is left, again and again. With n elements that
is O(n + m log k), of which m enter; in random order m is about k log(n / k). Of equal elements the earlier
ones are better.
"""

from __future__ import annotations

from collections.abc import Callable

from inlay.arith.dtype import BOOL
from inlay.arith.expr import Int, fresh, lit, maximum, to_int
from inlay.loop import te
from inlay.loop.buffer import Buffer
from inlay.loop.scalar import Load
from inlay.loop.stmt import For, If, LoopKind, Seq, Stmt
from inlay.ops._build import widened
from inlay.ops._heap import At, Element, Heap

Before = Callable[[te.ScalarValue, te.ScalarValue], te.ScalarValue]


def first_of_line(x: Buffer, values: Buffer, places: Buffer, at: At, n: Int, k: Int, before: Before) -> Stmt:
    """Write the first k elements of a line, in order.

    Args:
        x: what is searched.
        values: of the elements that are kept.
        places: where these were.
        at: the index of an element of the line in `x`, and in the others.
        n: elements of the line.
        k: elements that are kept, of n at most.
        before: whether one value strictly precedes another, in the widened format.
    """

    def wide(value: te.ScalarValue) -> te.ScalarValue:
        return value.cast(widened(x.dtype))

    def is_worse(one: Element, other: Element) -> te.ScalarValue:
        (a, p), (b, q) = one, other
        a, b = wide(a), wide(b)
        return before(b, a) | (~before(a, b) & (q < p))

    heap = Heap(values, places, at, is_worse)
    e, new, out = fresh("e"), fresh("e"), fresh("t")
    first = heap.put(to_int(e), Load(x, at(to_int(e))), te.index(e).scalar)
    element, root = te.Tensor(x)[at(to_int(new))], te.Tensor(values)[at(lit(0))]
    better = before(wide(element), wide(root))
    enters = te.select(te.index(k) > 0, better, te.const(False, BOOL))
    scan = If(enters.scalar, heap.down(lit(0), k, element.scalar, te.index(new).scalar))
    last = k - 1 - to_int(out)
    back = heap.put(last, heap.value(lit(0)), heap.place(lit(0)))
    sort = heap.down(lit(0), last, heap.value(last), heap.place(last), (back,))
    return heap.around(
        Seq(
            (
                For(e, lit(0), k, LoopKind.SERIAL, first),
                heap.build(k),
                For(new, k, n - k, LoopKind.SERIAL, scan),
                For(out, lit(0), maximum(k - 1, 0), LoopKind.SERIAL, sort),
            )
        )
    )
