"""What notes of loops ask to prefetch: `B 2048, w 9216 lines:1 every:2 k:-192+1 row:192 steps:48 tiles:i*j`.

Each item names a buffer, and how many bytes ahead of what is loaded from it is asked for. With `lines`, so
many cache lines are for each row of the buffer, at a place that loops around move:

* `k:-192`: so many bytes more for each iteration of `k`.
* `row:192 steps:48 tiles:i*j`: the iterations of loops `i` and `j`, whose numbers are known when the code
  runs, ask together for 48 rows of 192 bytes. A tile asks for its share, which is whole lines, from the first
  step on and for `lines` in each: with `k:-192+1`, iterations of `k` count as one step each. No line is asked
  for twice while it is on its way, which takes Zen 4 up to half as long again; the last one is, by all steps
  that are left, when it is there. Tiles that are too few for all lines ask for the first of their shares.
* `every:2`: of the steps that are written out in one turn of the loop, each second asks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from inlay.arith.expr import ceildiv, maximum, to_int
from inlay.codegen.llvm_index import IndexEmitter, Linear, add, multiply, number
from inlay.loop.stmt import For

LINE = 64
"""Bytes of a cache line."""


@dataclass(frozen=True, slots=True)
class Ahead:
    """What to prefetch where a buffer is loaded from.

    Attributes:
        distance: bytes ahead of what is loaded.
        lines: cache lines for each row of the buffer; None for as many as are loaded.
        loops: bytes more for each iteration of loops around, by their names. One that runs once may be gone.
        every: of so many steps of a turn, the first asks.
        share: of one of several tiles whose number is known when the code runs.
    """

    distance: int
    lines: int | None
    loops: tuple[tuple[str, int], ...]
    every: int
    share: Share | None


@dataclass(frozen=True, slots=True)
class Share:
    """The part of a panel that one tile asks for.

    Attributes:
        begin: of the part, in bytes; known in front of the loop that has the note.
        last: where in it the last lines begin that one step asks for.
        loops: bytes more for each iteration of loops over steps, up to the last ones.
    """

    begin: Linear
    last: Linear
    loops: tuple[tuple[str, int], ...]


def aheads(s: For, index: IndexEmitter) -> dict[str, Ahead]:
    """Return what the notes of a loop ask for, by names of buffers; emits what all its steps share."""
    notes = (value for key, value in s.note if key == "prefetch")
    found = (_ahead(item, index) for note in notes for item in note.split(","))
    return dict(found)


def moved(ahead: Ahead, index: IndexEmitter) -> Linear:
    """Return how many bytes the loops around move what is asked for."""
    fixed = _sum(ahead.loops, index)
    if ahead.share is None:
        return fixed
    inside = index.least(_sum(ahead.share.loops, index), ahead.share.last)
    return add(fixed, add(ahead.share.begin, inside))


def _sum(loops: Sequence[tuple[str, int]], index: IndexEmitter) -> Linear:
    """Return what loops around add up to, each with so many bytes for each iteration."""
    known = ((index.env[index.around[x].var], each) for x, each in loops if x in index.around)
    return reduce(add, (multiply(value, number(each)) for value, each in known), number(0))


def _ahead(item: str, index: IndexEmitter) -> tuple[str, Ahead]:
    """Read one item of a note."""
    buffer, distance, *words = item.split()
    given = dict(word.split(":") for word in words)
    lines, row, steps, tiles = (given.pop(key, None) for key in ("lines", "row", "steps", "tiles"))
    every = int(given.pop("every", 1))
    by_loop = {loop: each.partition("+") for loop, each in given.items()}
    share = None
    if lines is not None and row is not None and steps is not None and tiles is not None:
        at_once = LINE * int(lines)
        size, tile = _share(int(row) * int(steps), tiles.split("*"), index)
        counts = [(loop, int(count or 0) * at_once // every) for loop, (_, _, count) in by_loop.items()]
        share = Share(multiply(tile, size), add(size, number(-at_once)), tuple(counts))
    loops = tuple((loop, int(size)) for loop, (size, _, _) in by_loop.items())
    return buffer, Ahead(int(distance), None if lines is None else int(lines), loops, every, share)


def _share(panel: int, tiles: Sequence[str], index: IndexEmitter) -> tuple[Linear, Linear]:
    """Return how many bytes of a panel a tile asks for, and which tile this is."""
    tile, count = number(0), to_int(1)
    for loop in (index.around[x] for x in tiles if x in index.around):
        tile = add(multiply(tile, index.linear(loop.extent)), index.env[loop.var])
        count *= loop.extent
    # It may be computed in front of loops that do not run.
    lines = ceildiv(to_int(panel), maximum(count, 1) * LINE)
    return multiply(index.linear(lines), number(LINE)), tile
