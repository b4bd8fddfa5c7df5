"""Default schedules of contractions: matrix products and convolutions, register-blocked.

One recipe, after Goto and BLIS: an accumulator tile of `rows x panel` stays in registers while the
reduction runs, each step loading one vector row of the panel and broadcasting one element per row.

    for panel of columns                       parallel
      for tile of rows                         tiles of a few fixed sizes, largest first
        acc[rows, panel] = 0                   registers
        for reduction
          for r in rows (unrolled): for l in panel (vector):
            acc[r, l] = fma(A[row + r, k], B[panel, k, l], acc[r, l])
        epilogue(acc) -> C                     bias, residual, activation, in registers

The panel of packed weights is read once per tile of rows, in order; all rows of A that a tile reads
stay in L1. An epilogue joins the tile if it has one element for each accumulator; otherwise the
accumulators are copied out and the epilogue is a nest of its own.

Sizes follow from the machine: a panel is two vectors wide (the packing decides), and a tile has as
many rows as leave registers for one row of the panel and a broadcast, but not more than eight: rows
whose distance is a multiple of 4 KB share their L1 sets, and a cache has eight or more ways (196 x
256 x 1024 ran at 91 GFLOP/s with 14 rows and at 116 with 7, of 117). A number of rows known at
compile time is divided evenly if possible; a symbol is covered by a cascade (8, 4, 1).
"""

from __future__ import annotations

from dataclasses import dataclass

from inlay.arith.dtype import DType
from inlay.arith.expr import Int, Mod, symbols, to_int
from inlay.loop.buffer import Buffer, Scope
from inlay.loop.stmt import Block, IterKind
from inlay.loop.walk import loads_of, stores_of
from inlay.machine.target import Target
from inlay.schedule.primitives.cache_write import cache_write
from inlay.schedule.primitives.decompose_reduction import decompose_reduction
from inlay.schedule.primitives.distribute import distribute
from inlay.schedule.primitives.merge import merge
from inlay.schedule.primitives.parallel import parallel
from inlay.schedule.primitives.reorder import reorder
from inlay.schedule.primitives.set_scope import set_scope
from inlay.schedule.primitives.split import split
from inlay.schedule.primitives.split_cascade import Copy, split_cascade
from inlay.schedule.primitives.unroll import unroll
from inlay.schedule.primitives.use_fma import use_fma
from inlay.schedule.primitives.vectorize import vectorize
from inlay.schedule.state import Illegal, Schedule

MAX_ROWS = 8
"""More rows gain nothing, and lose when they share cache sets."""


@dataclass(frozen=True, slots=True)
class Tiling:
    """Sizes of register tiles.

    Attributes:
        panel: columns of a tile.
        rows: rows of a tile, in the order of a cascade.
    """

    panel: int
    rows: tuple[int, ...]


def panel_width(target: Target, dtype: DType, columns: int | None = None) -> int:
    """Return how many columns weights should be packed by: two vectors, one for a few columns."""
    lanes = target.lanes(dtype.itemsize)
    return lanes if columns is not None and columns <= lanes else 2 * lanes


def row_tiles(target: Target, dtype: DType, panel: int, rows: Int) -> tuple[int, ...]:
    """Return the rows of the tiles that cover so many rows."""
    vectors = max(1, -(-panel // target.lanes(dtype.itemsize)))
    most = min(MAX_ROWS, max(1, (target.vector_registers - vectors - 1) // vectors))
    known = rows.value
    return (
        even_tiles(known, most)
        if known is not None
        else tuple(sorted({most, min(4, most), 1}, reverse=True))
    )


def even_tiles(rows: int, most: int) -> tuple[int, ...]:
    """Return tile sizes, falling, for a number of rows: one size if a good one divides it."""
    if rows <= most:
        return (max(rows, 1),)
    for size in range(most, max(most // 2, 1), -1):
        if rows % size == 0:
            return (size,)
    count = -(-rows // most)
    size = -(-rows // count)
    left = rows % size
    return (size, left) if left else (size,)


def contraction(s: Schedule, block: str, target: Target) -> tuple[str, ...]:
    """Schedule a sum of products over the columns of its last axis, with its epilogue.

    Args:
        s: the schedule, with the block still in the nest `from_te` made.
        block: a block that reduces a product; its last spatial axis is contiguous in what it reads.
        target: the machine.

    Returns:
        The blocks this took care of, by the names they had.
    """
    epilogue = _epilogue(s, block)
    taken = (block,) if epilogue is None else (block, epilogue)
    if epilogue is None:
        epilogue = cache_write(s, block, Scope.REGISTER.value)
    _use_fma(s, block)
    temporary = _written(s.block(block))
    *rows, column = _spatial_loops(s, block)
    width = s.loop(column).extent.value
    panel = _panel(s.block(block)) or panel_width(target, temporary.dtype, width)
    panel = min(panel, width or panel)
    outer = _merge_nests(s, block, epilogue, panel)
    decompose_reduction(s, block, _reduce_loops(s, block)[0])
    if rows:
        extent = s.loop(rows[-1]).extent
        tiles = split_cascade(s, rows[-1], row_tiles(target, temporary.dtype, panel, extent))
        for tile in tiles:
            _micro_kernel(s, tile, temporary.name, tile.names[block])
    else:
        _vectors(s, outer, temporary.name)
    parallel(s, outer)
    return taken


def _merge_nests(s: Schedule, block: str, epilogue: str, panel: int) -> str:
    """Put panels outside rows in both nests and join the nests around each row.

    Returns the loop over panels.
    """
    for b in (block, epilogue):
        column = _spatial_loops(s, b)[-1]
        others = [x for x in _spatial_loops(s, b) if x != column]
        reducing = _reduce_loops(s, b)
        outer, inner = split(s, column, panel)
        reorder(s, [outer, *others, *reducing, inner])
    first, second = s.loops_of(block), s.loops_of(epilogue)
    for a, b in zip(first, second[:-1], strict=False):
        merge(s, a, b)
    return first[0]


def _micro_kernel(s: Schedule, tile: Copy, temporary: str, block: str) -> None:
    """Give init, reduction and epilogue of a tile their own rows, and accumulate in registers."""
    nests = distribute(s, tile.inner)
    reducing = _reduce_loops(s, block)
    rows, inner = nests[1], s.loops_of(block)[-1]
    reorder(s, [*reducing, rows, inner])
    _vectors(s, tile.outer, temporary)
    for loop in nests:
        unroll(s, loop)


def _vectors(s: Schedule, around: str, temporary: str) -> None:
    set_scope(s, temporary, Scope.REGISTER.value, at=around)
    for b in s.block_names():
        loops = s.loops_of(b)
        if around in loops:
            vectorize(s, loops[-1])


# --------------------------------------------------------------------------- looking


def _epilogue(s: Schedule, block: str) -> str | None:
    """Return the block that reads each result of a contraction once, at its own place."""
    names = s.block_names()
    at = names.index(block)
    result = _written(s.block(block))
    if at + 1 >= len(names) or result.scope is Scope.PARAM:
        return None
    following = s.block(names[at + 1])
    if any(i.kind is IterKind.REDUCE for i in following.iters):
        return None
    spatial = [i.extent for i in s.block(block).iters if i.kind is IterKind.SPATIAL]
    if [i.extent for i in following.iters] != spatial:
        return None
    here = tuple(to_int(i.sym) for i in following.iters)
    loads = [x for x in loads_of(following) if x.buffer is result]
    if any(x.indices != here for x in loads) or _write_indices(following) != here:
        return None
    readers = [n for n in names if any(x.buffer is result for x in loads_of(s.block(n)))]
    return names[at + 1] if readers in ([block, names[at + 1]], [names[at + 1]]) else None


def _written(b: Block) -> Buffer:
    return next(stores_of(b.body)).buffer


def _write_indices(b: Block) -> tuple[Int, ...]:
    return next(stores_of(b.body)).indices


def _panel(b: Block) -> int | None:
    """Return the panel of packed weights: the divisor in their last index."""
    for load in loads_of(b.body):
        atom = load.indices[-1].atom if load.indices else None
        if isinstance(atom, Mod) and atom.denominator.value is not None:
            return atom.denominator.value
    return None


def _spatial_loops(s: Schedule, block: str) -> list[str]:
    reducing = set(_reduce_loops(s, block))
    return [x for x in s.loops_of(block) if x not in reducing]


def _reduce_loops(s: Schedule, block: str) -> list[str]:
    b = s.block(block)
    found = {
        x
        for i, binding in zip(b.iters, b.bindings, strict=True)
        if i.kind is IterKind.REDUCE
        for x in symbols(binding)
    }
    return [x for x in s.loops_of(block) if s.loop(x).var in found]


def _use_fma(s: Schedule, block: str) -> None:
    try:
        use_fma(s, block)
    except Illegal:
        return  # integers, or something else than a product
