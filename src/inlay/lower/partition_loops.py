"""Separate the iterations in which a condition certainly holds from the others.

    for o in 0..(n + 15) / 16 {                  for o in 0..n / 16 {
      for i in 0..16 vector {                      for i in 0..16 vector { y[16*o + i] = ... } }
        if [16*o + i] < [n] { y[...] = ... } } }  for o in n / 16..(n + 15) / 16 {
                                                   for i in 0..16 vector { if ... } }

so that only the last tile of a split pays for its predicate. The place of the cut is over dims, and
over those outer loops that the bounds of the loop itself mention (a block of tiles, of which the last
is short): other loops inside a tile keep their conditions, which are gone from the full tiles in any
case. A parallel
loop stays one loop, with a branch inside: two loops would be two phases. Where that branch is taken in the
last iteration alone, loops in it are cut as in that iteration. Conditions on several loops
are separated one loop at a time, from the inside out; unrolled and vector loops are left alone, their
conditions become masks.
"""

from __future__ import annotations

from collections.abc import Iterator

from inlay.arith.dtype import BOOL
from inlay.arith.expr import Int, Sym, floordiv, fresh, from_atom, lit, maximum, minimum, substitute, symbols
from inlay.loop.ranges import Bounds
from inlay.loop.scalar import Binary, BinaryOp, Index, Scalar
from inlay.loop.stmt import For, If, LoopKind, Stmt
from inlay.loop.walk import Rewrite, child_stmts, fresh_copy, map_children, seq


def partition_loops(s: Stmt) -> Stmt:
    """Return an equal statement.

    Requires: no `Block`.
    """
    return _Partition().stmt(s, Bounds())


class _Partition:
    def __init__(self) -> None:
        self._copies = 0
        self._only: dict[Sym, Int] = {}  # of parallel loops around, the one iteration that comes here

    def stmt(self, s: Stmt, bounds: Bounds) -> Stmt:
        if not isinstance(s, For):
            return map_children(s, lambda child: self.stmt(child, bounds))
        inner = bounds.inside(s.var, s.lo, s.extent)
        body = self.stmt(s.body, inner)
        loop = s if body is s.body else For(s.var, s.lo, s.extent, s.kind, body, s.note)
        if s.kind in (LoopKind.UNROLL, LoopKind.VECTOR, LoopKind.MATRIX):
            return loop
        at = _threshold(loop)
        if at is None:
            return loop
        place = substitute(at, self._only)
        if not {x for x in symbols(place) if x in bounds} <= set(symbols(s.extent)):
            return loop
        return self._partitioned(loop, at, place, bounds)

    def _partitioned(self, s: For, threshold: Int, place: Int, bounds: Bounds) -> Stmt:
        """Cut a loop at a place, which is that of a threshold in the iteration that comes here."""
        at, end = place, s.lo + s.extent
        if not bounds.at_least(at - s.lo, 0):
            at = maximum(at, s.lo)
        if not bounds.at_least(end - at, 0):
            at = minimum(at, end)
        if at == end or at == s.lo:
            return s
        full, rest = _assume(s.body, s.var, threshold), self._copy(s.body)
        # Which iteration it is, where only one can be left: conditions on it become those of numbers.
        is_last = place.value is not None and bounds.at_least(place + 1 - end, 0)
        if s.kind is LoopKind.PARALLEL:
            here = Binary(BinaryOp.LT, Index(from_atom(s.var)), Index(at), BOOL)
            if is_last:
                rest = self._in_last(s, rest, place, bounds)
            return For(s.var, s.lo, s.extent, s.kind, If(here, full, rest), s.note)
        self._copies += 1
        var = fresh(f"{s.var.name}_t{self._copies}")
        rest = Rewrite({s.var: place if is_last else from_atom(var)}).stmt(rest)
        return seq(
            For(s.var, s.lo, at - s.lo, s.kind, full, s.note), For(var, at, end - at, s.kind, rest, s.note)
        )

    def _in_last(self, loop: For, rest: Stmt, last: Int, bounds: Bounds) -> Stmt:
        """Partition what the last iteration of a parallel loop does, and no other."""
        self._only[loop.var] = last
        rest = self.stmt(rest, bounds.inside(loop.var, loop.lo, loop.extent))
        del self._only[loop.var]
        return rest

    def _copy(self, s: Stmt) -> Stmt:
        self._copies += 1
        return fresh_copy(s, lambda name: f"{name}_t{self._copies}")


def _threshold(loop: For) -> Int | None:
    """Return the first iteration from which some condition may fail, for the first such condition."""
    for condition, inner in _conditions(loop.body, {}):
        at = _holds_before(condition, loop.var, inner)
        if at is not None:
            return at
    return None


def _conditions(
    s: Stmt, inner: dict[Sym, tuple[Int, Int]]
) -> Iterator[tuple[Scalar, dict[Sym, tuple[Int, Int]]]]:
    """Yield the conditions of branches without alternative, and the loops around them."""
    if isinstance(s, For):
        inner = {**inner, s.var: (s.lo, s.extent)}
    if isinstance(s, If) and s.otherwise is None:
        for condition in _conjuncts(s.condition):
            yield condition, inner
    for child in child_stmts(s):
        yield from _conditions(child, inner)


def _conjuncts(x: Scalar) -> Iterator[Scalar]:
    if isinstance(x, Binary) and x.op is BinaryOp.AND:
        yield from _conjuncts(x.lhs)
        yield from _conjuncts(x.rhs)
    else:
        yield x


def _holds_before(x: Scalar, var: Sym, inner: dict[Sym, tuple[Int, Int]]) -> Int | None:
    """Solve `a < b` for all inner iterations: `c*var + rest < 0` for the greatest `rest`."""
    if not isinstance(x, Binary) or x.op is not BinaryOp.LT:
        return None
    if not isinstance(x.lhs, Index) or not isinstance(x.rhs, Index):
        return None
    e = x.lhs.value - x.rhs.value
    for v in reversed(inner):
        c = _coefficient(e, v)
        if c is None:
            return None
        lo, extent = inner[v]
        e = e + ((lo + extent - 1 if c > 0 else lo) - from_atom(v)) * c
    c = _coefficient(e, var)
    if c is None or c <= 0:
        return None
    rest = e - from_atom(var) * c
    return floordiv(lit(c - 1) - rest, lit(c))


def _coefficient(e: Int, v: Sym) -> int | None:
    """Return the constant factor of a variable, None if it occurs in another way."""
    found = 0
    for monomial, c in e.terms:
        if monomial == (v,):
            found = c
        elif any(v in symbols(from_atom(a)) for a in monomial):
            return None
    return found


def _assume(s: Stmt, var: Sym, at: Int) -> Stmt:
    """Drop the branches whose conditions hold while `var < at`."""

    def walk(x: Stmt, inner: dict[Sym, tuple[Int, Int]]) -> Stmt:
        if isinstance(x, For):
            inner = {**inner, x.var: (x.lo, x.extent)}
        if isinstance(x, If) and x.otherwise is None:
            left = [c for c in _conjuncts(x.condition) if _holds_before(c, var, inner) != at]
            body = walk(x.then, inner)
            condition: Scalar | None = None
            for c in left:
                condition = c if condition is None else Binary(BinaryOp.AND, condition, c, BOOL)
            return body if condition is None else If(condition, body)
        return map_children(x, lambda child: walk(child, inner))

    return walk(s, {})
