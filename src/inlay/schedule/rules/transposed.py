"""Copies across the grain as transpositions of tiles in registers.

A loop along rows of the result walks down a column of what is loaded: elements are a row apart. Next to each
column is the next one, though, which a loop around it comes to. So a tile of as many rows as a vector has
lanes, and of 16 bytes of each, is loaded row by row, and transposed by shuffles:

    for line of columns { for tile of rows {
      for part of the line { for j in 0..16 bytes unroll (loads="transposed") { for i in 0..lanes vector {
        y[j, i] = x[i, j] } } } } }

The tile of a whole line of the cache is read before the next one is, and where a vector is less than a line,
those of a line are written one after the other. Each result takes log2(16 bytes) shuffles of a vector, where
elements one by one take a load and a store each.

Columns of the result that are whole pages apart, as planes of images are, share a set of the first cache.
More of them than it has ways would each push the other out, so then a line is as many as it has, and rows
are in blocks that stay in it until all lines have read them (if what is read does not share one, too):

    for block of rows { for line of columns { for tile of rows in the block { ... } } }
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from inlay.arith.expr import Int, Sym, coefficient, substitute, to_int
from inlay.loop.buffer import flat_index
from inlay.loop.scalar import Load, Select
from inlay.loop.stmt import Block, For, Store
from inlay.loop.walk import blocks_of, loads_of, own_scalars, scalars_below, stores_of
from inlay.schedule.primitives.annotate import annotate
from inlay.schedule.primitives.fuse import fuse
from inlay.schedule.primitives.peel import peel
from inlay.schedule.primitives.reorder import reorder
from inlay.schedule.primitives.split import split
from inlay.schedule.primitives.unroll import unroll
from inlay.schedule.primitives.vectorize import vectorize
from inlay.schedule.state import Schedule

PIECE = 16
"""Bytes of a row that are loaded at once: shuffles stay inside of so many."""
MOST_APART = 4
"""Elements between lanes, at most, where all vectors that they are in are loaded and shuffled."""
_FEWEST_LANES = 4
LINE = 64
"""Bytes of a line of the cache."""
PAGE = 4096
"""Bytes after which the sets of the first cache begin again."""
WAYS = 8
"""Lines in a set of the first cache, at least: as many columns are written at once where they share a set."""
_BLOCK = 8
"""Tiles of rows that are read again for other columns before the next ones are."""


def step_of(block: Block, access: Load | Store, loop: Sym) -> int | None:
    """Return how many elements an access goes on with each iteration of a loop; None if that is no number."""
    step = coefficient(_place_of(block, access), loop)
    return None if step is None else step.value


def _place_of(block: Block, access: Load | Store) -> Int:
    """Return which element of its buffer is read or written, by the loops around the block."""
    bound = {i.sym: x for i, x in zip(block.iters, block.bindings, strict=True)}
    return substitute(flat_index(access.buffer, access.indices), bound)


def distances_of(block: Block, load: Load, loop: Sym, lanes: int) -> list[int] | None:
    """Return how far the elements of a vector along a loop are from the first one, lane by lane.

    None where that is not known, or not the same for each vector of so many lanes.
    """
    place = _place_of(block, load)
    places = [substitute(place, {loop: lanes * to_int(loop) + lane}) for lane in range(lanes)]
    found = [(p - places[0]).value for p in places]
    numbers = [d for d in found if d is not None]
    return numbers if len(numbers) == lanes else None


def tile_of(block: Block, loops: tuple[For, For], lanes: int) -> int:
    """Return how many columns a tile has, one for each iteration of the loop outside; 0 where there is none.

    Every load whose lanes are far apart is to go on to the next element in that loop; others may do as they
    like.

    Args:
        block: in both loops.
        loops: the one outside, and the one over the lanes.
        lanes: of a vector.
    """
    outside, loop = loops
    if block.predicate is not None or any(
        isinstance(x, Select) for value in own_scalars(block.body) for x in scalars_below(value)
    ):
        return 0  # what stands behind a condition may not be loaded
    steps = [(x, step_of(block, x, loop.var)) for x in loads_of(block)]
    far = [x for x, step in steps if step is not None and abs(step) >= MOST_APART]
    if not far or any(step is None for _, step in steps):
        return 0
    if any(step_of(block, x, outside.var) != 1 for x in far):
        return 0
    most = min(PIECE // max(x.buffer.dtype.itemsize for x in far), lanes)
    columns = most if outside.extent.value is None else power_within(min(most, outside.extent.value))
    rows = loop.extent.value  # one tile and a part of one go as fast without
    is_enough = rows is None or rows >= 2 * lanes or rows == lanes
    return columns if columns > 1 and is_enough else 0


def power_within(n: int) -> int:
    """Return the largest power of two that is not more."""
    return 1 << n.bit_length() >> 1


def _are_pages_apart(s: Schedule, outside: str, loop: str) -> bool:
    """Whether columns of the result lie whole pages apart, and so in one set of the first cache.

    Where the rows that are read do so too, a line of them had better be taken whole.
    """
    block = next(blocks_of(s.loop(outside)))

    def some(accesses: Iterable[Load | Store], along: str) -> bool:
        steps = [(x.buffer.dtype.itemsize, step_of(block, x, s.loop(along).var)) for x in accesses]
        return any(n and size * n % PAGE == 0 for size, n in steps)

    return some(stores_of(block.body), outside) and not some(loads_of(block), loop)


def _vectors_of_line(s: Schedule, loop: str, lanes: int) -> int:
    """Return how many vectors of a result fill a line of the cache, which the next tile finds gone."""
    block, count = next(blocks_of(s.loop(loop))), s.loop(loop).extent.value
    vectors = LINE // (lanes * max(x.buffer.dtype.itemsize for x in stores_of(block.body)))
    return vectors if vectors > 1 and count is not None and count % (vectors * lanes) == 0 else 1


def _peel_rows(s: Schedule, around: Sequence[str], columns: int, lanes: int) -> None:
    """Make a nest of its own of the rows that are left over behind whole vectors.

    Inside of another loop both would be that loop's, which then is not one with those of tiles.
    """
    *outer, loop = around
    extent, block = s.loop(loop).extent.value, next(blocks_of(s.loop(loop)))
    if extent is None or extent <= lanes or extent % lanes == 0 or s.loops_of(block.name)[0] != around[0]:
        return
    reorder(s, [loop, *outer])
    names = peel(s, loop, extent - extent % lanes)
    rest = [names[x] for x in around]
    for nest in (around, rest):
        reorder(s, nest)
    if (fewer := power_within(extent % lanes)) >= _FEWEST_LANES:
        transpose_tiles(s, rest, columns, fewer)


def transpose_tiles(s: Schedule, around: Sequence[str], columns: int, lanes: int) -> str:
    """Schedule loops as tiles that are transposed; returns the outermost of them.

    Columns that are left over behind whole lines are nests of their own: under a condition a tile goes
    element by element.

    Args:
        s: the schedule.
        around: loops, each all that is in the one before: the first over columns, the last over rows.
        columns: of a tile.
        lanes: of a vector.
    """
    _peel_rows(s, around, columns, lanes)
    count = s.loop(around[0]).extent.value
    if not _are_pages_apart(s, around[0], around[-1]):
        line = LINE // PIECE * columns
        if count is not None and count < 2 * line:
            line = count - count % columns
        return _tiles(s, around, (line, columns, lanes), 1)
    columns, block = min(columns, WAYS), 1
    if count is None or count > WAYS:
        tiles = (s.loop(around[-1]).extent.value or 0) // (lanes * _vectors_of_line(s, around[-1], lanes))
        block = min(tiles & -tiles or 1, _BLOCK)  # a power that divides them
    return _tiles(s, around, (WAYS, columns, lanes), block)


def _tiles(s: Schedule, around: Sequence[str], sizes: tuple[int, int, int], block: int) -> str:
    """Cut loops, given as for `transpose_tiles`, into tiles, and columns that are left over likewise.

    Args:
        s: the schedule.
        around: the loops.
        sizes: columns of a line, columns of a tile, lanes of a vector.
        block: tiles of rows of which all lines are done before the next ones.
    """
    (outside, *middle, loop), (line, columns, lanes) = around, sizes
    count, vectors = s.loop(outside).extent.value, _vectors_of_line(s, loop, lanes)
    if count is not None:
        line = min(line, count - count % columns)
        if count % line:
            rest = peel(s, outside, count - count % line)
            _columns_left(s, [rest[x] for x in around], sizes, block)
    lines, within = split(s, outside, line)
    part, column = split(s, within, columns)
    rows, lane = split(s, loop, lanes)
    inside = [part, column]
    if vectors > 1:
        rows, vector = split(s, rows, vectors)
        inside.insert(1, vector)
    unroll(s, column)
    annotate(s, column, "loads", "transposed")
    vectorize(s, lane)
    if block > 1:
        blocks, rows = split(s, rows, block)
        reorder(s, [*middle, blocks, lines, rows, *inside])
        return [*middle, blocks][0]
    reorder(s, [*middle, rows, *inside])
    # Threads share the rows of a single line.
    return fuse(s, lines, [*middle, rows][0]) if s.loop(lines).extent == 1 else lines


def _columns_left(s: Schedule, around: Sequence[str], sizes: tuple[int, int, int], block: int) -> None:
    """Cut columns that are left over, as many rows at a time as those before, to be done beside them."""
    (outside, *middle, loop), (line, columns, lanes) = around, sizes
    count, rows = s.loop(outside).extent.value or 1, s.loop(loop).extent.value
    if (columns := min(columns, power_within(count))) > 1:
        _tiles(s, around, (line, columns, lanes), block)
        return
    tile = block * lanes * _vectors_of_line(s, loop, lanes)
    if rows is not None and rows % tile == 0:
        parts, within = split(s, loop, tile)
        _, row = split(s, within, min(tile, PIECE))
        unroll(s, row)
        fuse(s, outside, [*middle, parts][0])
