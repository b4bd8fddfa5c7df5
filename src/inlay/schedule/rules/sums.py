"""Long sums in blocks, so that their rounding errors stay those of short ones.

Adding n floats one after the other is off by at most `(n - 1) u` of the sum of their magnitudes, to
first order, where u is half a unit in the last place; adding pairs, pairs of pairs and so on by
`log2(n) u` (Higham, *Accuracy and Stability of Numerical Algorithms*, 4.2). The factor of u is how
many additions the unluckiest term passes through. A nest of loops with a total at each level is as
good a tree as any: with blocks of b terms, blocks of b blocks and a last level over the rest,

    t2 = 0
    for k2 in 0..n / b^2 {
      t1 = 0
      for k1 in 0..b {
        t0 = 0
        for k0 in 0..b { t0 = t0 + x[k2, k1, k0] }
        t1 = t1 + t0 }
      t2 = t2 + t1 }

a term passes through at most

    b                 additions for   n <= b
    b + n / b                         n <= b^2
    2 b + n / b^2                     beyond

and that many u are the bound. With `BLOCK` = 64 it is 128 u up to n = 4096, 192 u up to 262,144, and
372 u for a million terms (one after the other: a million). The usual error is about the square root
of the bound. Nothing is paid for this: one addition more in 64, and totals that stay in registers.

The order is fixed by the schedule: it depends on sizes, never on threads. Only float sums are
blocked: sums of integers and extremes are exact in any order, and a product is off by n u in all.
"""

from __future__ import annotations

from collections.abc import Sequence

from inlay.loop.buffer import Scope
from inlay.loop.inits import iter_symbols
from inlay.loop.reduction import match_update
from inlay.loop.scalar import ReduceOp
from inlay.loop.stmt import IterKind
from inlay.loop.walk import stores_of
from inlay.schedule.primitives.clip import clip
from inlay.schedule.primitives.distribute import distribute
from inlay.schedule.primitives.merge import merge
from inlay.schedule.primitives.reorder import reorder
from inlay.schedule.primitives.rfactor import rfactor
from inlay.schedule.primitives.set_scope import set_scope
from inlay.schedule.primitives.split import split
from inlay.schedule.state import Schedule

BLOCK = 64
"""Terms that are added one after the other."""
LEVELS = 3
"""Totals inside one another; the outermost takes what is left, however long."""


def block_sum(s: Schedule, block: str, inner: Sequence[str] = (), most: int = LEVELS) -> list[str]:
    """Put a reduction outside its innermost spatial loops, and compute it in blocks if it rounds.

    Args:
        s: the schedule.
        block: a block with its init, directly inside its loops: spatial ones, then its reduction.
        inner: the last of its spatial loops, which are to be inside the reduction (lanes, say).
        most: levels, at most.

    Returns:
        The blocks there are now: the one that adds terms first, the one that was given last.

    Raises:
        Illegal: as `split`, `rfactor`, `distribute`, `reorder` and `merge` do.
    """
    reducing = iter_symbols(s.block(block), IterKind.REDUCE)
    loops = s.loops_of(block)
    depth = sum(1 for x in loops if s.loop(x).var not in reducing)
    levels = _levels(s, loops[depth:], most) if _rounds(s, block) else [list(loops[depth:])]
    blocks: list[str] = []
    for level in levels[:-1]:
        around = s.loops_of(block)[depth:]
        blocks.append(rfactor(s, block, around[: len(around) - len(level)]))
    blocks.append(block)
    for loop in reversed(inner if len(blocks) > 1 else ()):
        distribute(s, loop)
    for b in blocks:
        around = s.loops_of(b)
        if inner:
            reorder(s, [*around[depth:], *around[depth - len(inner) : depth]])
        for loop in around[depth:] if len(blocks) > 1 else ():
            clip(s, b, loop)
    _nest(s, blocks, levels, depth - len(inner))
    return blocks


def block_alike(s: Schedule, block: str, loop: str, reduction: str, most: int = LEVELS) -> None:
    """Split a loop of a block as `block_sum` splits the one of a reduction that has the same extent.

    Raises:
        Illegal: as `split` and `clip` do.
    """
    levels = _levels(s, [loop], most) if _rounds(s, reduction) else []
    for x in (x for level in reversed(levels) for x in level) if len(levels) > 1 else ():
        clip(s, block, x)


def _nest(s: Schedule, blocks: list[str], levels: list[list[str]], depth: int) -> None:
    """Run each block right after the loops that made its terms, with totals in registers."""
    first, *rest = blocks
    outside = s.loops_of(first)[depth:]
    shared = sum(map(len, levels[1:]))
    totals = [next(stores_of(s.block(b).body)).buffer.name for b in blocks[:-1]]
    for b, total, level in zip(rest, totals, levels[1:], strict=True):
        for x, y in zip(outside[:shared], s.loops_of(b)[depth:], strict=False):
            merge(s, x, y)
        set_scope(s, total, Scope.REGISTER, at=outside[shared - 1])
        shared -= len(level)


def _levels(s: Schedule, loops: Sequence[str], most: int) -> list[list[str]]:
    """Split loops over a reduction into levels of at most `BLOCK` steps, the innermost first."""
    left, level, room = list(loops), list[str](), BLOCK
    levels: list[list[str]] = []
    while left and len(levels) < most - 1:
        extent = s.loop(left[-1]).extent.value
        if extent is not None and extent <= room:
            level.insert(0, left.pop())
            room //= max(extent, 1)
            continue
        if room > 1:
            size = room if extent is None else -(-extent // -(-extent // room))
            left[-1], within = split(s, left[-1], size)
            level.insert(0, within)
        levels.append(level)
        level, room = [], BLOCK
    left += level
    return [*levels, left] if left else levels


def _rounds(s: Schedule, block: str) -> bool:
    """Whether a block adds floats."""
    update = match_update(s.block(block))
    return update is not None and update.op is ReduceOp.SUM and update.store.buffer.dtype.is_float
