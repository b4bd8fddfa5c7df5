"""Products whose factors both lie along the terms: tiles of dot products.

Rows of both factors are contiguous, as with a second one that is used transposed. Then vectors are along the
terms, and a tile of sums, so many rows of the first factor by so many of the second, stays in registers:

    for columns                                    parallel; rows of the second factor
      for rows                                     of the first one
        acc[rows, columns, lanes] = 0              registers
        for vector of terms
          acc += A[rows, vector] * B[columns, vector]
        sums[rows, columns] = lanes of acc added up
        epilogue(sums) -> C

Nothing is packed or transposed, and the second factor is read once, in the order in which it lies. What it
costs is to add up lanes, which long sums make little of: short ones with many rows are packed panels
instead (`packing.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

from inlay.analysis.register_tiles import step_cost
from inlay.arith.expr import coefficient
from inlay.loop.buffer import Scope
from inlay.loop.scalar import Load
from inlay.loop.stmt import BlockIter, IterKind
from inlay.loop.walk import loads_of
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
from inlay.schedule.primitives.split_cascade import Copy, split_cascade
from inlay.schedule.primitives.unroll import unroll
from inlay.schedule.primitives.use_fma import use_fma
from inlay.schedule.primitives.vectorize import vectorize
from inlay.schedule.rules.contraction_class import epilogue_of
from inlay.schedule.rules.groups import is_product, symbols_in, written
from inlay.schedule.rules.loops import merge_all, reduce_loops
from inlay.schedule.rules.nests import parallelize
from inlay.schedule.rules.rows import QUARTER
from inlay.schedule.rules.transposed import PAGE, WAYS
from inlay.schedule.state import Schedule, illegal

LEAST_VECTORS = 4
"""Of terms."""
MAX_ROWS, MAX_COLUMNS = 8, 4
"""Of a tile."""
FEW_ROWS, MANY_ROWS, TERMS_A_ROW = 8, 24, 16
"""More than a few rows need so many terms each, and more than many are better off with packed panels."""
ENOUGH_REGISTERS, MANY_ALIGNED = 32, 12
"""With fewer registers tiles are small, above all those of rows that share sets (Zen 4 with AVX2, us, dot
products and packed panels: 12 x 2,048 x 1,024 660 and 679, 16 x 2,048 x 2,048 2,354 and 1,876, 24 x 1,024 x
1,024 692 and 550)."""


@dataclass(frozen=True, slots=True)
class _Product:
    """A product of two matrices that both lie along its terms; axes are positions among its spatial iters.

    Attributes:
        block: its name.
        epilogue: the block that makes something of each sum; None for none.
        before: axes of which each element has a product of its own.
        row, column: axes of the smaller factor, None where that is one row, and of the larger one.
        rows, columns, terms: how many there are.
    """

    block: str
    epilogue: str | None
    before: tuple[int, ...]
    row: int | None
    column: int
    rows: int
    columns: int
    terms: int


def dots(s: Schedule, target: Target) -> None:
    """Schedule a product of two matrices that both lie along its terms.

    Raises:
        Illegal: the function is something else; or a step refuses half-way.
    """
    merge_axes(s)
    p = _product(s)
    lanes = target.lanes(written(s.block(p.block)).dtype.itemsize)
    if p.terms < LEAST_VECTORS * lanes:
        raise illegal("class", f"found sums of {p.terms} terms, needed {LEAST_VECTORS * lanes} or more")
    # Rows that share a set push each other out (24 x 2,048 x 128 on Zen 4: 213 us in tiles of 8 x 3, 128).
    is_aligned = p.terms * written(s.block(p.block)).dtype.itemsize % PAGE == 0
    lines = WAYS if is_aligned else MAX_ROWS + MAX_COLUMNS
    most = min(MANY_ROWS, max(FEW_ROWS, p.terms // TERMS_A_ROW))
    if is_aligned and target.vector_registers < ENOUGH_REGISTERS:
        most = min(most, MANY_ALIGNED)
    if p.rows > most:
        raise illegal("class", f"found {p.rows} rows or columns at least, needed {most} or fewer")
    height, width = _tile(p.rows, p.columns, target.vector_registers, lines)
    epilogue = p.epilogue or cache_write(s, p.block, Scope.REGISTER)
    order = [*p.before, p.column, *([] if p.row is None else [p.row])]
    for name in (p.block, epilogue):
        loops = s.loops_of(name)
        reorder(s, [*(loops[i] for i in order), *loops[len(order) :]])
    many = _lanes_apart(s, p, len(order), lanes)
    if target.has_fma:
        use_fma(s, many[0])
    merge_all(s, [s.loops_of(p.block)[: len(order)], s.loops_of(epilogue)[: len(order)]])
    column, *row = s.loops_of(p.block)[len(p.before) : len(order)]
    for across in split_cascade(s, column, _sizes(p.columns, width)):
        sums = [across.names[x] for x in many]
        if not row:
            _in_registers(s, across, sums)
            continue
        for down in split_cascade(s, _rows_outside(s, across, row[0]), _sizes(p.rows, height)):
            _in_registers(s, down, [down.names[x] for x in sums])
    parallelize(s, s.loops_of(p.block)[0])


def _product(s: Schedule) -> _Product:
    """Return the product of a function.

    Raises:
        Illegal: `schedule.class`.
    """
    reductions = [b for b in s.block_names() if s.block(b).init is not None]
    if len(reductions) != 1:
        raise illegal("class", f"found {len(reductions)} reductions, needed one")
    (block,) = reductions
    b = s.block(block)
    spatial = [i for i in b.iters if i.kind is IterKind.SPATIAL]
    terms = [i for i in b.iters if i.kind is IterKind.REDUCE]
    factors = [x for x in loads_of(b.body) if x.buffer is not written(b)]
    if not is_product(b) or len(terms) != 1 or len(factors) != 2 or b.predicate is not None:
        raise illegal("class", f"found '{block}', which is no product of two matrices")
    if any(x.buffer.dtype is not written(b).dtype or not _is_along(x, terms[0]) for x in factors):
        raise illegal("class", f"found '{block}', which reads a factor across its terms")
    own = [{i.sym for i in spatial} & symbols_in(x.indices) for x in factors]
    both = own[0] & own[1]
    apart = sorted(([n for n, i in enumerate(spatial) if i.sym in x - both] for x in own), key=len)
    sizes = [i.extent.value for i in spatial]
    if [len(x) for x in apart] not in ([0, 1], [1, 1]) or None in [sizes[n] for x in apart for n in x]:
        raise illegal("class", f"found '{block}', needed rows and columns on one axis each, of known sizes")
    *row, column = sorted((n for x in apart for n in x), key=lambda n: (sizes[n] or 0, n))
    epilogue = epilogue_of(s, block)
    if list(s.block_names()) != [block, *([] if epilogue is None else [epilogue])]:
        raise illegal("class", "found something else beside a product, needed one alone")
    before = tuple(n for n in range(len(spatial)) if n not in (*row, column))
    rows, columns = (sizes[row[0]] or 0) if row else 1, sizes[column] or 0
    count = terms[0].extent.value or 0
    return _Product(block, epilogue, before, row[0] if row else None, column, rows, columns, count)


def _is_along(load: Load, terms: BlockIter) -> bool:
    """Whether what is loaded for one term after the other is side by side."""
    if not load.indices or terms.sym in symbols_in(load.indices[:-1]):
        return False
    return coefficient(load.indices[-1], terms.sym) == 1


def _tile(rows: int, columns: int, registers: int, lines: int) -> tuple[int, int]:
    """Return of how many rows and columns a tile is: what takes least.

    Its sums stay in registers, and its rows and columns together are so many lines at most.
    """
    options = [
        (r, c)
        for r in range(1, min(rows, MAX_ROWS) + 1)
        for c in range(1, min(columns, MAX_COLUMNS) + 1)
        if r * c + min(r, c) + 1 < registers and r + c <= lines
    ]

    def cost(tile: tuple[int, int]) -> float:
        r, c = tile
        full, left = divmod(rows, r)
        one = full * step_cost(r, c) + (step_cost(left, c) if left else 0)
        return one / c

    return min(options, key=lambda x: (cost(x), -x[0]))


def _sizes(count: int, size: int) -> tuple[int, ...]:
    """Return the sizes of tiles that cover so many rows or columns."""
    return (size, count % size) if count % size else (size,)


def _lanes_apart(s: Schedule, p: _Product, depth: int, lanes: int) -> list[str]:
    """Give each lane a sum of its own, and add these up in two steps; returns the blocks that write sums."""
    outer, lane = split(s, reduce_loops(s, p.block)[0], lanes)
    many = [rfactor(s, p.block, [lane])]
    if p.terms % lanes:
        clip(s, many[0], lane)
    decompose_reduction(s, many[0], outer)
    if lanes > QUARTER:
        _, within = split(s, s.loops_of(p.block)[-1], QUARTER)
        many.append(rfactor(s, p.block, [within]))
        decompose_reduction(s, many[1], s.loops_of(many[1])[depth])
    decompose_reduction(s, p.block, s.loops_of(p.block)[depth])
    return [*many, p.block]


def _rows_outside(s: Schedule, across: Copy, row: str) -> str:
    """Put the loop over rows around the columns of a tile, of which each step has a loop; returns it."""
    distribute(s, across.names[row])
    distribute(s, across.inner)
    rows: list[str] = []
    for name in _blocks_in(s, across.outer):
        column, row = s.loops_of(name)[s.loops_of(name).index(across.outer) + 1 :][:2]
        reorder(s, [row, column])
        rows.append(row)
    merge_all(s, [[x] for x in rows])
    return rows[0]


def _blocks_in(s: Schedule, loop: str) -> list[str]:
    return [x for x in s.block_names() if loop in s.loops_of(x)]


def _in_registers(s: Schedule, tile: Copy, names: list[str]) -> None:
    """Write out the rows and columns of each step of a tile, with sums in registers."""
    distribute(s, tile.inner)
    vectors = {written(s.block(x)) for x in names[:-1]}
    terms = reduce_loops(s, names[0])[0]
    for name in _blocks_in(s, tile.outer):
        loops = s.loops_of(name)
        inside = [x for x in loops[loops.index(tile.outer) + 1 :] if x != terms]
        if name == names[0]:
            reorder(s, [terms, *inside])
        if written(s.block(name)) in vectors:
            vectorize(s, inside.pop())
        for loop in inside:
            unroll(s, loop)
    for name in names:
        set_scope(s, written(s.block(name)).name, Scope.REGISTER, at=tile.outer)
