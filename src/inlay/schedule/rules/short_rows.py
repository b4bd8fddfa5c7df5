"""Rows that are shorter than a vector, side by side in whole ones.

Where work on each element takes long (a power, an exponential) and operands differ by row or by column, the
last axis is a loop of its own, and too short for vectors:

    for i in 0..n { for j in 0..3 { y[i, j] = x[i, j] ** p[j] } }

The elements of all rows are one line. Which row and which column a lane has comes again after the least
common multiple of lanes and columns; so many vectors are written out, in which both are numbers, and what
they load is shuffled:

    for ij in 0..3 n / 48 { for u in 0..3 unroll { for lane in 0..16 vector { ... } } }
"""

from __future__ import annotations

from math import lcm

from inlay.machine.target import Target
from inlay.schedule.primitives.fuse import fuse
from inlay.schedule.primitives.split import split
from inlay.schedule.primitives.unroll import unroll
from inlay.schedule.primitives.vectorize import vectorize
from inlay.schedule.rules.nests import CHEAP_BODY, is_narrow, operations, width
from inlay.schedule.state import Schedule

MOST_VECTORS = 16
"""Vectors that are written out at most."""


def rows_side_by_side(s: Schedule, block: str, target: Target) -> bool:
    """Put vectors into a nest whose rows are short, if its work is worth it; whether that was done."""
    loops, body = s.loops_of(block), s.block(block)
    if len(loops) < 2 or operations(body.body) <= CHEAP_BODY or is_narrow(body):
        return False
    outer, inner = (s.loop(x) for x in loops[-2:])
    columns, lanes = inner.extent.value, width(body, target)
    if columns is None or not 1 < columns < lanes or outer.body is not inner:
        return False
    count = lcm(lanes, columns) // lanes
    if count > MOST_VECTORS:
        return False
    line = fuse(s, outer.var.name, inner.var.name)
    _, within = split(s, line, lanes * count)
    if count > 1:
        group, within = split(s, within, lanes)
        unroll(s, group)
    vectorize(s, within)
    return True
