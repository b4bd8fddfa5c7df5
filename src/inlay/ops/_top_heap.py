"""The first k elements of a line, of any number: a heap of the best so far, with the worst at its root.

The first k elements become a heap. Each other one is compared with the root, which is the worst that is
kept, and takes its place if it is better: it moves down to where both below it are better, which are log2(k)
steps. In the end the root is taken away and put behind what is left, again and again. With n elements that
is O(n + m log k), of which m enter; in random order m is about k log(n / k).

Of equal elements the earlier ones are better. Where a value has at most 32 bits, value and place are one
number, the **rank**, and a comparison is one of integers:

    rank = key(value) 2^32 + (2^32 - 1 - place)

The key of a float is its bits, those but the sign inverted where it is negative, of both zeros 0, and of NaN
more than all; of the least elements the keys are inverted.
"""

from __future__ import annotations

from collections.abc import Callable

from inlay.arith.dtype import BOOL, F32, I32, I64
from inlay.arith.expr import Int, fresh, lit, maximum, minimum, to_int
from inlay.loop import te
from inlay.loop.buffer import Buffer, Scope
from inlay.loop.scalar import IntrinsicOp
from inlay.loop.stmt import Alloc, For, If, Let, LoopKind, Seq, Stmt, Store
from inlay.ops._build import widened
from inlay.ops._entering import DENSE, Before, visit_entering
from inlay.ops._heap import At, Element, Heap

_PLACES = 1 << 32
"""Places that a rank has room for."""
_RANKED_BYTES = 4
"""Of a value that a rank has room for."""


def first_of_line(
    x: Buffer, values: Buffer, places: Buffer, at: At, n: Int, k: Int, before: Before, *, largest: bool
) -> Stmt:
    """Write the first k elements of a line, in order.

    Args:
        x: what is searched.
        values: of the elements that are kept.
        places: where these were.
        at: the index of an element of the line in `x`, and in the others.
        n: elements of the line.
        k: elements that are kept, of n at most.
        before: whether one value strictly precedes another, in the widened format.
        largest: whether the greatest are first.
    """

    def by_parts() -> Stmt:
        def is_worse(one: Element, other: Element) -> te.ScalarValue:
            (a, p), (b, q) = one, other
            a, b = a.cast(widened(x.dtype)), b.cast(widened(x.dtype))
            return before(b, a) | (~before(a, b) & (q < p))

        heap = Heap((values, places), at, is_worse)
        return _searched(heap, x, n, k, before, lambda e: (te.Tensor(x)[at(e)], te.index(e)), lambda p: p[1])

    def by_ranks() -> Stmt:
        heap = Heap((places,), at, lambda one, other: one[0] < other[0])

        def ranked(e: Int) -> Element:
            key = _key(te.Tensor(x)[at(e)])
            return ((key if largest else -1 - key) * _PLACES + (_PLACES - 1 - te.index(e)),)

        found = _searched(heap, x, n, k, before, ranked, lambda rank: _place_of(rank[0]))
        t, p = fresh("t"), fresh("p")
        value, here = te.Tensor(x)[at(to_int(p))], at(to_int(t))
        stores = Seq((Store(values, here, value.scalar), Store(places, here, te.index(p).scalar)))
        unpack = Let(p, _place_of(te.Tensor(places)[here]).scalar, stores)
        return Seq((found, For(t, lit(0), k, LoopKind.SERIAL, unpack)))

    if x.dtype.itemsize > _RANKED_BYTES:
        return by_parts()
    if n.value is not None:
        return by_ranks() if n.value <= _PLACES else by_parts()
    return If((te.index(n) <= _PLACES).scalar, by_ranks(), by_parts())


def _key(value: te.ScalarValue) -> te.ScalarValue:
    """Return an i64 of 32 bits that is in order as the values are."""
    if not value.dtype.is_float:
        wide = value.cast(I64)
        return wide if value.dtype.is_signed else wide - (1 << 31)
    wide = value.cast(F32)
    bits = te.intrinsic(IntrinsicOp.BITCAST, te.select(wide.equals(0.0), 0.0, wide), dtype=I32)
    ordered = te.select(bits < 0, bits ^ te.const((1 << 31) - 1, I32), bits)
    return te.select(wide.differs(wide), te.const((1 << 31) - 1, I32), ordered).cast(I64)


def _place_of(rank: te.ScalarValue) -> te.ScalarValue:
    return _PLACES - 1 - (rank & te.const(_PLACES - 1, I64))


def _searched(
    heap: Heap,
    x: Buffer,
    n: Int,
    k: Int,
    before: Before,
    element: Callable[[Int], Element],
    place: Callable[[Element], te.ScalarValue],
) -> Stmt:
    """Search a line with a heap of the first k elements, and leave these in order.

    Args:
        heap: where they are; the worst is at its root.
        x: what is searched.
        n: elements of the line.
        k: elements that are kept.
        before: whether one value strictly precedes another.
        element: gives an element of the line as the heap has it.
        place: gives the place of one.
    """
    wide = widened(x.dtype)
    e, out, p = fresh("e"), fresh("t"), fresh("p")
    worst = Buffer("worst", (lit(1),), x.dtype, Scope.REGISTER)
    bound = te.Tensor(worst)[(lit(0),)]
    value = te.Tensor(x)[heap.at(to_int(p))]
    know_worst = Let(p, place(heap.element(lit(0))).scalar, Store(worst, (lit(0),), value.scalar))
    is_some = (te.index(k) > 0).scalar

    def replace_root(new: Int) -> Stmt:
        better = before(te.Tensor(x)[heap.at(new)].cast(wide), bound.cast(wide))
        enters = te.select(te.index(k) > 0, better, te.const(False, BOOL))
        return If(enters.scalar, Seq((heap.down(lit(0), k, element(new)), know_worst)))

    # There is no root where none is kept.
    bounded = k * DENSE if k.value else maximum(k * DENSE, n * (1 - minimum(k, lit(1))))
    last = k - 1 - to_int(out)
    sort = heap.down(lit(0), last, heap.element(last), (heap.put(last, heap.element(lit(0))),))
    steps = (
        For(e, lit(0), k, LoopKind.SERIAL, heap.put(to_int(e), element(to_int(e)))),
        heap.build(k),
        If(is_some, know_worst),
        visit_entering(x, heap.at, (k, bounded, n), bound, before, replace_root),
        For(out, lit(0), maximum(k - 1, 0), LoopKind.SERIAL, sort),
    )
    return heap.around(Alloc(worst, Seq(steps)))
