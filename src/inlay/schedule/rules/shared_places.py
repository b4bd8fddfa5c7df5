"""Rows that take elements from the same computed places share those.

The lanes of a row load their places, widen them, and bring those that count from the end inside of the axis:
that takes as long as to take the elements. Where places are the same in all rows, a few rows go together:

    for c in 0..64 { for v in 0..n { for i in lanes { y[c, v, i] = x[c, at(t[v, i])] } } }

    for c_o in 0..16 { for v in 0..n { for c_i in 0..4 unroll { for i in lanes { ... } } } }

A place is then computed once for them, by the numbering of values while code is generated.
"""

from __future__ import annotations

from collections.abc import Iterator

from inlay.arith.expr import Sym, symbols
from inlay.loop.stmt import Block, Let
from inlay.loop.walk import blocks_of, loads_of, stmts_below, symbols_of
from inlay.schedule.primitives.reorder import reorder
from inlay.schedule.primitives.split import split
from inlay.schedule.primitives.unroll import unroll
from inlay.schedule.state import Schedule

ROWS = (4, 2)
"""How many go together, the first that divides them (Zen 5, 64 channels of 4,096 bilinear samples, us with 1,
2, 4, 8 and 16: 413, 313, 277, 275, 262)."""


def share_places(s: Schedule, block: str, rows: str) -> None:
    """Let iterations of a loop around vectors compute places of elements once for several of them.

    Args:
        s: the schedule.
        block: in vectors.
        rows: a loop around them.
    """
    loops = s.loops_of(block)
    inside = loops[loops.index(rows) + 1 :]
    extent = s.loop(rows).extent.value or 1
    count = next((n for n in ROWS if extent % n == 0 and extent > n), 1)
    if count == 1 or len(inside) < 2 or len(list(blocks_of(s.loop(rows)))) > 1:
        return
    row, lanes = s.loop(rows).var, {s.loop(x).var for x in inside}
    if not any(row not in at and at & lanes for at in computed_places(s.block(block))):
        return
    outer, inner = split(s, rows, count)
    reorder(s, [outer, *inside[:-1], inner])
    unroll(s, inner)


def computed_places(block: Block) -> Iterator[set[Sym]]:
    """Yield the loops that each index depends on which a block computes from numbers that it loads."""
    loops = {i.sym: {*symbols(x)} for i, x in zip(block.iters, block.bindings, strict=True)}
    for let in stmts_below(block.body):
        if isinstance(let, Let):
            loops[let.sym] = {v for x in symbols_of(let.value) for v in loops.get(x, ())}
    places = {x for load in loads_of(block) for e in load.indices for x in symbols(e)}
    iters = {i.sym for i in block.iters}
    yield from (loops[x] for x in places - iters if x in loops)
