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

from dataclasses import dataclass
from math import prod

from inlay.analysis.register_tiles import panel_widths
from inlay.arith.expr import Sym
from inlay.loop.scalar import Load
from inlay.loop.stmt import BlockIter, IterKind
from inlay.loop.walk import loads_of
from inlay.machine.target import Target
from inlay.schedule.primitives.clip import clip
from inlay.schedule.primitives.decompose_reduction import decompose_reduction
from inlay.schedule.primitives.distribute import distribute
from inlay.schedule.primitives.reorder import reorder
from inlay.schedule.primitives.rfactor import rfactor
from inlay.schedule.primitives.split import split
from inlay.schedule.primitives.use_fma import use_fma
from inlay.schedule.rules.contraction import cut_rows
from inlay.schedule.rules.contraction_plan import Plan, epilogue_of, no_contraction, row_tiles, tile_options
from inlay.schedule.rules.groups import is_contiguous, is_product, packed_panel, symbols_in, written
from inlay.schedule.rules.loops import merge_all, reduce_loops, spatial_loops
from inlay.schedule.rules.nests import parallelize, vectorize_nest
from inlay.schedule.rules.packing import FEWEST_ROWS, rows_of
from inlay.schedule.state import Schedule, illegal

BLOCK = 16
"""Rows whose products are added in registers (Zen 4, values of 12 heads that come from memory, GB/s with 2,
4, 8 and 16: 11, 16, 20, 23)."""
LONG_BLOCK = 64
"""The same for more than `FEW` rows of the result, where products take longer than memory."""
FEW = 4
CHUNK = 128
"""Rows of a chunk: enough for a thread, and so many that partial sums are few."""


@dataclass(frozen=True, slots=True)
class _Product:
    """A product that is to be read so; axes are positions among its spatial iters, the last is the columns.

    Attributes:
        block: its name.
        spatial: its axes.
        outside: axes of the factor that lie outside of its rows.
        between: those that lie between two rows.
        rows: how often each element of the factor is used.
    """

    block: str
    spatial: tuple[BlockIter, ...]
    outside: tuple[int, ...]
    between: tuple[int, ...]
    rows: int


def chunked(s: Schedule, target: Target) -> None:
    """Schedule a product of a few rows with a computed factor of many rows, or of any number of them.

    Raises:
        Illegal: the function is something else; or a step refuses half-way.
    """
    product = _product(s, target)
    block = product.block
    epilogue = epilogue_of(s, block)
    if list(s.block_names()) != [block, *([] if epilogue is None else [epilogue])]:
        raise illegal("class", "found something else beside a product, needed one alone")
    plan = _plan(s, product, target)
    chunk, _ = split(s, reduce_loops(s, block)[0], CHUNK)
    partial = rfactor(s, block, [chunk], first=True)
    terms, _ = split(s, reduce_loops(s, partial)[0], BLOCK if product.rows <= FEW else LONG_BLOCK)
    parts = rfactor(s, partial, [terms])
    for loop in reversed(spatial_loops(s, partial)):
        distribute(s, loop)
    if target.has_fma:
        use_fma(s, parts)
    shared = [_ordered(s, name, plan, product) for name in (parts, partial)]
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


def _product(s: Schedule, target: Target) -> _Product:
    """Return the product of a function.

    Raises:
        Illegal: `schedule.class`.
    """
    reductions = [b for b in s.block_names() if s.block(b).init is not None]
    if len(reductions) != 1 or no_contraction(s, reductions[0]):
        raise illegal("class", "found no single sum of products along columns")
    block, b = reductions[0], s.block(reductions[0])
    terms = [i for i in b.iters if i.kind is IterKind.REDUCE]
    spatial = tuple(i for i in b.iters if i.kind is IterKind.SPATIAL)
    column, factors = spatial[-1], [x for x in loads_of(b.body) if x.buffer is not written(b)]
    second = [x for x in factors if column.sym in symbols_in(x.indices)]
    is_plain = is_product(b) and len(terms) == 1 and packed_panel(b) is None and b.predicate is None
    if (
        not is_plain
        or len(factors) != 2
        or len(second) != 1
        or second[0].buffer.dtype is not written(b).dtype
        or not is_contiguous(second[0].indices, column.sym)
    ):
        raise illegal("class", f"found '{block}', which is no product of two matrices as they are")
    rows, size = rows_of(b, second[0]), terms[0].extent.value
    if not 0 < rows < FEWEST_ROWS:
        raise illegal("class", f"found {rows or 'any number of'} rows, needed 1 to {FEWEST_ROWS - 1}")
    own = symbols_in(second[0].indices)
    batch = [i for i, x in enumerate(spatial[:-1]) if x.sym in own and x.extent != 1]
    known = [spatial[i].extent.value or 1 for i in batch]
    row_bytes = prod(known) * (column.extent.value or 0) * written(b).dtype.itemsize
    if not row_bytes or 4 * rows * row_bytes > target.l2_bytes:
        raise illegal("class", f"found rows of {row_bytes or 'any number of'} bytes, needed few")
    between = _between(second[0], spatial, terms[0].sym)
    if size is not None and (not between or 2 * size * row_bytes <= target.l2_bytes):
        raise illegal("class", f"found {size} rows of {row_bytes} bytes, needed any number or far more")
    outside = tuple(i for i in batch if i not in between)
    return _Product(block, spatial, outside, tuple(i for i in batch if i in between), rows)


def _between(second: Load, spatial: tuple[BlockIter, ...], term: Sym) -> list[int]:
    """Return which axes of the result are behind the axis of the sum in the second factor, but columns."""
    at = next(n for n, e in enumerate(second.indices) if term in symbols_in([e]))
    behind = symbols_in(second.indices[at + 1 :]) - symbols_in(second.indices[: at + 1])
    return [i for i, x in enumerate(spatial[:-1]) if x.sym in behind]


def _plan(s: Schedule, product: _Product, target: Target) -> Plan:
    """Return order and sizes.

    Raises:
        Illegal: `schedule.class`.
    """
    spatial, batch = product.spatial, (*product.outside, *product.between)
    others = [i for i in range(len(spatial) - 1) if i not in batch]
    wide = [i for i in others if spatial[i].extent != 1]
    if len(wide) > 1:
        raise illegal("class", f"found rows on {len(wide)} axes, needed one")
    row = wide[0] if wide else next(iter(others), None)
    dtype, columns = written(s.block(product.block)).dtype, spatial[-1].extent.value or 0
    ranked = panel_widths(target, columns, None, product.rows, sum_bytes=dtype.itemsize)
    panel = s.asked.pick(f"{product.block}.panel", ranked[0], ranked[1:4])
    options = [] if row is None else tile_options(target, dtype, panel, product.rows)
    tiles = row_tiles(s, product.block, options) if options else ()
    return Plan(batch, tuple(i for i in others if i != row), row, panel, tiles, None, None)


def _ordered(s: Schedule, name: str, plan: Plan, product: _Product) -> list[str]:
    """Put the loops of a nest of sums into order; return those that the nests share."""
    loops = s.loops_of(name)
    column, chunk, terms, *inside = loops[len(product.spatial) - 1 :]
    panel, lane = split(s, column, plan.panel)
    rows = [loops[i] for i in plan.after] + ([] if plan.row is None else [loops[plan.row]])
    outside, between = ([loops[i] for i in axes] for axes in (product.outside, product.between))
    shared = [*outside, chunk, terms, *between, panel, *rows]
    reorder(s, [*shared, *inside, lane])
    return shared
