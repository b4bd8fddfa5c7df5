"""Factors that are no constants, packed by the kernel that reads them.

The columns of a matrix in rows are far apart: the rows of a panel share sets of the first cache and use
a page each. So a group of panels is copied before it is used, to where it is contiguous:

    for group of panels            parallel
      packed[panels, k, panel] = w[k, columns]
      for panel of group
        for tile of rows           as with packed constants

It costs a load and a store for each element, where the product has as many multiply-adds for it as
there are rows. Behind the last column are zeros, so that sums there need no mask: a matrix whose columns
do not fill vectors is packed however small it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from inlay.loop.buffer import Scope
from inlay.loop.scalar import Load
from inlay.loop.stmt import Block, IterKind
from inlay.loop.walk import loads_of
from inlay.machine.target import Target
from inlay.schedule.primitives.cache_read import cache_read
from inlay.schedule.primitives.merge import merge
from inlay.schedule.primitives.reorder import reorder
from inlay.schedule.primitives.set_scope import set_scope
from inlay.schedule.primitives.split import split
from inlay.schedule.primitives.vectorize import vectorize
from inlay.schedule.rules.groups import packed_panel, symbols_in, written
from inlay.schedule.state import Schedule

FEWEST_ROWS = 24
"""Rows for which packing pays: each element is copied once and multiplied so many times."""


@dataclass(frozen=True, slots=True)
class Packing:
    """What is packed, and how much at once.

    Attributes:
        buffer: name of the factor.
        group: panels that are packed before they are used.
    """

    buffer: str
    group: int


def packing(s: Schedule, block: str, panel: int, target: Target) -> Packing | None:
    """Return how the factor with the columns is packed; None where that does not pay.

    Where rows are known and there are a few, the schedule leaves it open.
    """
    b = s.block(block)
    spatial = [i for i in b.iters if i.kind is IterKind.SPATIAL]
    column = spatial[-1]
    columns = column.extent.value
    factors = [x for x in loads_of(b.body) if x.buffer is not written(b)]
    if columns is None or len(factors) != 2 or packed_panel(b) is not None:
        return None
    is_partial = columns % target.lanes(written(b).dtype.itemsize) != 0
    if columns <= panel and not is_partial:
        return None
    second = [x for x in factors if column.sym in symbols_in(x.indices)]
    if len(second) != 1 or not written(b).dtype.is_float or b.predicate is not None:
        return None
    bytes_ = second[0].buffer.dtype.itemsize * columns * _terms(b)
    rows = rows_of(b, second[0])
    pays = rows >= FEWEST_ROWS and (bytes_ > target.l1_bytes or is_partial)
    if FEWEST_ROWS // 4 <= rows <= 16 * FEWEST_ROWS:
        pays = s.asked.switch(f"{block}.pack", default=pays)
    return Packing(second[0].buffer.name, 1) if pays else None


def rows_of(b: Block, second: Load) -> int:
    """Return how often an element is used, 0 where that is not known."""
    own = symbols_in(second.indices)
    return prod(i.extent.value or 0 for i in b.iters if i.kind is IterKind.SPATIAL and i.sym not in own)


def _terms(b: Block) -> int:
    return prod(i.extent.value or 1 for i in b.iters if i.kind is IterKind.REDUCE)


def pack(s: Schedule, block: str, how: Packing, panel: int) -> str:
    """Let a block read packed panels; returns the block that packs."""
    return cache_read(s, block, how.buffer, panel)


def pack_inside(s: Schedule, copy: str, block: str, how: Packing, before: Sequence[int]) -> None:
    """Pack each group of panels where it is used.

    Args:
        s: the schedule.
        copy: the block that packs.
        block: the contraction, whose loops are those of `before` and then one over groups of panels.
        how: what is packed.
        before: the order of the axes outside the panels.
    """
    loops = s.loops_of(copy)
    count = len(before)
    group, inside = split(s, loops[count], how.group)
    ordered = [loops[i] for i in _ranks(before)]
    reorder(s, [*ordered, group, inside])
    shared = [*ordered, group]
    for x, y in zip(shared, s.loops_of(block)[: len(shared)], strict=True):
        merge(s, x, y)
    set_scope(s, written(s.block(copy)).name, Scope.WORKSPACE, at=group)
    vectorize(s, s.loops_of(copy)[-1])


def _ranks(before: Sequence[int]) -> list[int]:
    return [sorted(before).index(i) for i in before]
