"""Fetch the next panel of packed weights while the present one is used.

The tiles of rows pass a panel one after the other. The first of them waits for what is not in the second
cache, and in a network that is most of it: weights of other layers were there before. So each step of a
reduction asks for a part of the next panel, such that all tiles together ask for all of it:

    for tile in 0..n { for k in 0..K {
      prefetch byte (tile * K + k) * ceil(bytes of a row of the panel / n) of the next panel ... } }

That is a note on the loop over `k`, and a hint: there need be no next panel. A prefetch takes most of a
cycle, so of steps that are written out together only as many ask as lines there are to ask for.

Where `n` is known when the kernel runs, so is the part of the panel that a tile asks for: a line in each of
its first steps, in code for few tiles, or in one of those written out together, in code for many. Tiles of
other sizes, which are few, ask for none.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from inlay.arith.bounds import bounds
from inlay.arith.expr import FloorDiv
from inlay.loop.buffer import Scope
from inlay.loop.scalar import Load
from inlay.loop.stmt import Block, IterKind, LoopKind
from inlay.loop.walk import loads_of, written_out
from inlay.machine.target import Target
from inlay.schedule.primitives.annotate import annotate
from inlay.schedule.primitives.version import version
from inlay.schedule.rules.groups import packed_panel
from inlay.schedule.rules.loops import reduce_loops
from inlay.schedule.state import Schedule

MOST_REPEATED = 10
"""Times that a line is asked for, at most. Few bytes in each of many steps are the same line again and
again, and with many tiles the first is a small part of all.
"""
_LINE = 64


def fetch_next(s: Schedule, blocks: Sequence[str], panel: int, target: Target) -> None:
    """Ask for the next panel in the loops of tiles.

    Args:
        s: the schedule, with loops over rows, terms and columns as they will stay.
        blocks: those that multiply, one for each nest of tiles of one size, in order of execution.
        panel: which of the loops around them is over panels, from the outside.
        target: the machine; its second cache is to hold both panels.
    """
    found = _weights(s.block(blocks[0]))
    if found is None:
        return
    weights, axis = found
    extents = [e.value for e in weights.buffer.shape[axis + 1 :]]
    if None in extents or all(e == 1 for e in weights.buffer.shape[: axis + 1]):
        return
    size = prod(e for e in extents if e is not None) * weights.buffer.dtype.itemsize
    nests = [_nest(s, block, panel) for block in blocks]
    if len(nests[0].terms) < len(reduce_loops(s, blocks[0])):
        # The next block of terms is behind this one, and the next panel behind the last of them.
        terms = prod(i.extent.value or 1 for i in s.block(blocks[0]).iters if i.kind is IterKind.REDUCE)
        size = size // terms * _steps(s, nests[0])
    if 2 * size > target.l2_bytes:
        return
    is_open = any(s.loop(x).extent.value is None for x in nests[0].tiles)
    counts = [prod(s.loop(x).extent.value or 1 for x in nest.tiles) for nest in nests]
    total = counts[0] if is_open else sum(counts)
    row = size // _steps(s, nests[0])
    # One tile would ask for as much as it loads.
    if (total < 2 and not is_open) or total * _LINE > MOST_REPEATED * row * _every(
        s, nests[0], -(-row // total)
    ):
        return
    if not s.asked.switch(f"{blocks[0]}.prefetch", default=True):
        return
    if is_open:
        _ask_open(s, nests[0], weights, size, total)
        return
    for n, nest in enumerate(nests):
        _ask(s, nest, weights, size, sum(counts[:n]), total)


def _ask_open(s: Schedule, nest: _Nest, weights: Load, size: int, known: int) -> None:
    """Ask in each step, or where there are tiles enough for that, in one of those written out together.

    There are a multiple of `known` tiles.
    """
    together, _ = written_out(s.loop(nest.terms[-1]))
    enough = -(-together * (size // _steps(s, nest)) // (_LINE * known))
    many = nest
    if together > 1 and enough > 1:
        names = version(s, next(x for x in nest.tiles if s.loop(x).extent.value is None), enough)
        many = _Nest(*([names.get(x, x) for x in loops] for loops in nest))
        _ask(s, nest, weights, size)
    _ask(s, many, weights, size, every=together)


def _every(s: Schedule, nest: _Nest, share: int) -> int:
    """Return of how many steps that are written out together one asks for a line: each needs a share."""
    together, _ = written_out(s.loop(nest.terms[-1]))
    return next(n for n in range(together, 0, -1) if together % n == 0 and (n == 1 or n * share <= _LINE))


def _ask(
    s: Schedule,
    nest: _Nest,
    weights: Load,
    size: int,
    before: int = 0,
    total: int | None = None,
    every: int = 1,
) -> None:
    """Note on the loop over terms what a nest of tiles asks for.

    Args:
        s: the schedule.
        nest: of tiles.
        weights: that are packed.
        size: bytes of a panel.
        before: tiles of nests before this one.
        total: all tiles; None where that is not known, and the nest asks for all.
        every: of so many steps that are written out together one asks, where that is not known.
    """
    if any(s.loop(x).kind is LoopKind.UNROLL and s.loop(x).extent != 1 for x in nest.terms):
        return
    row = size // _steps(s, nest)
    share = 0 if total is None else -(-row // total)
    lines = -(-share // _LINE) or 1
    share = share if lines == 1 else lines * _LINE
    words = [f"{weights.buffer.name} {size + before * _steps(s, nest) * share} lines:{lines}"]
    every = every if total is None else _every(s, nest, share)
    if every > 1:
        words.append(f"every:{every}")
    stride = 1
    for x in reversed(nest.terms):
        words.append(f"{x}:{stride * (share - row)}" + (f"+{stride}" if total is None else ""))
        stride *= _most(s, x)
    if total is None:
        words.append(f"row:{row} steps:{stride} tiles:{'*'.join(nest.tiles)}")
    else:
        for x in reversed(nest.tiles):
            words.append(f"{x}:{stride * share}")
            stride *= s.loop(x).extent.value or 1
    annotate(s, nest.terms[-1], "prefetch", " ".join(words))


def _weights(b: Block) -> tuple[Load, int] | None:
    """Return the load of packed weights, and the axis of panels."""
    panel = packed_panel(b)
    for x in loads_of(b.body):
        if x.buffer.scope != Scope.PARAM:
            continue
        for axis, e in enumerate(x.indices):
            atom = e.atom
            if panel is not None and isinstance(atom, FloorDiv) and atom.denominator == panel:
                return x, axis
    return None


class _Nest(NamedTuple):
    """Loops over tiles inside the loop over panels, and those over terms, outermost first."""

    tiles: list[str]
    terms: list[str]


def _nest(s: Schedule, block: str, panel: int) -> _Nest:
    """Return the loops around a block."""
    around, *inside = s.loops_of(block)[panel:]
    terms = reduce_loops(s, block, around)
    return _Nest([x for x in inside if x not in terms and s.loop(x).kind is LoopKind.SERIAL], terms)


def _steps(s: Schedule, nest: _Nest) -> int:
    """Return how many terms there are."""
    return prod(_most(s, x) for x in nest.terms)


def _most(s: Schedule, loop: str) -> int:
    """Return how often a loop over terms runs at most; 1 where that is not known.

    Taps of a window outside of the image are skipped: `min(7, 20 - i) - max(0, 3 - i)` are 7 at most.
    """
    return bounds(s.loop(loop).extent, {}).high or 1
