"""Long sums in blocks of terms, so that what all rows of a product read stays in the second cache.

All tiles of rows pass a panel before the next panel comes (`contraction.py`). A panel of thousands of terms
takes most of the second cache, and the rows that go by take the rest: then parts of the panel come from the
last cache for each tile. So terms are cut into blocks, and all rows pass a part of the panel before the next
part comes. Sums wait in a workspace meanwhile:

    for panel of columns                       parallel
      sums[rows, panel] = 0                    workspace
      for block of terms
        for tile of rows
          acc = sums                           registers
          for k in block: acc = fma(A[row, k], B[panel, k], acc)
          sums = acc
      epilogue(sums) -> C

Terms are added in the same order as before, so the bits of a sum do not depend on it. Other systems: blocking
of the reduction, `kc` of Goto and BLIS.
"""

from __future__ import annotations

from inlay.loop.buffer import Scope
from inlay.loop.stmt import Block, IterKind
from inlay.loop.walk import loads_of
from inlay.machine.target import Target
from inlay.schedule.primitives.cache_inplace import cache_inplace
from inlay.schedule.primitives.clip import clip
from inlay.schedule.primitives.decompose_reduction import decompose_reduction
from inlay.schedule.primitives.set_scope import set_scope
from inlay.schedule.primitives.split import split
from inlay.schedule.rules.contraction_plan import Plan
from inlay.schedule.rules.groups import dot_kind, is_product, packed_panel, symbols_in, written
from inlay.schedule.rules.loops import divisors, merge_all, reduce_loops
from inlay.schedule.rules.nests import vectorize_nest
from inlay.schedule.state import Schedule

HELD = 2
"""A panel of more than one half of the second cache is read in blocks of terms, each of half as much at most
(Zen 5, 1 MB, % of the peak, panels of 64 columns; whole panels, or those that were narrow enough before, and
blocks of 1,024 and 512 terms: 512 x 3,072 x 1,024 89, 93, 93; 512 x 4,096 x 1,024 88, 97, 90; 128 x 6,144 x
1,024 86, 93, 91; 128 x 11,008 x 1,024 62, 91, 92; 512 x 2,048 x 1,024 is as fast in one)."""
FEW_TILES = 2
"""Tiles of rows, at most, that pass a panel whole: it is read so seldom that no cache has to keep it."""


def block_of_terms(b: Block, plan: Plan, target: Target) -> int | None:
    """Return how many terms all rows add up at a time; None for all of them.

    Args:
        b: a contraction.
        plan: its order, and the sizes of panels and tiles.
        target: the machine.
    """
    if plan.row is None or (plan.packing is None and packed_panel(b) is None):
        return None
    rows = [i for i in b.iters if i.kind is IterKind.SPATIAL][plan.row].extent.value
    if rows is not None and rows <= FEW_TILES * plan.tiles[0]:
        return None
    column = [i for i in b.iters if i.kind is IterKind.SPATIAL][-1].sym
    factors = [x for x in loads_of(b.body) if x.buffer is not written(b)]
    terms = [i.extent.value for i in b.iters if i.kind is IterKind.REDUCE]
    second = [x.buffer.dtype for x in factors if column in symbols_in(x.indices)]
    is_plain = is_product(b) and b.predicate is None and dot_kind(b, target) is None
    if not is_plain or len(factors) != 2 or len(second) != 1 or len(terms) != 1 or terms[0] is None:
        return None
    held = target.l2_bytes // HELD
    size = terms[0] * plan.panel * second[0].itemsize
    if not held or size <= held:
        return None
    least = -(-size * HELD // held)
    blocks = next(iter(divisors(terms[0], least, 2 * least - 1)), least)
    return -(-terms[0] // blocks)


def cut_terms(s: Schedule, block: str, size: int | None) -> list[str]:
    """Cut the loop over terms into blocks; returns the loop over these, none where nothing is cut."""
    reducing = reduce_loops(s, block)
    if size is None or not reducing:
        return []
    is_short = (s.loop(reducing[0]).extent % size) != 0
    blocks, within = split(s, reducing[0], size)
    if is_short:
        clip(s, block, within)
    return [blocks]


def sum_in_blocks(s: Schedule, block: str, epilogue: str, depth: int, target: Target) -> str:
    """Keep sums in a workspace while blocks of terms pass; each tile loads them and stores them.

    Args:
        s: the schedule, in which both nests share the loops up to that over panels.
        block: that multiplies, with the loop over blocks of terms outside of those over rows.
        epilogue: the block that reads the sums.
        depth: how many loops they share.
        target: the machine.

    Returns:
        The buffer of sums of a block of terms, which rows start, add up and store by nests of their own.
    """
    around, terms = s.loops_of(block)[depth - 1 : depth + 1]
    set_scope(s, written(s.block(block)).name, Scope.WORKSPACE, at=around)
    start = decompose_reduction(s, block, terms)
    load, store = cache_inplace(s, block, terms, Scope.WORKSPACE)
    rows = len(s.loops_of(load)) - 1
    merge_all(s, [s.loops_of(name)[depth + 1 : rows] for name in (load, block, store)])
    for name in (start, epilogue):
        vectorize_nest(s, s.loops_of(name)[-1], target)
    return written(s.block(block)).name


def inner_terms(s: Schedule, block: str) -> list[str]:
    """Return the loops over the terms of a block of terms."""
    loops, reducing = s.loops_of(block), reduce_loops(s, block)
    inside = max((i for i, x in enumerate(loops[:-1]) if x not in reducing), default=-1)
    return [x for x in loops[inside + 1 :] if x in reducing]
