"""Leave out vectors of which a condition lets no lane through.

The last tile of a split has columns behind the last one, and all that is done to them is under a condition:

    for o in 0..2 parallel {
      if [o] < [1] { ... } else {
        for l in 0..48 vector {                       for l in 0..32 vector {
          if [48*o + l] < [77] {                  ->    if [48*o + l] < [77] {
            y[48*o + l] = x[48*o + l] } } } }             y[48*o + l] = x[48*o + l] } } } }

The loop keeps whole vectors of the machine, for what is left. Without this, a matrix of 208 columns in
panels of 48 costs what one of 240 does, since the condition becomes a mask or is dropped
(`drop_guards`). It needs a tile whose place is known: `partition_loops` sets it apart.
"""

from __future__ import annotations

from inlay.arith.expr import Sym, lit
from inlay.loop.inits import comparisons
from inlay.loop.ranges import Bounds
from inlay.loop.scalar import Binary, BinaryOp, Scalar
from inlay.loop.stmt import Alloc, For, If, LoopKind, Seq, Stmt
from inlay.loop.walk import loads_of, map_children, stores_of
from inlay.machine.target import Target


def trim_vectors(s: Stmt, target: Target) -> Stmt:
    """Return an equal statement with shorter vector loops.

    Requires: no `Block`.
    """
    return _trim(s, target, Bounds())


def _trim(s: Stmt, target: Target, bounds: Bounds) -> Stmt:
    if isinstance(s, If) and s.otherwise is not None:
        other = _trim(s.otherwise, target, _where_not(s.condition, bounds))
        return If(s.condition, _trim(s.then, target, bounds), other)
    inner = bounds.inside(s.var, s.lo, s.extent) if isinstance(s, For) else bounds
    s = map_children(s, lambda child: _trim(child, target, inner))
    if not isinstance(s, For) or s.kind is not LoopKind.VECTOR:
        return s
    # Of the widest elements, so that loops over one buffer of registers keep as many, whatever they make.
    touched = (*stores_of(s.body), *loads_of(s.body))
    lanes = min((target.lanes(x.buffer.dtype.itemsize) for x in touched), default=1)
    extent = s.extent.value or 0
    for kept in range(lanes, extent, lanes):
        if _does_nothing(s.body, bounds.inside(s.var, s.lo + kept, s.extent - kept)):
            return For(s.var, s.lo, lit(kept), s.kind, s.body, s.note)
    return s


def _where_not(condition: Scalar, bounds: Bounds) -> Bounds:
    """Return the bounds where a condition fails: `o < at`, and the loop over `o` has come to `at`."""
    if not isinstance(condition, Binary) or condition.op is not BinaryOp.LT:
        return bounds
    for a, b in comparisons(condition):
        if isinstance(a.value.atom, Sym) and a.value.atom in bounds:
            return bounds.since(a.value.atom, b.value)
    return bounds


def _does_nothing(s: Stmt, bounds: Bounds) -> bool:
    """Whether conditions are false in all iterations."""
    match s:
        case If(otherwise=None):
            return any(bounds.at_least(a.value - b.value, 0) for a, b in comparisons(s.condition))
        case Seq(stmts=stmts):
            return all(_does_nothing(x, bounds) for x in stmts)
        case For():
            return _does_nothing(s.body, bounds.inside(s.var, s.lo, s.extent))
        case Alloc():
            return _does_nothing(s.body, bounds)
        case _:
            return False
