"""Tighten the range of a loop to where a predicate holds."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from inlay.arith.expr import (
    Int,
    Sym,
    ceildiv,
    coefficient,
    floordiv,
    from_atom,
    lit,
    maximum,
    minimum,
    symbols,
)
from inlay.loop.inits import conjunction, conjuncts, iter_symbols, mentioned
from inlay.loop.scalar import Binary, BinaryOp, Index, Lit, Scalar
from inlay.loop.stmt import Block, For, IterKind, Stmt
from inlay.schedule.primitives.split import require_serial
from inlay.schedule.state import Schedule, chain, illegal, primitive


@primitive
def clip(s: Schedule, block: str, loop: str) -> None:
    """Turn conditions of a predicate on a loop into bounds of the loop.

    Before:

        for i in 0..n { for k in 0..m {
          block b(v: spatial n = i, r: reduce m = k) where [i + k] < [n] {
            init { y[v] = 0.0:f32 } y[v] = y[v] + x[v, r] } } }

    After `clip(s, "b", "k")`:

        for i in 0..n { for k in 0..min(m, n - i) {
          block b(v: spatial n = i, r: reduce m = k) {
            init { y[v] = 0.0:f32 } y[v] = y[v] + x[v, r] } } }

    Conditions that are not linear in the loop, or mention a loop inside it, stay. A condition that
    mentions a loop of the reduction is about single terms, not about the init; so where the block
    does not reduce over the loop, such conditions stay too.

    Raises:
        Illegal: `schedule.kind`, `schedule.not-nested`.
    """
    place, inner = s.loop_place(loop), s.block_place(block)
    old, b = s.loop(loop), s.block(block)
    require_serial(old)
    assert inner.parent is not None, "a loop is around the block"
    below = chain(place, inner.parent)
    reducing = iter_symbols(b, IterKind.REDUCE)
    spatial = old.var in iter_symbols(b, IterKind.SPATIAL)
    if spatial == (old.var in reducing):
        raise illegal("kind", f"found {block} not to walk {loop} in one way")
    hidden = {x.var for x in below[1:]}
    kept: list[Scalar] = []
    lo, hi = old.lo, old.lo + old.extent
    for condition in conjuncts(b.predicate):
        of_terms = spatial and not reducing.isdisjoint(mentioned(condition))
        bound = None if of_terms else bound_of(condition, old.var, hidden)
        if bound is None:
            kept.append(condition)
        elif bound[0]:
            lo = maximum(lo, bound[1])
        else:
            hi = minimum(hi, bound[1])
    predicate = functools.reduce(conjunction, kept) if kept else None
    result: Stmt = Block(b.name, b.iters, b.bindings, b.body, b.init, predicate)
    for x in reversed(below[1:]):
        result = For(x.var, x.lo, x.extent, x.kind, result, x.note)
    s.replace(place, For(old.var, lo, hi - lo, old.kind, result, old.note))


def bound_of(x: Scalar, var: Sym, hidden: set[Sym]) -> tuple[bool, Int] | None:
    """Return whether a condition bounds a variable from below, and the first value or the end.

    None for a condition that is not linear in it, or mentions one of `hidden`.
    """
    distance = distance_of(x)
    if distance is None or any(y in hidden for y in symbols(distance)):
        return None
    return bound_by(distance, var)


def distance_of(x: Scalar) -> Int | None:
    """Return what a comparison requires not to be negative; None for other conditions."""
    if not isinstance(x, Binary) or x.op not in (BinaryOp.LT, BinaryOp.LE):
        return None
    a, b = as_integer(x.lhs), as_integer(x.rhs)
    return None if a is None or b is None else b - a - (1 if x.op is BinaryOp.LT else 0)


def bound_by(distance: Int, var: Sym) -> tuple[bool, Int] | None:
    """Return as `bound_of` what `distance >= 0` says of a variable; None if it is not linear in it."""
    factor = coefficient(distance, var)
    c = None if factor is None else factor.value
    if not c:
        return None
    rest = distance - from_atom(var) * c
    return (True, ceildiv(-rest, lit(c))) if c > 0 else (False, floordiv(rest, lit(-c)) + 1)


def extremes(distance: Int, loops: Sequence[For]) -> tuple[Int, Int] | None:
    """Return the least and the largest that a distance is over the ranges of loops.

    None where it is not linear in one of them, or mentions one of unknown range.
    """
    least = most = distance
    for x in loops:
        factor, first, count = coefficient(distance, x.var), x.lo.value, x.extent.value
        if factor == 0:
            continue
        if factor is None or factor.value is None or first is None or not count:
            return None
        ends = [factor.value * first, factor.value * (first + count - 1)]
        least = least - from_atom(x.var) * factor + min(ends)
        most = most - from_atom(x.var) * factor + max(ends)
    return least, most


def as_integer(x: Scalar) -> Int | None:
    """Return the integer expression that a scalar is, if it is one."""
    if isinstance(x, Index):
        return x.value
    return lit(int(x.value)) if isinstance(x, Lit) and x.dtype.is_integer else None
