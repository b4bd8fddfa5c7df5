"""What notes of loops ask to prefetch: `B 2048, w 9216 lines:1 every:2 k:-192+1 row:192 steps:48 tiles:i*j`.

Each item names a buffer, and how many bytes ahead of what is loaded from it is asked for. With `lines`, so
many cache lines are for each row of the buffer, at a place that loops around move:

* `k:-192`: so many bytes more for each iteration of `k`.
* `row:192 steps:48 tiles:i*j`: the iterations of loops `i` and `j`, whose numbers are known when the code
  runs, ask together for 192 bytes in each of their 48 steps. So a step of one tile asks for a share of
  192 / (number of tiles) bytes, and a tile begins where the one before ended. `k:-192+1` is a share more for
  each iteration of `k`.
* `every:2`: of the steps that are written out in one turn of the loop, each second asks, for both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from inlay.arith.expr import maximum, to_int
from inlay.codegen.llvm_index import IndexEmitter, Linear, add, multiply, number
from inlay.loop.stmt import For


@dataclass(frozen=True, slots=True)
class Ahead:
    """What to prefetch where a buffer is loaded from.

    Attributes:
        distance: bytes ahead of what is loaded.
        lines: cache lines for each row of the buffer; None for as many as are loaded.
        begin: bytes more, which are known in front of the loop that has the note.
        loops: bytes more for each iteration of loops around, by their names. One that runs once may be gone.
        every: of so many steps of a turn, the first asks.
    """

    distance: int
    lines: int | None
    begin: Linear
    loops: tuple[tuple[str, Linear], ...]
    every: int


def aheads(s: For, index: IndexEmitter) -> dict[str, Ahead]:
    """Return what the notes of a loop ask for, by names of buffers; emits what all its steps share."""
    notes = (value for key, value in s.note if key == "prefetch")
    found = (_ahead(item, index) for note in notes for item in note.split(","))
    return dict(found)


def moved(ahead: Ahead, index: IndexEmitter) -> Linear:
    """Return how many bytes the loops around move what is asked for."""
    known = ((index.env[index.around[loop].var], each) for loop, each in ahead.loops if loop in index.around)
    return reduce(add, (multiply(value, each) for value, each in known), ahead.begin)


def _ahead(item: str, index: IndexEmitter) -> tuple[str, Ahead]:
    """Read one item of a note."""
    buffer, distance, *words = item.split()
    given = dict(word.split(":") for word in words)
    lines, row, steps, tiles = (given.pop(key, None) for key in ("lines", "row", "steps", "tiles"))
    every = int(given.pop("every", 1))
    share, begin = number(0), number(0)
    if row is not None and steps is not None and tiles is not None:
        share, tile = _share(int(row), tiles.split("*"), index)
        begin = multiply(tile, multiply(share, number(int(steps))))
    loops: list[tuple[str, Linear]] = []
    for loop, each in given.items():
        size, _, shares = each.partition("+")
        loops.append((loop, add(number(int(size)), multiply(share, number(int(shares or 0))))))
    return buffer, Ahead(int(distance), None if lines is None else int(lines), begin, tuple(loops), every)


def _share(row: int, tiles: Sequence[str], index: IndexEmitter) -> tuple[Linear, Linear]:
    """Return how many bytes of a row a tile asks for, and which tile this is."""
    tile, count = number(0), to_int(1)
    for loop in (index.around[x] for x in tiles if x in index.around):
        tile = add(multiply(tile, index.linear(loop.extent)), index.env[loop.var])
        count *= loop.extent
    # It may be computed in front of loops that do not run.
    return index.linear(to_int(row) // maximum(count, 1)), tile
