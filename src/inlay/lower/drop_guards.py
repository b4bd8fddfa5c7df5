"""Compute lanes that nothing reads instead of leaving them out.

The last tile of a split has columns behind the last one. Its sums are in registers, and all that touches
them asks whether the column is there:

    alloc acc: f32[6, 16] @register                 alloc acc: f32[6, 16] @register
    for k in 0..K {                                 for k in 0..K {
      for l in 0..16 vector {                         for l in 0..16 vector {
        if [16*o + l] < [n] {                           acc[0, l] = fma(x[0, k], w[o, k, l], acc[0, l])
          acc[0, l] = fma(x[0, k], w[o, k, l],  ->    } }
                          acc[0, l]) } } }          for l in 0..16 vector {
    for l in 0..16 vector {                           if [16*o + l] < [n] { y[16*o + l] = acc[0, l] } }
      if [16*o + l] < [n] { y[16*o + l] = acc[0, l] } }

So what is in the other lanes is never seen, and what only computes them needs no test where everything it
reads is there, as in panels that are filled with zeros. A mask costs an address that is chosen for each
element that lanes share, and a choice of lanes for each multiply-add on processors without masks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from inlay.arith.dtype import BOOL
from inlay.arith.expr import Int, Sym, fresh, lit, symbols, to_int
from inlay.loop.buffer import Buffer, Scope
from inlay.loop.ranges import Bounds
from inlay.loop.scalar import DIVISIONS, Binary, BinaryOp, Index, Load, Scalar
from inlay.loop.stmt import Alloc, For, If, LoopKind, Seq, Stmt, Store
from inlay.loop.walk import (
    Rewrite,
    child_stmts,
    loads_of,
    map_children,
    own_scalars,
    scalars_below,
    stmts_below,
    stores_of,
)

_LANE = fresh("lane")
"""Stands for the index along the last axis of the buffer, whatever loop it is of."""


def drop_guards(s: Stmt) -> Stmt:
    """Return an equal statement, but for elements of registers that are never read.

    Requires: no `Block`.
    """
    return _drop(s, Bounds(), frozenset(_masked(s, in_lanes=False)))


def _masked(s: Stmt, *, in_lanes: bool) -> Iterator[Buffer]:
    """Yield buffers of which some lanes may be left out."""
    if isinstance(s, If) and in_lanes:
        yield from (x.buffer for x in stores_of(s))
        return
    in_lanes = in_lanes or (isinstance(s, For) and s.kind is LoopKind.VECTOR)
    for child in child_stmts(s):
        yield from _masked(child, in_lanes=in_lanes)


def _drop(s: Stmt, bounds: Bounds, masked: frozenset[Buffer]) -> Stmt:
    if isinstance(s, For):
        bounds = bounds.inside(s.var, s.lo, s.extent)
    if isinstance(s, Alloc) and s.buffer.scope == Scope.REGISTER and s.buffer.dtype.is_float:
        guards = _shared_guards(s.buffer, s.body)
        if guards:
            of = _Guarded(s.buffer, guards, masked - {s.buffer})
            opened = _open(s.body, of, bounds, ())
            # All or none: a sum may not read where its first value was left out.
            s = s if _has_guarded_store(opened, of) else Alloc(s.buffer, opened)
    return map_children(s, lambda child: _drop(child, bounds, masked))


@dataclass(frozen=True, slots=True)
class _Guarded:
    """A buffer whose elements are only touched where some numbers are below zero.

    Attributes:
        buffer: in registers.
        below_zero: the numbers, in terms of `_LANE`.
        masked: other buffers that may lack a value in some lanes.
    """

    buffer: Buffer
    below_zero: frozenset[Int]
    masked: frozenset[Buffer]


def _shared_guards(buffer: Buffer, body: Stmt) -> frozenset[Int]:
    """Return what is below zero wherever the buffer is touched, in terms of `_LANE`."""
    shared: frozenset[Int] | None = None
    for access in _accesses(buffer, body, ()):
        own = _guards(access)
        shared = own if shared is None else shared & own
        if not shared:
            return shared
    inner = {x.var for x in stmts_below(body) if isinstance(x, For)}
    return frozenset(e for e in shared or () if not inner & set(symbols(e)))


def _has_guarded_store(s: Stmt, of: _Guarded) -> bool:
    return any(x.is_store and _guards(x) & of.below_zero for x in _accesses(of.buffer, s, ()))


@dataclass(frozen=True, slots=True)
class _Access:
    """Where a buffer is touched, and the conditions that hold there."""

    indices: tuple[Int, ...]
    conditions: tuple[Scalar, ...]
    is_store: bool


def _guards(access: _Access) -> frozenset[Int]:
    """Return what is below zero at an access, in terms of `_LANE`."""
    lane = access.indices[-1].atom if access.indices else None
    if not isinstance(lane, Sym):
        return frozenset()
    found = (_of_lane(c, lane) for c in _conjuncts(access.conditions))
    return frozenset(x for x in found if x is not None)


def _accesses(buffer: Buffer, s: Stmt, conditions: tuple[Scalar, ...]) -> Iterator[_Access]:
    """Yield where a buffer is touched."""
    if isinstance(s, Store) and s.buffer is buffer:
        yield _Access(s.indices, conditions, is_store=True)
    for value in own_scalars(s):
        for x in scalars_below(value):
            if isinstance(x, Load) and x.buffer is buffer:
                yield _Access(x.indices, conditions, is_store=False)
    if isinstance(s, If):
        yield from _accesses(buffer, s.then, (*conditions, s.condition))
        if s.otherwise is not None:
            yield from _accesses(buffer, s.otherwise, conditions)
        return
    for child in child_stmts(s):
        yield from _accesses(buffer, child, conditions)


def _conjuncts(conditions: tuple[Scalar, ...]) -> Iterator[Scalar]:
    for x in conditions:
        if isinstance(x, Binary) and x.op is BinaryOp.AND:
            yield from _conjuncts((x.lhs, x.rhs))
        else:
            yield x


def _of_lane(x: Scalar, lane: Sym) -> Int | None:
    """Return what a condition wants below zero, if that depends on the lane."""
    if not isinstance(x, Binary) or x.op is not BinaryOp.LT:
        return None
    if not isinstance(x.lhs, Index) or not isinstance(x.rhs, Index):
        return None
    e = x.lhs.value - x.rhs.value
    return Rewrite({lane: to_int(_LANE)}).int(e) if lane in symbols(e) else None


def _open(s: Stmt, of: _Guarded, bounds: Bounds, lanes: tuple[For, ...]) -> Stmt:
    """Drop the guards of what only computes elements of a buffer, and reads what is there."""
    if isinstance(s, For):
        bounds = bounds.inside(s.var, s.lo, s.extent)
        lanes = (*lanes, s) if s.kind is LoopKind.VECTOR else lanes
    if isinstance(s, If) and s.otherwise is None and lanes and _only_computes(s.then, of, lanes[-1], bounds):
        left = [c for c in _conjuncts((s.condition,)) if _of_lane(c, lanes[-1].var) not in of.below_zero]
        condition: Scalar | None = None
        for c in left:
            condition = c if condition is None else Binary(BinaryOp.AND, condition, c, BOOL)
        return s.then if condition is None else If(condition, s.then)
    return map_children(s, lambda child: _open(child, of, bounds, lanes))


def _only_computes(s: Stmt, of: _Guarded, lanes: For, bounds: Bounds) -> bool:
    """Whether a statement stores to lanes of the buffer alone, and that needs no guard.

    What all lanes read in common is there as soon as the first of them is.
    """
    lane = lanes.var
    if isinstance(s, Seq):
        return all(_only_computes(x, of, lanes, bounds) for x in s.stmts)
    if not isinstance(s, Store) or s.buffer is not of.buffer or s.indices[-1] != to_int(lane):
        return False
    places = [(s.buffer, s.indices), *((x.buffer, x.indices) for x in loads_of(s))]
    if any(b in of.masked for b, _ in places):
        return False
    first = Rewrite({_LANE: lanes.lo})
    has_first = all(bounds.less(first.int(e), lit(0)) for e in of.below_zero)
    within = all(
        (has_first and lane not in symbols(e)) or bounds.within(e, n)
        for b, at in places
        for e, n in zip(at, b.shape, strict=True)
    )
    return within and not any(isinstance(x, Binary) and x.op in DIVISIONS for x in scalars_below(s.value))
