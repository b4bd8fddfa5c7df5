"""A row times a matrix that is no constant: the matrix is read once, in the order in which it lies.

Memory and far caches are fetched ahead along whole rows, several side by side. So a few rows of the matrix
are read at a time, from the first column to the last, and added to sums that stay in the first cache:

    for part of the terms                        parallel
      sums[part, columns] = 0
      for block of the part                      a few rows of the matrix, read side by side
        for panel of the columns
          acc = 0; for k in block (unrolled): acc = fma(a[k], B[k, panel], acc)      registers
          sums[part] = sums[part] + acc
    for panel of the columns                     parallel
      y = epilogue(sum of sums[parts, panel])

Threads could share columns as well, but then each reads a piece of a row only (1,024 x 1,024 and 2,048 x
2,048 on one thread of Zen 4, in C, us: whole rows 48 and 240, halves 52 and 290, quarters 62 and 350). Where
parts begin depends on the number of terms alone, and so do the bits of a sum.
"""

from __future__ import annotations

from inlay.loop.buffer import Scope
from inlay.machine.target import Target
from inlay.schedule.primitives.cache_write import cache_write
from inlay.schedule.primitives.clip import clip
from inlay.schedule.primitives.decompose_reduction import decompose_reduction
from inlay.schedule.primitives.distribute import distribute
from inlay.schedule.primitives.merge_axes import merge_axes
from inlay.schedule.primitives.reorder import reorder
from inlay.schedule.primitives.rfactor import rfactor
from inlay.schedule.primitives.set_scope import set_scope
from inlay.schedule.primitives.split import split
from inlay.schedule.primitives.unroll import unroll
from inlay.schedule.primitives.use_fma import use_fma
from inlay.schedule.primitives.vectorize import vectorize
from inlay.schedule.rules.computed_product import computed_product, require_large, rows_together
from inlay.schedule.rules.groups import written
from inlay.schedule.rules.loops import merge_all, reduce_loops, spatial_loops
from inlay.schedule.rules.nests import parallelize
from inlay.schedule.state import Schedule, illegal

PANEL = 2
"""Vectors of a panel."""
PARTS, FEWEST_PARTS = 8, 2
"""Of the terms, for threads to share."""
FEWEST_BLOCKS = 16
"""Blocks of a part, if there are enough: each begins with sums of its own."""


def one_row(s: Schedule, target: Target) -> None:
    """Schedule a product of one row with a matrix that is no constant and not small.

    Raises:
        Illegal: the function is something else; or a step refuses half-way.
    """
    merge_axes(s)
    product = computed_product(s)
    require_large(product, target)
    if product.rows != 1 or len(product.spatial) != 1 or product.terms.extent.value is None:
        raise illegal("class", f"found {product.rows} rows, needed one alone, and terms of a known number")
    lanes = target.lanes(product.itemsize)
    epilogue = product.epilogue or cache_write(s, product.block, Scope.WORKSPACE)
    first, many = _in_parts(s, product.block, product.terms.extent.value)
    if target.has_fma:
        use_fma(s, first)
    _sum_terms(s, first, many, lanes)
    _sum_parts(s, product.block, epilogue, lanes)
    parallelize(s, s.loops_of(first)[0])
    parallelize(s, s.loops_of(epilogue)[0])


def _in_parts(s: Schedule, block: str, count: int) -> tuple[str, str]:
    """Sum blocks of terms, of these the parts, and then the parts; returns the blocks for the first two."""
    together = rows_together(count)
    terms, within = split(s, reduce_loops(s, block)[0], together)
    first = rfactor(s, block, [terms])
    for loop in reversed(spatial_loops(s, block)):
        distribute(s, loop)
    if count % together:
        clip(s, first, within)
    blocks = -(-count // together)
    steps = -(-blocks // max(FEWEST_PARTS, min(PARTS, blocks // FEWEST_BLOCKS)))
    _, step = split(s, terms, steps)
    part, _ = split(s, reduce_loops(s, block)[0], steps)
    many = rfactor(s, block, [part], first=True)
    for loop in reversed(spatial_loops(s, block)):
        distribute(s, loop)
    if blocks % steps:
        clip(s, first, step)
        clip(s, many, reduce_loops(s, many)[0])
    return first, many


def _sum_terms(s: Schedule, first: str, many: str, lanes: int) -> None:
    """Add up a block of terms in registers, panel by panel, and add that to the sums of a part."""
    shared: list[list[str]] = []
    for name in (first, many):
        column, part, step, *within = s.loops_of(name)
        panel, inside = split(s, column, PANEL * lanes)
        register, lane = split(s, inside, lanes)
        reorder(s, [part, step, panel, *within, register, lane])
        unroll(s, register)
        vectorize(s, lane)
        shared.append([part, step, panel])
    merge_all(s, shared)
    *_, panel, within, _, _ = s.loops_of(first)
    set_scope(s, written(s.block(first)).name, Scope.REGISTER, at=panel)
    if s.loop(within).extent.value is not None:
        unroll(s, within)
    decompose_reduction(s, first, within)


def _sum_parts(s: Schedule, block: str, epilogue: str, lanes: int) -> None:
    """Add up the parts in registers, and make something of the sums."""
    panels: list[str] = []
    for name in (block, epilogue):
        column, *parts = s.loops_of(name)
        panel, inside = split(s, column, PANEL * lanes)
        register, lane = split(s, inside, lanes)
        reorder(s, [panel, *parts, register, lane])
        unroll(s, register)
        vectorize(s, lane)
        panels.append(panel)
    merge_all(s, [[x] for x in panels])
    set_scope(s, written(s.block(block)).name, Scope.REGISTER, at=panels[0])
    decompose_reduction(s, block, s.loops_of(block)[1])
