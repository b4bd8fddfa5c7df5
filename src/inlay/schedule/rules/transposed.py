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
"""

from __future__ import annotations

from collections.abc import Sequence

from inlay.arith.expr import Int, Sym, coefficient, substitute, to_int
from inlay.loop.buffer import flat_index
from inlay.loop.scalar import Load, Select
from inlay.loop.stmt import Block, For
from inlay.loop.walk import blocks_of, loads_of, own_scalars, scalars_below, stores_of
from inlay.schedule.primitives.annotate import annotate
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
_LINE = 64


def step_of(block: Block, load: Load, loop: Sym) -> int | None:
    """Return how many elements a load goes on with each iteration of a loop; None where that is no number."""
    step = coefficient(_place_of(block, load), loop)
    return None if step is None else step.value


def _place_of(block: Block, load: Load) -> Int:
    """Return which element of its buffer a load reads, by the loops around the block."""
    bound = {i.sym: x for i, x in zip(block.iters, block.bindings, strict=True)}
    return substitute(flat_index(load.buffer, load.indices), bound)


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
    columns = most if outside.extent.value is None else _power_within(min(most, outside.extent.value))
    rows = loop.extent.value  # one tile and a part of one go as fast without
    is_enough = rows is None or rows >= 2 * lanes or rows == lanes
    return columns if columns > 1 and is_enough else 0


def _power_within(n: int) -> int:
    """Return the largest power of two that is not more."""
    return 1 << n.bit_length() >> 1


def _vectors_of_line(s: Schedule, loop: str, lanes: int) -> int:
    """Return how many vectors of a result fill a line of the cache, which the next tile finds gone."""
    block, count = next(blocks_of(s.loop(loop))), s.loop(loop).extent.value
    vectors = _LINE // (lanes * max(x.buffer.dtype.itemsize for x in stores_of(block.body)))
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
    if (fewer := _power_within(extent % lanes)) >= _FEWEST_LANES:
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
    outside, *middle, loop = around
    line, count = _LINE // PIECE * columns, s.loop(outside).extent.value
    if count is not None and count < 2 * line:
        line = count - count % columns
    if count is not None and count % line:
        names = peel(s, outside, count - count % line)
        if (rest := _power_within(min(count % line, columns))) > 1:
            transpose_tiles(s, [names[x] for x in around], rest, lanes)
    lines, within = split(s, outside, line)
    part, column = split(s, within, columns)
    vectors = _vectors_of_line(s, loop, lanes)
    rows, lane = split(s, loop, lanes)
    inside = [part, column]
    if vectors > 1:
        rows, vector = split(s, rows, vectors)
        inside.insert(1, vector)
    reorder(s, [*middle, rows, *inside])
    unroll(s, column)
    annotate(s, column, "loads", "transposed")
    vectorize(s, lane)
    return lines
