"""Products of a few rows with a factor that is no constant: read in the order of its rows.

A tile of `contraction.py` reads a panel of the second factor from its first row to its last. Where that was
packed it is contiguous. Where it is not, and does not pay to pack, rows are far apart: each line of the
cache is on another page, and those beside it are gone from the cache before the next panel reads them.
So the reduction is outside the panels, in blocks of a few rows:

    for chunk of columns                       parallel
      sums[rows, chunk] = 0                    first cache
      for block of the reduction               BLOCK rows of the second factor, read side by side
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
from inlay.schedule.primitives.cache_write import cache_write
from inlay.schedule.primitives.clip import clip
from inlay.schedule.primitives.decompose_reduction import decompose_reduction
from inlay.schedule.primitives.distribute import distribute
from inlay.schedule.primitives.reorder import reorder
from inlay.schedule.primitives.rfactor import rfactor
from inlay.schedule.primitives.set_scope import set_scope
from inlay.schedule.primitives.split import split
from inlay.schedule.primitives.use_fma import use_fma
from inlay.schedule.rules.computed_product import ComputedProduct, computed_product, plan_of
from inlay.schedule.rules.contraction import cut_rows
from inlay.schedule.rules.contraction_plan import MIN_PARALLEL_PANELS, Plan
from inlay.schedule.rules.groups import written
from inlay.schedule.rules.loops import merge_all, reduce_loops, spatial_loops
from inlay.schedule.rules.nests import parallelize, vectorize_nest
from inlay.schedule.state import Schedule, illegal

BLOCK = 8
"""Rows of the second factor that are read side by side. Rows of whole pages share the sets of the first
cache, which has eight ways (Zen 3, ms with 16, 8 and 4: 1 x 1,024 x 1,024 0.16, 0.07, 0.07;
16 x 2,048 x 2,048 2.9, 2.4, 4.2)."""
RUN = 64
"""Columns that a row is read for at least."""
MOST_CHUNKS = 8
"""Into how many chunks at most the sums that the first cache holds are divided for threads to share, two at
least."""


def streams(s: Schedule, target: Target) -> None:
    """Schedule a product of a few rows with a factor that is no constant and not small.

    Raises:
        Illegal: the function is something else; or a step refuses half-way.
    """
    product = computed_product(s)
    _require_large(product, target)
    block, epilogue = product.block, product.epilogue
    plan = plan_of(s, product, target)
    chunk = _chunk(product, plan.panel, target)
    if epilogue is None:
        epilogue = cache_write(s, block, Scope.WORKSPACE)
    sums = written(s.block(block)).name
    terms, within = split(s, reduce_loops(s, block)[0], BLOCK)
    parts = rfactor(s, block, [terms])
    for loop in reversed(spatial_loops(s, block)):
        distribute(s, loop)
    if (product.terms.extent % BLOCK) != 0:
        clip(s, parts, within)
    if target.has_fma:
        use_fma(s, parts)
    shared = len(plan.before) + 1
    merge_all(s, [_ordered(s, name, plan, chunk) for name in (parts, block)])
    merge_all(s, [s.loops_of(parts)[:shared], _results(s, epilogue, plan, chunk)])
    set_scope(s, sums, Scope.WORKSPACE, at=s.loops_of(block)[shared - 1])
    decompose_reduction(s, parts, reduce_loops(s, parts)[0])
    cut_rows(s, parts, plan, written(s.block(parts)).name, target)
    vectorize_nest(s, s.loops_of(epilogue)[-1], target)
    parallelize(s, s.loops_of(epilogue)[0])


def _require_large(product: ComputedProduct, target: Target) -> None:
    """Refuse factors that the first cache holds, and those whose rows are short.

    Raises:
        Illegal: `schedule.class`.
    """
    columns, size = product.spatial[-1].extent.value, product.terms.extent.value
    if columns is None or columns < 2 * RUN:
        raise illegal("class", f"found {columns or 'any number of'} columns, needed {2 * RUN} or more")
    if size is not None and (size <= BLOCK or size * columns * product.itemsize <= target.l1_bytes):
        raise illegal("class", f"found a factor of {size} x {columns}, needed one that fills the first cache")


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
