"""Write out loops that a value is chosen by.

The elements of a transformed tile are different sums of the same few inputs:

    for f in 0..4 { for c in 0..n vector {
      v[f, c] = select(f == 0, d[0, c] - d[2, c], select(f == 1, d[1, c] + d[2, c], ...)) } }

With f outside, every element is asked what it is and the inputs are read for each anew. With f inside
and written out, the choices are settled when code is made and the inputs of all f are read once. The same
for a choice by `x % 2`, where the loop over x is split by two first.
"""

from __future__ import annotations

from math import lcm

from inlay.arith.expr import Int, Mod, Sym, symbols
from inlay.loop.scalar import Binary, BinaryOp, Index, Scalar, Select
from inlay.loop.stmt import Block, IterKind
from inlay.loop.walk import own_scalars, scalars_below, stmts_below
from inlay.schedule.primitives.reorder import reorder
from inlay.schedule.primitives.split import split
from inlay.schedule.primitives.unroll import unroll
from inlay.schedule.state import Schedule

MOST = 16
"""Copies of a body that a loop is written out to."""


def write_out_choices(s: Schedule, block: str) -> tuple[str, ...]:
    """Move loops that a value of a block is chosen by around its innermost loop, and unroll them.

    Requires: one loop for each axis of the block but the innermost, which may be split.

    Returns:
        The loops that are written out.
    """
    b = s.block(block)
    moved: list[str] = []
    copies = 1
    for axis, period in periods(b).items():
        binding = next(x for i, x in zip(b.iters, b.bindings, strict=True) if i.sym is axis)
        loop = next((x for x in s.loops_of(block) if binding.atom == s.loop(x).var), None)
        if loop is None or loop == s.loops_of(block)[-1] or copies * period > MOST:
            continue
        copies *= period
        moved.append(loop if s.loop(loop).extent == period else split(s, loop, period)[1])
    if moved:
        loops = [x for x in s.loops_of(block) if x not in moved]
        reorder(s, [*loops[:-1], *moved, loops[-1]])
    for loop in moved:
        unroll(s, loop)
    return tuple(moved)


def periods(b: Block) -> dict[Sym, int]:
    """Return after how many steps along an axis the choices that a block makes repeat."""
    extents = {i.sym: i.extent.value for i in b.iters if i.kind is IterKind.SPATIAL}
    periods: dict[Sym, int] = {}
    for tested in _tested(b):
        axes = symbols(tested)
        if len(axes) != 1 or axes[0] not in extents:
            continue
        (axis,) = axes
        period = _period(tested, axis, extents[axis])
        if period is not None and period <= MOST:
            periods[axis] = lcm(periods.get(axis, 1), period)
    return periods


def _tested(b: Block) -> list[Int]:
    """Return the integers that selects hold against numbers."""
    found: list[Int] = []
    for stmt in stmts_below(b.body):
        for value in own_scalars(stmt):
            found += [e for x in scalars_below(value) if isinstance(x, Select) for e in _equated(x.condition)]
    return found


def _equated(condition: Scalar) -> list[Int]:
    if not isinstance(condition, Binary) or condition.op is not BinaryOp.EQ:
        return []
    sides = [x.value for x in (condition.lhs, condition.rhs) if isinstance(x, Index)]
    return [e for e in sides if e.value is None] if any(e.value is not None for e in sides) else []


def _period(tested: Int, axis: Sym, extent: int | None) -> int | None:
    atom = tested.atom
    if isinstance(atom, Mod) and atom.numerator.atom == axis:
        return atom.denominator.value
    return extent
