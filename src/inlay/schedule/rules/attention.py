"""Attention: two products with reductions along rows between, some rows of the scores at a time.

The *scores*, a matrix of queries by keys for each head, are what the first product makes, what softmax and
the like go over row by row, and what the second product multiplies. All nests are run as one loop over heads
and blocks of rows, in which the scores of a block are a workspace of the thread:

    for head                                   parallel
      for block of rows
        scores[rows, keys]                     sums in registers, panels of keys packed where they are used
        for row { maximum; exponentials and their sum; quotients }
        results[rows, columns]

The products are those of `contraction.py` and the rows those of `rows.py`: same tiles, same lanes, same
order of each sum. So a result has the bits of the three kernels one after the other, whatever the sizes of
blocks and the number of threads. What steps between do to scores, element by element, is done in the place
of the scores.

**Rows of a block** are as many as have their scores in a quarter of the second cache; a whole head where that
is enough. More of them would be no faster: what a block reads anew are keys and values, once for all of
its rows. Numbers of rows that no such block divides, or that are not known, have a last block with fewer.

**Heads come first**, and threads share them. With few heads, blocks of rows come first.

A step that is refused half-way leaves nests apart (`plain_attention`), with all scores in a workspace of the
kernel.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

from inlay.arith.expr import Int
from inlay.loop.buffer import Buffer, Scope
from inlay.loop.stmt import IterKind
from inlay.loop.walk import loads_of
from inlay.machine.target import Target
from inlay.schedule.primitives.clip import clip
from inlay.schedule.primitives.compute_at import compute_at
from inlay.schedule.primitives.merge_axes import merge_axes
from inlay.schedule.primitives.reorder import reorder
from inlay.schedule.primitives.reuse_output import reuse_output
from inlay.schedule.primitives.set_scope import set_scope
from inlay.schedule.primitives.split import split
from inlay.schedule.primitives.vectorize import vectorize
from inlay.schedule.rules.contraction import Begun, begin, contract, finish
from inlay.schedule.rules.contraction_class import epilogue_of, no_contraction
from inlay.schedule.rules.contraction_plan import plan_contraction, row_tiles, tile_options
from inlay.schedule.rules.groups import written
from inlay.schedule.rules.loops import divisors, merge_all
from inlay.schedule.rules.nests import parallelize
from inlay.schedule.rules.packing import pack
from inlay.schedule.rules.rows import row_nests
from inlay.schedule.state import Illegal, Schedule, illegal

FEWEST_HEADS = 4
"""With fewer heads than this, threads share blocks of rows."""
FEWEST_ROWS = 16
"""Rows of a block, at least: each packed element is used so often."""
TILES = 12
"""What rows of a block are a multiple of where the last block has fewer: tiles of six and four rows."""
USUAL_ROWS = 5 * TILES
"""Rows of a block where the number of keys or of rows is not known."""
SHARE = 4
"""A block of scores takes this part of the second cache: keys and values pass through the rest."""


@dataclass(frozen=True, slots=True)
class _Parts:
    """The nests of attention.

    Attributes:
        scores, values: blocks of the products.
        made: the block that makes something of each sum of scores as it is written; None for none.
        between: blocks that go along rows, in order.
        result: the block that makes something of each result; None for none.
        heads: extents of the axes outside of the matrices, None for those that are not known, in the order
            of the loops over them.
        rows, keys: extents of the scores.
    """

    scores: str
    made: str | None
    between: tuple[str, ...]
    values: str
    result: str | None
    heads: Mapping[int, int | None]
    rows: Int
    keys: Int


@dataclass(frozen=True, slots=True)
class _Cut:
    """How rows are cut.

    Attributes:
        rows: of a block; None for all rows of a head, in no loop over blocks.
        first: whether the loop over blocks is outside of those over heads.
    """

    rows: int | None
    first: bool


def attention(s: Schedule, target: Target) -> None:
    """Schedule two products with reductions along rows between.

    Raises:
        Illegal: it is something else; or a step refuses half-way.
    """
    parts = _parts(s)
    few = prod(n or 1 for n in parts.heads.values()) < FEWEST_HEADS  # unknown numbers may be one
    at_once = _rows_at_once(s, parts, target, few=few)
    cut = _Cut(at_once, first=few and at_once is not None)
    depth = len(parts.heads) + (at_once is not None)
    scored = written(s.block(parts.made or parts.scores))
    begun = [
        _begun(s, parts, block, epilogue, cut, target)
        for block, epilogue in ((parts.scores, parts.made), (parts.values, parts.result))
    ]
    _work_in_place(s, parts, scored)
    outer = [list(s.loops_of(x.block)[:depth]) for x in begun]
    outer[1:1] = [_outer(s, name, parts, cut) for name in parts.between]
    merge_all(s, outer)
    around = outer[0]
    for buffer in s.temporaries:
        set_scope(s, buffer.name, Scope.WORKSPACE, at=around[-1])
    parallelize(s, around[0])  # while it can be seen that blocks of rows do not meet
    row_nests(s, parts.between, target, around=depth)
    for x in begun:
        finish(s, replace(x, temporary=written(s.block(x.block)).name), target)


def plain_attention(s: Schedule, target: Target) -> None:
    """Schedule attention where `attention` was refused half-way: nests apart, each as it would be alone.

    Raises:
        Illegal: it is something else, or a step refuses.
    """
    parts = _parts(s)
    for block in (parts.scores, parts.values):
        contract(s, block, target, plain=True)
    row_nests(s, parts.between, target)


# --------------------------------------------------------------------------- looking


def _parts(s: Schedule) -> _Parts:
    """Return the nests of a function without axes of one element.

    Raises:
        Illegal: `schedule.class`.
    """
    reductions = [b for b in s.block_names() if s.block(b).init is not None]
    products = [b for b in reductions if not no_contraction(s, b)]
    if len(products) != 2 or len(reductions) < 3 or products != [reductions[0], reductions[-1]]:
        raise illegal("class", "found no two products with reductions along rows between them")
    merge_axes(s)
    names = s.block_names()
    scores, values = products
    made, result = epilogue_of(s, scores), epilogue_of(s, values)
    between = names[names.index(scores) + 1 + (made is not None) : names.index(values)]
    known = [x for x in (scores, made, *between, values, result) if x is not None]
    if list(names) != known or s.block(scores).init is None or s.block(values).init is None:
        raise illegal("class", "found something else beside the products and what is along rows")
    extents = _spatial(s, scores)
    heads = sorted(range(len(extents) - 2), key=lambda i: (extents[i].value or 0) < FEWEST_HEADS)
    sizes = {i: extents[i].value for i in heads}
    parts = _Parts(scores, made, between, values, result, sizes, extents[-2], extents[-1])
    outer = extents[:-1]
    if any(_spatial(s, name)[: len(outer)] != outer for name in (*between, values)):
        raise illegal("class", "found nests along rows of other numbers of heads and rows than the scores")
    return parts


def _spatial(s: Schedule, block: str) -> list[Int]:
    return [i.extent for i in s.block(block).iters if i.kind is IterKind.SPATIAL]


def _rows_at_once(s: Schedule, parts: _Parts, target: Target, *, few: bool) -> int | None:
    """Return the rows of a block; None for all rows of a head, in no loop over blocks.

    Args:
        s: the schedule; it leaves open how many rows they are.
        parts: the nests.
        target: the machine.
        few: whether threads share blocks of rows.
    """
    rows, keys, dtype = parts.rows.value, parts.keys.value, written(s.block(parts.scores)).dtype
    most = USUAL_ROWS if keys is None else target.l2_bytes // SHARE // (max(keys, 1) * dtype.itemsize)
    if few and rows is not None:
        most = min(most, -(-rows // FEWEST_HEADS))
    most = max(most, FEWEST_ROWS)
    if rows is None:
        most = min(most, USUAL_ROWS)
    sizes = [n for n in (most // 2, 2 * most) if n >= FEWEST_ROWS and (rows is None or n < 2 * rows)]
    most = s.asked.pick("rows of a block", most, sizes)
    if rows is None:
        return most
    if rows <= most:
        return None if parts.heads else max(rows, 1)
    even = divisors(rows, most // 2 + 1, most)
    return even[-1] if even else -(-most // TILES) * TILES


# --------------------------------------------------------------------------- changing


def _begun(s: Schedule, parts: _Parts, block: str, epilogue: str | None, cut: _Cut, target: Target) -> Begun:
    """Put the loops of a product into order: heads, blocks of rows, panels, rows."""
    plan = plan_contraction(s, block, target)
    row = len(parts.heads)
    line = cut.rows or parts.rows.value
    if cut.rows is not None and (parts.rows % cut.rows) != 0:
        line = None  # of the last block
    options = tile_options(target, written(s.block(block)).dtype, plan.panel, line)
    tiles = row_tiles(s, block, options)
    packed = None if plan.packing is None else pack(s, block, plan.packing, plan.panel)
    plan = replace(
        plan,
        before=tuple(parts.heads),
        after=(),
        row=row,
        tiles=tiles,
        packing=None,
        block=cut.rows,
        blocks_first=cut.first,
    )
    begun = begin(s, block, epilogue, plan, target)
    if packed is not None:
        compute_at(s, packed, s.loops_of(block)[row + (cut.rows is not None)], Scope.WORKSPACE)
        vectorize(s, s.loops_of(packed)[-1])
    return begun


def _work_in_place(s: Schedule, parts: _Parts, scored: Buffer) -> None:
    """Let what is made of scores element by element be where those were.

    Of keys whose number is not known, no row is written beside one that is read next: the end of the one is
    stored under a mask over the beginning of the other, whose load then waits until that is done (a tenth of
    the time of 16 to 96 keys; rows of 197, which is known, are a tenth faster in place).
    """
    for name in parts.between:
        b = s.block(name)
        if b.init is not None:
            continue
        for read in dict.fromkeys(x.buffer for x in loads_of(b.body)):
            if read is scored and parts.keys.value is None:
                continue
            try:
                reuse_output(s, read.name, written(b).name)
            except Illegal:
                continue
            break


def _outer(s: Schedule, name: str, parts: _Parts, cut: _Cut) -> list[str]:
    """Cut the rows of a nest into blocks; return the loops over heads and blocks."""
    loops = s.loops_of(name)
    row, outer = len(parts.heads), [loops[i] for i in parts.heads]
    if cut.rows is None:
        reorder(s, [*outer, *loops[row:]])
        return outer
    block, inner = split(s, loops[row], cut.rows)
    outer.insert(0 if cut.first else row, block)
    reorder(s, [*outer, inner, *loops[row + 1 :]])
    if (parts.rows % cut.rows) != 0:
        clip(s, name, inner)  # the last block has fewer rows
    return outer
