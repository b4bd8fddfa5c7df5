"""Reductions and what goes with them, row by row: softmax, normalization, pooling, means, argmax.

Every nest of the group has some outermost loops that all share, the **rows**. The nests are merged
along them, so that one iteration does all stages of one row while it is in the cache, rows are shared
by the threads, and temporaries shrink to one row:

    for row parallel {
      lanes of the maximum; combine; exponentials; lanes of the sum; combine; quotients }

Inside a row each nest gets vectors on its own:

* A nest without reduction (`MAP`): along its last axis.
* A reduction whose last spatial axis is contiguous in what it loads, or a few elements apart (`COLUMNS`;
  pooling): along that axis, one accumulator for each element, in registers. The terms are written out
  where they are few.
* A reduction along the contiguous axis itself (`LANES`): several accumulators, a fixed number of
  lanes, combined in order. The result depends on neither the number of threads nor the size.
* Anything else stays serial loops (`SERIAL`).

What a map makes and the reduction behind it adds up along the same axis (the exponentials of softmax)
is added as it is made: the two are one loop, and what is added is in a register.

Windows along the last axis read vectors that begin within those that the nest before has stored. They are
read when these have reached the cache: a chunk of lines is made, and then read.

Long sums of floats are computed in blocks, wherever the vectors are: see `sums.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from itertools import pairwise
from math import inf, prod

from inlay.arith.expr import Int, Sym, coefficient, symbols
from inlay.loop.buffer import Scope, flat_index
from inlay.loop.deps import region
from inlay.loop.inits import mentioned
from inlay.loop.scalar import Select
from inlay.loop.stmt import Alloc, Block, IterKind
from inlay.loop.walk import blocks_of, loads_of, scalars_below, stmts_below, stores_of
from inlay.machine.target import Target
from inlay.schedule.primitives.annotate import annotate
from inlay.schedule.primitives.cache_write import cache_write
from inlay.schedule.primitives.decompose_reduction import decompose_reduction
from inlay.schedule.primitives.merge import merge
from inlay.schedule.primitives.merge_axes import merge_axes
from inlay.schedule.primitives.reorder import reorder
from inlay.schedule.primitives.reuse_output import reuse_output
from inlay.schedule.primitives.rfactor import rfactor
from inlay.schedule.primitives.set_scope import set_scope
from inlay.schedule.primitives.split import split
from inlay.schedule.primitives.unroll import unroll
from inlay.schedule.primitives.vectorize import vectorize
from inlay.schedule.rules.loops import spatial_loops
from inlay.schedule.rules.nests import (
    CHEAP_BODY,
    MIXED_VECTORS,
    UNROLLED_VECTORS,
    is_narrow,
    operations,
    parallelize,
    vectorize_nest,
    width,
)
from inlay.schedule.rules.short_rows import rows_side_by_side
from inlay.schedule.rules.sums import block_alike, block_sum
from inlay.schedule.rules.transposed import MOST_APART
from inlay.schedule.state import Illegal, Schedule, illegal

LANE_LEVELS = 2
"""A block of f32 lanes has 2048 terms: more levels cost short rows more than they give long ones."""

QUARTER = 4
"""Lanes that are combined one by one."""

WIDE_VECTORS = 4
"""Vectors of columns that are reduced together: one alone waits for its last result, and reads a line of the
cache on each of many pages."""

FEWEST_COLUMNS = 4
"""Columns that are reduced by a vector of fewer lanes than registers have, at least."""

LEAST_VECTOR = 16
"""Bytes of the shortest registers that are vectors."""

CHUNK_BYTES = 16 << 10
"""Of lines that are made before the first of them is read, where it is read in other vectors."""

MOST_TAPS = 16
"""Vectors that are reduced without a loop are fewer than these."""

LONG_ROW = 1024
"""Bytes of a row from which on the next one is asked for."""


class _Form(Enum):
    """Where the vectors of a nest are."""

    MAP = auto()
    COLUMNS = auto()
    LANES = auto()
    SERIAL = auto()


@dataclass(frozen=True, slots=True)
class _Nest:
    """A block before anything was done to it.

    Attributes:
        spatial: extents of its spatial loops, outermost first.
        size: lanes of a vector.
    """

    block: str
    form: _Form
    spatial: tuple[Int, ...]
    size: int

    @property
    def rows(self) -> tuple[Int, ...]:
        """Extents of the loops that others may share."""
        return self.spatial[:-1] if self.form is _Form.COLUMNS else self.spatial


def rows(s: Schedule, target: Target) -> None:
    """Schedule a function with reductions.

    Raises:
        Illegal: it has none.
    """
    if all(block.init is None for block in blocks_of(s.body)):
        raise illegal("class", "found no reduction, needed one along rows")
    merge_axes(s)
    in_outputs(s)
    first, *others = s.block_names()
    if not others and _classified(s, first, target).form is _Form.LANES:
        _as_it_lies(s, first)
    if not row_nests(s, s.block_names(), target):
        _parallelize_each(s)


def row_nests(s: Schedule, names: Sequence[str], target: Target, *, around: int = 0) -> int:
    """Schedule neighboring nests row by row.

    Args:
        s: the schedule.
        names: of the blocks, in order; each is in loops of its own, or in some that all share.
        target: the machine.
        around: how many loops all of them are in already. With none, threads share the rows.

    Returns:
        How many loops are over rows, with those around.
    """
    nests = [_classified(s, name, target) for name in names]
    shared = _shared(nests)
    chunk = _chunk(s, nests, shared) if shared > around and target.vector_bytes >= LEAST_VECTOR else 1
    sources = {b.block: a.block for a, b in pairwise(nests) if _makes_terms(s, a, b)}
    outer: list[list[str]] = []
    for nest in nests:
        if nest.block not in sources.values():
            outer += _vectorized(s, nest, shared, target, sources.get(nest.block))
    if chunk > 1:
        outer = [[*loops[:-1], split(s, loops[-1], chunk)[0]] for loops in outer]
    for group in _merged(s, outer):
        if len(group) == shared and group:
            _own_temporaries(s, group[-1])
        if group and not around:
            parallelize(s, group[0])
    return shared


def _as_it_lies(s: Schedule, name: str) -> None:
    """Take rows in the order in which the largest operand is in memory.

    Rows of 256 bytes that are 3 KB apart come from memory at half the speed of rows that follow each other.
    What reads the same row again comes innermost.
    """
    block, loops = s.block(name), spatial_loops(s, name)
    spatial = [i for i in block.iters if i.kind is IterKind.SPATIAL]
    loads = [x for x in loads_of(block.body) if x.buffer not in {y.buffer for y in stores_of(block.body)}]
    if len(loops) != len(spatial) or len(loops) < 2 or not loads:
        return
    largest = max(loads, key=lambda x: prod(inf if n.value is None else n.value for n in x.buffer.shape))
    axes = [
        min((n for n, e in enumerate(largest.indices) if i.sym in symbols(e)), default=None) for i in spatial
    ]
    read = sorted((n, at) for at, n in enumerate(axes) if n is not None)
    order = [at for _, at in read] + [at for at, n in enumerate(axes) if n is None]
    first, usual = (spatial[i].extent.value for i in (order[0], 0))
    if first is None or first >= (usual or 0):  # threads share the first one
        reorder(s, [loops[i] for i in order])


def in_outputs(s: Schedule) -> None:
    """Put temporaries where results will be: that memory is fetched while something is computed.

    Not what reductions write, which they sum in registers.
    """
    for output in s.outputs:
        for block in [x for x in blocks_of(s.body) if x.init is None]:
            buffer = next(stores_of(block.body)).buffer
            if buffer.scope == Scope.PARAM or (buffer.shape, buffer.dtype) != (output.shape, output.dtype):
                continue
            try:
                reuse_output(s, buffer.name, output.name)
            except Illegal:
                continue
            break


def _classified(s: Schedule, name: str, target: Target) -> _Nest:
    block = s.block(name)
    spatial = [i for i in block.iters if i.kind is IterKind.SPATIAL]
    size = width(block, target)
    extents = tuple(s.loop(x).extent for x in spatial_loops(s, name))
    short = _short(spatial[-1].extent.value, size, block) if spatial else 0
    least = FEWEST_COLUMNS if short else size
    if block.init is None:
        form = _Form.MAP
    elif spatial and _runs_along(block, spatial[-1].sym, spatial[-1].extent, least):
        form, size = _Form.COLUMNS, short or size
    elif _runs_along(block, block.iters[-1].sym, block.iters[-1].extent, size, down=True):
        form = _Form.LANES
    else:
        form = _Form.SERIAL
    return _Nest(block.name, form, extents, size)


def is_along_rows(s: Schedule, name: str, target: Target) -> bool:
    """Whether a block reduces what lies side by side, with vectors along it."""
    return _classified(s, name, target).form is _Form.LANES


def makes_terms(s: Schedule, first: str, second: str, target: Target) -> bool:
    """Whether a block makes what the next one reduces along rows, element by element."""
    return _makes_terms(s, _classified(s, first, target), _classified(s, second, target))


def _short(columns: int | None, size: int, block: Block) -> int:
    """Return the lanes of a vector that columns fill by more than half, where they are few; 0 for none.

    Few channels of an image are a part of a vector. Elements that cannot be left out one by one fill it.
    """
    if columns is None or not FEWEST_COLUMNS <= columns < size:
        return 0
    whole = 1 << (columns - 1).bit_length()
    return whole if whole == columns or not is_narrow(block) else 0


def _runs_along(block: Block, sym: Sym, extent: Int, least: int, *, down: bool = False) -> bool:
    """Whether what a block loads is long enough for vectors along an iter, and a few elements apart at most.

    Args:
        block: the block.
        sym: the iter.
        extent: of it.
        least: elements that are enough.
        down: whether it may go down columns, of which there are few.
    """
    if extent.value is not None and extent.value < least:
        return False
    written = {x.buffer for x in stores_of(block.body)}
    found = False
    for load in loads_of(block.body):
        if load.buffer in written or not any(sym in symbols(e) for e in load.indices):
            continue
        if not down and any(sym in symbols(e) for e in load.indices[:-1]):
            return False
        step = coefficient(flat_index(load.buffer, load.indices), sym)
        if step is None or step.value is None or not 1 <= step.value <= MOST_APART:
            return False
        found = True
    return found


def _makes_terms(s: Schedule, a: _Nest, b: _Nest) -> bool:
    """Whether a map makes what the next nest reduces, element by element."""
    if a.form is not _Form.MAP or b.form is not _Form.LANES:
        return False
    block, made = s.block(b.block), _written(s, a.block)
    terms = [i.extent for i in block.iters if i.kind is IterKind.REDUCE]
    is_read = any(x.buffer.name == made for x in loads_of(block.body))
    return is_read and len(terms) == 1 and (*b.spatial, *terms) == a.spatial


def _reads_shifted(s: Schedule, a: _Nest, b: _Nest) -> bool:
    """Whether a nest reads vectors of what the one before writes that begin within those."""
    made, block = _written(s, a.block), s.block(b.block)
    reducing = {i.sym for i in block.iters if i.kind is IterKind.REDUCE}
    last = (x.indices[-1] for x in loads_of(block.body) if x.buffer.name == made)
    return b.form is _Form.COLUMNS and any(not reducing.isdisjoint(symbols(e)) for e in last)


def _chunk(s: Schedule, nests: Sequence[_Nest], shared: int) -> int:
    """Return how many of the innermost rows that nests share are made before the first of them is read.

    A load that begins within what was stored a moment ago waits until that has reached the cache.
    """
    sizes = [_line_bytes(s, a) for a, b in pairwise(nests) if _reads_shifted(s, a, b)]
    rows = nests[0].rows[shared - 1].value if shared > 1 else None
    if not sizes or rows is None or None in sizes:
        return 1
    most = CHUNK_BYTES // sum(n for n in sizes if n is not None)
    return max((n for n in range(1, min(most, rows) + 1) if rows % n == 0), default=1)


def _line_bytes(s: Schedule, nest: _Nest) -> int | None:
    """Return the bytes of the last axis of what a nest writes."""
    buffer = next(stores_of(s.block(nest.block).body)).buffer
    size = buffer.shape[-1].value
    return None if size is None else max(1, size * buffer.dtype.itemsize)


def _shared(nests: list[_Nest]) -> int:
    """Return how many outermost loops all nests have in common, by their extents."""
    common = nests[0].rows
    for nest in nests[1:]:
        same = 0
        for a, b in zip(common, nest.rows, strict=False):
            if a != b:
                break
            same += 1
        common = common[:same]
    return len(common)


# --------------------------------------------------------------------------- one nest


def _vectorized(s: Schedule, nest: _Nest, shared: int, target: Target, source: str | None) -> list[list[str]]:
    """Put vectors into a nest; return the row loops of each nest that comes of it, in order.

    `source` is the map that makes what the nest reduces, if any.
    """
    name = nest.block
    loops = s.loops_of(name)
    match nest.form:
        case _Form.MAP:
            if len(loops) > shared and not (len(loops) > shared + 1 and rows_side_by_side(s, name, target)):
                vectorize_nest(s, loops[-1], target)
            return [list(loops[:shared])]
        case _Form.COLUMNS:
            return [_columns(s, nest)[:shared]]
        case _Form.LANES:
            return _lanes(s, nest, shared, source)
        case _Form.SERIAL:
            block_sum(s, name)
            return [list(loops[:shared])]


def _columns(s: Schedule, nest: _Nest) -> list[str]:
    """Vectors along the last spatial axis, accumulators in registers, the reduction between.

    Returns the loops outside the tiles.
    """
    name, axis = nest.block, len(nest.spatial) - 1
    count = _vectors_of_columns(s.block(name), nest)
    copy = cache_write(s, name, "register")
    loops = s.loops_of(name)
    tiles, lanes = _cut_lanes(s, loops[axis], nest.size, count)
    for b in block_sum(s, name, lanes):
        *around, inner = s.loops_of(b)[axis : len(s.loops_of(b)) - len(lanes)]
        _write_lanes(s, s.loops_of(b)[-len(lanes) :])
        if around and count * (s.loop(inner).extent.value or MOST_TAPS) < MOST_TAPS:
            unroll(s, inner)
    mine = s.loops_of(copy)
    copy_tiles, copy_lanes = _cut_lanes(s, mine[axis], nest.size, count)
    _write_lanes(s, copy_lanes)
    for a, b in zip((*loops[:axis], tiles), (*mine[:axis], copy_tiles), strict=True):
        merge(s, a, b)
    set_scope(s, _written(s, name), "register", at=tiles)
    return list(loops[:axis])


def _vectors_of_columns(block: Block, nest: _Nest) -> int:
    """Return how many vectors of columns are reduced at a time: so that few are left out of the last ones."""
    last, columns = [i for i in block.iters if i.kind is IterKind.SPATIAL][-1], nest.spatial[-1].value
    if columns is None or columns <= nest.size or operations(block.body) > CHEAP_BODY:
        return 1
    below = (y for x in stores_of(block.body) for y in scalars_below(x.value))
    tests = [block.predicate, *(x.condition for x in below if isinstance(x, Select))]
    is_tested = any(x is not None and last.sym in mentioned(x) for x in tests)
    if is_tested or (is_narrow(block) and columns % nest.size):
        return 1
    vectors = -(-columns // nest.size)
    sizes = [n for n in range(WIDE_VECTORS, 1, -1) if vectors % n == 0 or not is_narrow(block)]
    return min(sizes, key=lambda n: -(-vectors // n) * n, default=1)


def _cut_lanes(s: Schedule, loop: str, size: int, count: int) -> tuple[str, list[str]]:
    """Cut a loop into so many vectors at a time; return the loop over these, and those inside of it."""
    tiles, inner = split(s, loop, size * count)
    return tiles, [inner] if count == 1 else [*split(s, inner, size)]


def _write_lanes(s: Schedule, lanes: Sequence[str]) -> None:
    """Write out the loop over vectors, if there is one, and make the other a vector."""
    vectorize(s, lanes[-1])
    for loop in lanes[:-1]:
        unroll(s, loop)


def _lanes(s: Schedule, nest: _Nest, shared: int, source: str | None) -> list[list[str]]:
    """Accumulators along the innermost axis: several vectors, then one vector, then one number."""
    name, axis = nest.block, len(nest.spatial)
    block = s.block(name)
    copy = cache_write(s, name, "register") if _is_output(s, name) else None
    if source is not None:
        depth = _merge_into(s, list(s.loops_of(source)[:axis]), list(s.loops_of(name)))
        shared = min(shared, depth)
    loops = s.loops_of(name)
    extent = s.loop(loops[-1]).extent.value
    count = UNROLLED_VECTORS if operations(block.body) <= CHEAP_BODY else 2
    if source is not None and operations(s.block(source).body) > CHEAP_BODY:
        count = 1  # what makes a term takes longer than adding it
    while extent is not None and count > 1 and extent < nest.size * count:
        count //= 2
    counts = [n for n in (1, 2, 4, 8) if n == 1 or extent is None or extent >= nest.size * n]
    count = s.asked.pick(f"{name}.lanes", count, counts if source is None else ())
    _, inner = split(s, loops[-1], nest.size * count)
    if count > 1 or source is not None:
        group, lane = split(s, inner, nest.size)
        _accumulate(s, name, axis, [group, lane], source)
        _, lane = s.loops_of(name)[axis:]
        few = _accumulate(s, name, axis, [lane])
        unroll(s, s.loops_of(few)[axis])
    else:
        _accumulate(s, name, axis, [inner])
    _quarter(s, name, axis, nest.size)
    reduction = s.loops_of(name)[axis:]
    unroll(s, reduction[-1])
    decompose_reduction(s, name, reduction[0])
    rows_of = [list(loops[:shared])]
    return rows_of if copy is None else [*rows_of, _like(s, copy, name)[:shared]]


def _like(s: Schedule, copy: str, name: str) -> list[str]:
    """Put the loops of a copy into the order of those of the block that writes what is copied."""
    at = next(stores_of(s.block(name).body)).indices
    block = s.block(name)
    bound = {i.sym: symbols(b) for i, b in zip(block.iters, block.bindings, strict=True)}
    axis_of = {x: n for n, e in enumerate(at) for i in symbols(e) for x in bound.get(i, ())}
    mine = s.loops_of(copy)
    order = [axis_of[s.loop(x).var] for x in spatial_loops(s, name)]
    if order != sorted(order):
        reorder(s, [mine[n] for n in order])
    return list(s.loops_of(copy))


def _quarter(s: Schedule, name: str, axis: int, lanes: int) -> None:
    """Combine the parts of a vector, so that fewer lanes are left to be combined one after the other."""
    if lanes <= QUARTER:
        return
    _, within = split(s, s.loops_of(name)[-1], QUARTER)
    part = _accumulate(s, name, axis, [within])
    unroll(s, s.loops_of(part)[axis])


def _accumulate(s: Schedule, name: str, axis: int, lanes: list[str], source: str | None = None) -> str:
    """Factor lanes out of a reduction, the innermost loop becomes a vector; return the new block.

    `source` is the block that makes what is reduced, if it is to be computed in the same loops.
    """
    many = rfactor(s, name, lanes)
    reduction = [x for x in s.loops_of(many)[axis:] if x not in lanes]
    reorder(s, [*lanes, *reduction])
    blocks = block_sum(s, many, lanes, LANE_LEVELS)
    if source is not None:
        _make_along(s, source, blocks[0], axis)
    for b in blocks:
        loops = s.loops_of(b)
        vectorize(s, loops[-1])
        for loop in loops[len(loops) - len(lanes) : -1]:
            unroll(s, loop)
    if axis:
        set_scope(s, _written(s, many), "register", at=s.loops_of(many)[axis - 1])
    else:
        set_scope(s, _written(s, many), "register")
    return many


def _make_along(s: Schedule, source: str, block: str, axis: int) -> None:
    """Put what makes the terms of a sum into the loops that add them, as far as they can be one."""
    around = s.loops_of(block)[axis:]
    group, lane = (s.loop(x).extent.value or 1 for x in around[-2:])
    steps, inner = split(s, s.loops_of(source)[-1], group * lane)
    split(s, inner, lane)
    block_alike(s, source, steps, block, LANE_LEVELS)
    mine = list(s.loops_of(source)[axis:])
    if _merge_into(s, mine, list(around)) < len(around):
        unroll(s, mine[-2])
        vectorize(s, mine[-1])
    if group == 1:
        loop = s.loops_of(source)[-3]
        annotate(s, loop, "steps", f"{MIXED_VECTORS} mixed")
        if ahead := _rows_ahead(s.block(source)):
            annotate(s, loop, "prefetch", ahead)


def _rows_ahead(b: Block) -> str:
    """Return the note that asks for the next row of what a block reads, where a row is long.

    The processor sees by itself what comes next in a page, and with rows of a page nothing is next.
    """
    found: dict[str, int] = {}
    for x in loads_of(b.body):
        if x.buffer.scope == Scope.PARAM and len(x.buffer.shape) > 1:
            size = (x.buffer.shape[-1].value or 0) * x.buffer.dtype.itemsize
            if size >= LONG_ROW and coefficient(x.indices[-1], b.iters[-1].sym) == 1:
                found[x.buffer.name] = size
    return ", ".join(f"{name} {size}" for name, size in found.items())


def _written(s: Schedule, block: str) -> str:
    return next(stores_of(s.block(block).body)).buffer.name


def _is_output(s: Schedule, block: str) -> bool:
    return s.buffer(_written(s, block)).scope == Scope.PARAM


# --------------------------------------------------------------------------- all nests


def _merged(s: Schedule, nests: list[list[str]]) -> list[list[str]]:
    """Merge neighboring nests along their rows; return the loops of each that is left."""
    groups: list[list[str]] = []
    for nest in nests:
        depth = _merge_into(s, groups[-1], nest) if groups else 0
        if depth:
            groups[-1] = groups[-1][:depth]
        else:
            groups.append(nest)
    return groups


def _merge_into(s: Schedule, group: list[str], nest: list[str]) -> int:
    """Merge loops from the outside in, but those that are one already; return how many are one then."""
    depth = 0
    for a, b in zip(group, nest, strict=False):
        try:
            if a != b:
                merge(s, a, b)
        except Illegal:
            break
        depth += 1
    return depth


def _own_temporaries(s: Schedule, row: str) -> None:
    """Give each row temporaries of its own where nothing else reads them."""
    loop = s.loop(row)
    inside: dict[str, bool] = {}
    here = {x.buffer for x in stmts_below(loop.body) if isinstance(x, Alloc)}
    mine = {x.buffer for x in s.accesses(loop)} - here
    for x in s.accesses(s.body):
        if x.buffer.scope == Scope.PARAM or x.buffer not in mine:
            continue
        at_row = loop in x.loops
        swept = region(x, loop) if at_row else None
        single = swept is not None and all(i.extent == 1 for i in swept)
        inside[x.buffer.name] = inside.get(x.buffer.name, True) and single
    for name, single in inside.items():
        try:
            set_scope(s, name, "register" if single else "workspace", at=row)
        except Illegal:
            continue


def _parallelize_each(s: Schedule) -> None:
    """Share the outermost loop of each nest, where its iterations are independent."""
    seen: set[str] = set()
    for block in s.block_names():
        loops = s.loops_of(block)
        if not loops or loops[0] in seen:
            continue
        seen.add(loops[0])
        try:
            parallelize(s, loops[0])
        except Illegal:
            continue
