"""Divide the range of a loop by where a predicate holds for all iterations inside it."""

from __future__ import annotations

import functools
from dataclasses import replace

from inlay.arith.expr import Int, maximum, minimum
from inlay.loop.inits import conjunction, conjuncts
from inlay.loop.scalar import Scalar
from inlay.loop.stmt import Block, For, Stmt
from inlay.loop.walk import blocks_of, seq
from inlay.schedule.primitives.clip import bound_by, distance_of, extremes
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
        distance = distance_of(condition)
        found = None if distance is None else extremes(distance, inside)
        bounds = [bound_by(e, old.var) for e in found or ()]
        if not bounds or None in bounds:
            kept.append(condition)
            continue
        in_all, in_some = bounds
        some, every = _within(some, in_some), _within(every, in_all)
    if every == (old.lo, old.lo + old.extent):
        raise illegal("class", f"found no condition of {block} on {loop}")
    first = minimum(maximum(every[0], some[0]), some[1])
    end = maximum(minimum(every[1], some[1]), first)
    predicate = functools.reduce(conjunction, kept) if kept else None
    parts = [_part(replace(old, body=_tested(old.body, predicate)), first, end)]
    if every[0] != some[0]:
        parts.insert(0, _part(s.copied_loop(old)[0], some[0], first))
    if every[1] != some[1]:
        parts.append(_part(s.copied_loop(old)[0], end, some[1]))
    s.replace(place, seq(*parts))


def _within(bounds: tuple[Int, Int], bound: tuple[bool, Int] | None) -> tuple[Int, Int]:
    assert bound is not None, "what bounds nothing is kept as it is"
    is_first, value = bound
    first, end = bounds
    return (maximum(first, value), end) if is_first else (first, minimum(end, value))


def _tested(s: Stmt, predicate: Scalar | None) -> Stmt:
    """Return a nest of loops around one block, with another predicate of the block."""
    if isinstance(s, For):
        return replace(s, body=_tested(s.body, predicate))
    assert isinstance(s, Block), "nothing else is between the loops"
    return replace(s, predicate=predicate)


def _part(loop: For, first: Int, end: Int) -> For:
    return replace(loop, lo=first, extent=end - first)
