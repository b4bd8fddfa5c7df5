"""Reductions to few results, as of a whole tensor to one number: in two steps.

What threads share of a reduction are its rows (`rows.py`). Where these are few and long, each is cut into
parts of so many terms; the parts are reduced, and then what came of them:

    for row, part parallel { partial[row, part] = sum of PART terms }
    for row { y[row] = sum of partial[row, ...] }

A row that no near cache holds is read again by each stage of a normalization in any case, so stages are nests
of their own here. But what makes the terms of a sum (the exponentials of softmax) is in its parts with it.

Where parts begin depends on the number of terms alone: results do not depend on the number of threads.
"""

from __future__ import annotations

from itertools import pairwise
from math import prod

from inlay.arith.expr import Sym, symbols
from inlay.loop.reduction import match_update
from inlay.loop.stmt import Block
from inlay.loop.walk import iters_along, loads_of, stores_of
from inlay.machine.target import Target
from inlay.schedule.primitives.clip import clip
from inlay.schedule.primitives.distribute import distribute
from inlay.schedule.primitives.merge_axes import merge_axes
from inlay.schedule.primitives.reorder import reorder
from inlay.schedule.primitives.rfactor import rfactor
from inlay.schedule.primitives.split import split
from inlay.schedule.rules.injective import vectorize_points
from inlay.schedule.rules.loops import divisors, reduce_loops, spatial_loops
from inlay.schedule.rules.nests import SHARED, parallelize
from inlay.schedule.rules.rows import in_outputs, is_along_rows, makes_terms, row_nests
from inlay.schedule.state import Schedule, illegal

PART = 8192
"""Terms of a part, at most: in f32 they stay in the first cache while others reduce them too."""
FEWEST_PARTS = 4
"""Parts of a row, at least."""


def split_reductions(s: Schedule, target: Target) -> None:
    """Schedule a function with reductions of few long rows.

    Raises:
        Illegal: it has none; or a step refuses half-way.
    """
    merge_axes(s)
    in_outputs(s)
    names = s.block_names()
    steps = {x: n for x in names if (n := _step(s, x, target)) is not None}
    if not steps:
        needed = f"needed a reduction of fewer than {SHARED} rows, {FEWEST_PARTS * PART} terms or more each"
        raise illegal("class", f"found none of few long rows, {needed}")
    makers = {b: a for a, b in pairwise(names) if b in steps and makes_terms(s, a, b, target)}
    for name in names:
        if name in steps:
            _reduce_parts(s, name, makers.get(name), steps[name], target)
        if s.block(name).init is not None:
            row_nests(s, [name], target)
        elif name not in makers.values() and (loop := vectorize_points(s, name, target)):
            parallelize(s, loop)


def _step(s: Schedule, name: str, target: Target) -> int | None:
    """Return how many steps of the outermost loop of a reduction are a part; None where it is not cut."""
    block = s.block(name)
    if block.init is None or match_update(block) is None or not is_along_rows(s, name, target):
        return None
    rows, terms = (_extents(s, x) for x in (spatial_loops(s, name), reduce_loops(s, name)))
    if rows is None or not terms or prod(rows) >= SHARED or prod(terms) < FEWEST_PARTS * PART:
        return None
    row_bytes = prod(terms) * max(x.buffer.dtype.itemsize for x in loads_of(block.body))
    if len(s.block_names()) > 1 and prod(rows) > 1 and row_bytes <= target.l2_bytes:
        return None  # all stages find a row in the cache
    most = min(terms[0], max(1, PART // prod(terms[1:])))
    return max(divisors(terms[0], most // 2 + 1, most), default=most)


def _extents(s: Schedule, loops: list[str]) -> list[int] | None:
    """Return how often loops run; None where that is not known of one."""
    found = [s.loop(x).extent.value for x in loops]
    known = [n for n in found if n is not None]
    return known if len(known) == len(found) else None


def _reduce_parts(s: Schedule, name: str, maker: str | None, step: int, target: Target) -> None:
    """Reduce each part of a row by itself, with what makes its terms; their results are left to the block."""
    outer, _ = split(s, reduce_loops(s, name)[0], step)
    partial = rfactor(s, name, [outer])
    for loop in reversed(spatial_loops(s, name)):
        distribute(s, loop)
    clip(s, partial, reduce_loops(s, partial)[0])
    *rows, part = spatial_loops(s, partial)
    if maker is None and rows and not _load_by(s.block(partial), {s.loop(x).var for x in rows}):
        reorder(s, [part, *rows])
    if maker is not None:
        split(s, s.loops_of(maker)[-1], step)
    row_nests(s, [partial] if maker is None else [maker, partial], target)


def _load_by(block: Block, loops: set[Sym]) -> bool:
    """Whether what a block loads depends on loops. Where it does not, rows read the same, part by part."""
    iters = iters_along(block, loops)
    stored = {x.buffer for x in stores_of(block.body)}
    loads = (x for x in loads_of(block) if x.buffer not in stored)
    return any(iters & {*symbols(e)} for x in loads for e in x.indices)
