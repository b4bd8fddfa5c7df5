"""Products of a few rows with a factor that is no constant: read in the order of its rows.

A tile of `contraction.py` reads a panel of the second factor from its first row to its last. Where that was
packed it is contiguous. Where it is not, and does not pay to pack, rows are far apart: each line of the
cache is on another page, and those beside it are gone from the cache before the next panel reads them.
So the reduction is outside the panels, in blocks of a few rows:

    for chunk of columns                       parallel
      sums[rows, chunk] = 0                    first cache
      for block of the reduction               a few rows of the second factor, read side by side
        for panel of the chunk
          for tile of rows
            acc = 0; for k in block (unrolled): acc = fma(A[row, k], B[k, panel], acc)     registers
            sums = sums + acc
      epilogue(sums) -> C

That reads as many streams as a block has rows, each from left to right, which is what caches fetch ahead.
Sums are loaded and stored once for each block. They are blocked as long sums of other rules are (`sums.py`).
"""

from __future__ import annotations

from inlay.loop.buffer import Scope
from inlay.machine.target import Target
from inlay.schedule.primitives.annotate import annotate
from inlay.schedule.primitives.cache_write import cache_write
from inlay.schedule.primitives.clip import clip
from inlay.schedule.primitives.decompose_reduction import decompose_reduction
from inlay.schedule.primitives.distribute import distribute
from inlay.schedule.primitives.reorder import reorder
from inlay.schedule.primitives.rfactor import rfactor
from inlay.schedule.primitives.set_scope import set_scope
from inlay.schedule.primitives.split import split
from inlay.schedule.primitives.use_fma import use_fma
from inlay.schedule.rules.cache_blocks import MIN_PARALLEL_PANELS
from inlay.schedule.rules.computed_product import (
    RUN,
    ComputedProduct,
    computed_product,
    plan_of,
    require_large,
    rows_together,
)
from inlay.schedule.rules.contraction import cut_rows
from inlay.schedule.rules.contraction_plan import Plan
from inlay.schedule.rules.groups import written
from inlay.schedule.rules.loops import merge_all, reduce_loops, spatial_loops
from inlay.schedule.rules.nests import parallelize, vectorize_nest
from inlay.schedule.rules.packing import FAR
from inlay.schedule.rules.transposed import LINE
from inlay.schedule.state import Schedule, illegal

FEW_LINES, SETS, MANY_ROWS = 4, 1024, 4
"""Rows whose distance is a multiple of 1 KB share few sets of a cache. With few lines of each in a panel, or
few rows to multiply them with, that costs more than sums do (with AVX2, us, panels and streams: 8 x 1,024 x
1,024 511 and 293; 4 x 700 x 1,536 154 and 101, x 900 63 and 68; with AVX-512 2 x 1,024 x 1,024 106 and
81)."""
MOST_CHUNKS = 8
"""Into how many chunks at most the sums that the first cache holds are divided for threads to share, two at
least."""


def streams(s: Schedule, target: Target) -> None:
    """Schedule a product of a few rows with a factor that is no constant and not small.

    Raises:
        Illegal: the function is something else; or a step refuses half-way.
    """
    product = computed_product(s)
    require_large(product, target)
    block, epilogue = product.block, product.epilogue
    plan = plan_of(s, product, target)
    _require_far(product, plan.panel, target)
    chunk = _chunk(product, plan.panel, target)
    if epilogue is None:
        epilogue = cache_write(s, block, Scope.WORKSPACE)
    sums = written(s.block(block)).name
    together = rows_together(product.terms.extent.value)
    terms, within = split(s, reduce_loops(s, block)[0], together)
    parts = rfactor(s, block, [terms])
    for loop in reversed(spatial_loops(s, block)):
        distribute(s, loop)
    if (product.terms.extent % together) != 0:
        clip(s, parts, within)
    if target.has_fma:
        use_fma(s, parts)
    shared = len(plan.before) + 1
    merge_all(s, [_ordered(s, name, plan, chunk) for name in (parts, block)])
    merge_all(s, [s.loops_of(parts)[:shared], _results(s, epilogue, plan, chunk)])
    set_scope(s, sums, Scope.WORKSPACE, at=s.loops_of(block)[shared - 1])
    decompose_reduction(s, parts, reduce_loops(s, parts)[0])
    cut_rows(s, parts, plan, written(s.block(parts)).name, target)
    if ahead := _next_block(product, together, target):
        annotate(s, s.loops_of(parts)[shared - 1], "prefetch", ahead)
    vectorize_nest(s, s.loops_of(epilogue)[-1], target)
    parallelize(s, s.loops_of(epilogue)[0])


def _require_far(product: ComputedProduct, panel: int, target: Target) -> None:
    """Refuse factors of which panels are read as fast: near ones, and rows that do not share sets of a cache.

    Raises:
        Illegal: `schedule.class`.
    """
    row = (product.spatial[-1].extent.value or 0) * product.itemsize
    size = product.terms.extent.value
    is_narrow = panel * product.itemsize < FEW_LINES * LINE or product.rows < MANY_ROWS
    if size is not None and row * size <= target.last_bytes // FAR and not (is_narrow and row % SETS == 0):
        raise illegal("class", f"found rows of {row} bytes, {size} of them, needed far or aligned ones")


def _next_block(product: ComputedProduct, together: int, target: Target) -> str:
    """Return the note that asks for the next rows, where the second cache does not hold the factor."""
    row = (product.spatial[-1].extent.value or 0) * product.itemsize
    size = row * (product.terms.extent.value or 0)
    return f"{product.second.buffer.name} {together * row}" if size > target.l2_bytes else ""


def _chunk(product: ComputedProduct, panel: int, target: Target) -> int:
    """Return how many columns a chunk has: whole panels."""
    columns = product.spatial[-1].extent.value or 0
    held = target.l1_bytes // (2 * product.rows * product.itemsize)
    longer = min(held // MOST_CHUNKS, -(-columns // 2))
    shared = max(RUN, longer, -(-columns // MIN_PARALLEL_PANELS))
    return -(-min(held, shared) // panel) * panel


def _ordered(s: Schedule, name: str, plan: Plan, chunk: int) -> list[str]:
    """Put the loops of a nest of sums into order; return those that the nests share.

    The nest that adds up a block has the blocks as an axis of its own, the one that adds these up sums over
    them.
    """
    loops = s.loops_of(name)
    count = len(plan.before) + len(plan.after) + (plan.row is not None)
    column, terms, *inside = loops[count:]
    group, within = split(s, column, chunk)
    panel, lane = split(s, within, plan.panel)
    around = [loops[i] for i in plan.before]
    rows = [loops[i] for i in plan.after] + ([] if plan.row is None else [loops[plan.row]])
    shared = [*around, group, terms, panel, *rows]
    reorder(s, [*shared, *inside, lane])
    return shared


def _results(s: Schedule, name: str, plan: Plan, chunk: int) -> list[str]:
    """Put the loops of what reads the sums into order; return those over chunks."""
    *others, column = s.loops_of(name)
    group, within = split(s, column, chunk)
    around = [others[i] for i in plan.before]
    reorder(s, [*around, group, *(x for x in others if x not in around), within])
    return [*around, group]
