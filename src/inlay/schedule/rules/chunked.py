"""Products of a few rows with a factor of many rows: keys and values of all tokens before, say.

The factor is read once, so what counts is how it comes from memory; and it has any number of rows, which
grows from call to call. So the sum is computed in chunks of so many rows:

    for head
      for chunk of the sum
        partial[chunk, head, rows, columns] = 0      first cache
        for block of the chunk                       BLOCK rows of the factor
          for panel
            for tile of rows
              acc = 0; for k in block: acc = fma(A[head, row, k], B[head, k, panel], acc)     registers
              partial = partial + acc
    C = sum of partial over chunks

**Heads that lie between each other**, `B[k, head, columns]`, as in a cache to which tokens are added, are
inside of the blocks. One head after the other would read 256 bytes and leave out the 3 KB behind them, for
which memory gives a third to a half of what it gives for bytes that follow each other. Threads share chunks
then, and otherwise heads.

The order of a sum depends on nothing but the number of its terms: not on where heads lie, nor on threads. So
a session, whose cache lies in another order than the one of a call, gives the bits of the call.
"""

from __future__ import annotations

from math import prod

from inlay.machine.target import Target
from inlay.schedule.primitives.clip import clip
from inlay.schedule.primitives.decompose_reduction import decompose_reduction
from inlay.schedule.primitives.distribute import distribute
from inlay.schedule.primitives.reorder import reorder
from inlay.schedule.primitives.rfactor import rfactor
from inlay.schedule.primitives.split import split
from inlay.schedule.primitives.use_fma import use_fma
from inlay.schedule.rules.computed_product import ComputedProduct, computed_product, plan_of
from inlay.schedule.rules.contraction import cut_rows
from inlay.schedule.rules.contraction_plan import Plan
from inlay.schedule.rules.groups import is_contiguous, symbols_in, written
from inlay.schedule.rules.loops import merge_all, reduce_loops, spatial_loops
from inlay.schedule.rules.nests import parallelize, vectorize_nest
from inlay.schedule.state import Schedule, illegal

BLOCK = 16
"""Rows whose products are added in registers (Zen 4, values of 12 heads that come from memory, GB/s with 2,
4, 8 and 16: 11, 16, 20, 23)."""
LONG_BLOCK = 64
"""The same for more than `FEW` rows of the result, where products take longer than memory."""
FEW = 4
CHUNK = 128
"""Rows of a chunk: enough for a thread, and so many that partial sums are few."""


def chunked(s: Schedule, target: Target) -> None:
    """Schedule a product of a few rows with a computed factor of many rows, or of any number of them.

    Raises:
        Illegal: the function is something else; or a step refuses half-way.
    """
    product = computed_product(s)
    between = _between(product)
    _require_long(product, between, target)
    block, epilogue = product.block, product.epilogue
    plan = plan_of(s, product, target)
    chunk, _ = split(s, reduce_loops(s, block)[0], CHUNK)
    partial = rfactor(s, block, [chunk], first=True)
    terms, _ = split(s, reduce_loops(s, partial)[0], BLOCK if product.rows <= FEW else LONG_BLOCK)
    parts = rfactor(s, partial, [terms])
    for loop in reversed(spatial_loops(s, partial)):
        distribute(s, loop)
    if target.has_fma:
        use_fma(s, parts)
    shared = [_ordered(s, name, plan, between) for name in (parts, partial)]
    clip(s, parts, reduce_loops(s, parts)[0])
    merge_all(s, shared)
    decompose_reduction(s, parts, reduce_loops(s, parts)[0])
    cut_rows(s, parts, plan, written(s.block(parts)).name, target)
    *outer, column, chunks = s.loops_of(block)
    reorder(s, [*outer, chunks, column])
    vectorize_nest(s, column, target)
    if epilogue is not None:
        vectorize_nest(s, s.loops_of(epilogue)[-1], target)
    parallelize(s, shared[0][0])


def _between(product: ComputedProduct) -> tuple[int, ...]:
    """Return the axes of which each element has a factor of its own, between the rows of the others."""
    indices = product.second.indices
    at = next(n for n, e in enumerate(indices) if product.terms.sym in symbols_in([e]))
    behind = symbols_in(indices[at + 1 :]) - symbols_in(indices[: at + 1])
    return tuple(i for i in product.batch if product.spatial[i].sym in behind)


def _require_long(product: ComputedProduct, between: tuple[int, ...], target: Target) -> None:
    """Refuse factors that the second cache holds, and those whose sums it does not hold.

    Raises:
        Illegal: `schedule.class`.
    """
    column, size = product.spatial[-1], product.terms.extent.value
    if not is_contiguous(product.second.indices, column.sym):
        raise illegal("class", f"found '{product.block}', whose second factor does not lie row by row")
    known = [product.spatial[i].extent.value or 1 for i in product.batch]
    row_bytes = prod(known) * (column.extent.value or 0) * product.itemsize
    if not row_bytes or 4 * product.rows * row_bytes > target.l2_bytes:
        raise illegal("class", f"found rows of {row_bytes or 'any number of'} bytes, needed few")
    if size is not None and (not between or 2 * size * row_bytes <= target.l2_bytes):
        raise illegal("class", f"found {size} rows of {row_bytes} bytes, needed any number or far more")


def _ordered(s: Schedule, name: str, plan: Plan, between: tuple[int, ...]) -> list[str]:
    """Put the loops of a nest of sums into order; return those that the nests share."""
    loops = s.loops_of(name)
    count = len(plan.before) + len(plan.after) + (plan.row is not None)
    column, chunk, terms, *inside = loops[count:]
    panel, lane = split(s, column, plan.panel)
    rows = [loops[i] for i in plan.after] + ([] if plan.row is None else [loops[plan.row]])
    outside = [loops[i] for i in plan.before if i not in between]
    shared = [*outside, chunk, terms, *(loops[i] for i in between), panel, *rows]
    reorder(s, [*shared, *inside, lane])
    return shared
