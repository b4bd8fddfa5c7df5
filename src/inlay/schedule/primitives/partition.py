"""Divide the range of a loop by where a predicate holds for all iterations inside it."""

from __future__ import annotations

import functools

from inlay.arith.expr import Int, coefficient, from_atom, maximum, minimum, to_int
from inlay.loop.inits import conjunction, conjuncts
from inlay.loop.scalar import Scalar
from inlay.loop.stmt import Block, For, Stmt
from inlay.loop.walk import Rewrite, blocks_of, fresh_copy, seq
from inlay.schedule.primitives.clip import bound_by, distance_of
from inlay.schedule.primitives.split import require_serial
from inlay.schedule.state import Schedule, chain, illegal, primitive


@primitive
def partition(s: Schedule, block: str, loop: str) -> None:
    """Run apart the iterations for which conditions hold whatever the loops inside are at.

    Before:

        for i_init in 0..4 { block z(v: spatial 4 = i_init) { y[v] = 0.0:f32 } }
        for k in 0..9 { for i in 0..4 {
          block b(v: spatial 4 = i, r: reduce 9 = k) where [6] <= [i + k] { y[v] = y[v] + x[v, r] } } }

    After `partition(s, "b", "k")`:

        for i_init in 0..4 { block z(v: spatial 4 = i_init) { y[v] = 0.0:f32 } }
        for k_1 in 3..6 { for i_1 in 0..4 {
          block b_1(v: spatial 4 = i_1, r: reduce 9 = k_1) where [6] <= [i_1 + k_1] {
            y[v] = y[v] + x[v, r] } } }
        for k in 6..9 { for i in 0..4 {
          block b(v: spatial 4 = i, r: reduce 9 = k) { y[v] = y[v] + x[v, r] } } }

    Conditions from above have a third loop behind. So rows of a tile, of which each has a test, are tested
    only in the iterations that they differ in. What is not linear in the loop, or mentions a loop inside
    it of unknown range, stays a condition of all. Other systems: index-set splitting, loop partitioning.

    Raises:
        Illegal: `schedule.kind`, `schedule.class`.
    """
    place, inner = s.loop_place(loop), s.block_place(block)
    old, b = s.loop(loop), s.block(block)
    require_serial(old)
    if [x.name for x in blocks_of(old.body)] != [block]:
        raise illegal("class", f"found other blocks than {block} in {loop}")
    assert inner.parent is not None, "a loop is around the block"
    inside = chain(place, inner.parent)[1:]
    some = every = (old.lo, old.lo + old.extent)
    kept: list[Scalar] = []
    for condition in conjuncts(b.predicate):
        extremes = _extremes(condition, inside)
        bounds = [None if e is None else bound_by(e, old.var) for e in extremes]
        if bounds[0] is None or bounds[1] is None:
            kept.append(condition)
            continue
        some, every = _within(some, bounds[0]), _within(every, bounds[1])
    if every == (old.lo, old.lo + old.extent):
        raise illegal("class", f"found no condition of {block} on {loop}")
    first = minimum(maximum(every[0], some[0]), some[1])
    end = maximum(minimum(every[1], some[1]), first)
    predicate = functools.reduce(conjunction, kept) if kept else None
    free = For(old.var, old.lo, old.extent, old.kind, _tested(old.body, predicate), old.note)
    parts = [_part(free, first, end)]
    if every[0] != some[0]:
        parts.insert(0, _part(_copy(s, old), some[0], first))
    if every[1] != some[1]:
        parts.append(_part(_copy(s, old), end, some[1]))
    s.replace(place, seq(*parts))


def _extremes(condition: Scalar, inside: list[For]) -> tuple[Int | None, Int | None]:
    """Return the largest and the least distance that a condition keeps, over the loops inside.

    None for what is no comparison, or not linear in a loop, or mentions one of unknown range.
    """
    distance = distance_of(condition)
    if distance is None:
        return None, None
    most = least = distance
    for x in inside:
        factor, first, count = coefficient(distance, x.var), x.lo.value, x.extent.value
        if factor == 0:
            continue
        if factor is None or factor.value is None or first is None or not count:
            return None, None
        ends = [factor.value * first, factor.value * (first + count - 1)]
        most = most - from_atom(x.var) * factor + max(ends)
        least = least - from_atom(x.var) * factor + min(ends)
    return most, least


def _within(bounds: tuple[Int, Int], bound: tuple[bool, Int]) -> tuple[Int, Int]:
    is_first, value = bound
    first, end = bounds
    return (maximum(first, value), end) if is_first else (first, minimum(end, value))


def _tested(s: Stmt, predicate: Scalar | None) -> Stmt:
    """Return a nest of loops around one block, with another predicate of the block."""
    if isinstance(s, For):
        return For(s.var, s.lo, s.extent, s.kind, _tested(s.body, predicate), s.note)
    assert isinstance(s, Block), "nothing else is between the loops"
    return Block(s.name, s.iters, s.bindings, s.body, s.init, predicate)


def _copy(s: Schedule, loop: For) -> For:
    """Return a loop with names of its own, and of the loops and blocks inside."""
    var = s.fresh_loop(loop.var.name)
    body = fresh_copy(loop.body, s.fresh_name)
    return For(var, loop.lo, loop.extent, loop.kind, Rewrite({loop.var: to_int(var)}).stmt(body), loop.note)


def _part(loop: For, first: Int, end: Int) -> For:
    return For(loop.var, first, end - first, loop.kind, loop.body, loop.note)
