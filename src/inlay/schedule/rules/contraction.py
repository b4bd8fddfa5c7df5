"""Default schedules of contractions: matrix products and convolutions, register-blocked.

One recipe, after Goto and BLIS: an accumulator tile of `rows x panel` stays in registers while the
reduction runs, each step loading one vector row of the panel and broadcasting one element per row.

    for panel of columns                       parallel
      for tile of rows                         tiles of a few fixed sizes, largest first
        acc[rows, panel] = 0                   registers
        for reduction
          for r in rows (unrolled): for l in panel (vector):
            acc[r, l] = fma(A[row + r, k], B[panel, k, l], acc[r, l])
        epilogue(acc) -> C                     bias, residual, activation, in registers

*Columns* are the last axis of the result, along which everything is contiguous: columns of a
matrix, channels of a channels-last convolution. *Rows* are the innermost other axis longer than 1
that the second operand does not depend on: rows of a matrix, pixels of a line, samples of a batch
of single rows; no unfolding of images is needed, since rows only have to be at fixed distances. An
epilogue joins the tile if it has one element for each accumulator; otherwise the accumulators are
copied out and the epilogue is a nest of its own.

**Narrow integers and bf16** are packed with a few terms of the sum, a *group*, next to each other, and a
dot-product instruction (`Target.dot_product`) adds up a group: one load of the panel's groups, one
broadcast of a group for each row.

**Order of the outer loops.** Axes that both operands depend on (batches, heads) come first.
Otherwise panels come first, so that each is read from memory once and stays in L2 while all rows
pass; with few panels, and where channels do not mix (depthwise), lines come first, so that threads
have enough to share and an image is read in order. Lines come first too where each is widened for
itself, in the first cache, as long as all panels stay in L2. Rows of a product come first, in blocks, where
no cache holds them, and one tile at a time where sums have few terms (`cache_blocks.py`).

**Groups** of channels are like depthwise: the input is read along the columns as well, at the same
place by all columns of a group, which is a contiguous load and a shuffle.

**Sizes** follow from the machine: `analysis/register_tiles.py` says which tiles take the fewest
instructions. The packing chose how wide a panel is; here a number of rows that is known is covered by
at most two sizes of tiles, a symbol by a cascade (6, 3, 2, 1).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeGuard

from inlay.arith.expr import Int, coefficient, lit, substitute, symbols
from inlay.loop.buffer import Scope
from inlay.loop.inits import conjuncts
from inlay.loop.scalar import Lit, Scalar, Select
from inlay.loop.stmt import Block, LoopKind
from inlay.loop.walk import loads_of, stores_of
from inlay.machine.target import Target
from inlay.schedule.primitives.annotate import annotate
from inlay.schedule.primitives.cache_factor import cache_factor
from inlay.schedule.primitives.cache_write import cache_write
from inlay.schedule.primitives.clip import clip, distance_of, extremes
from inlay.schedule.primitives.compute_at import compute_at
from inlay.schedule.primitives.decompose_reduction import decompose_reduction
from inlay.schedule.primitives.distribute import distribute
from inlay.schedule.primitives.inline import inline
from inlay.schedule.primitives.merge_axes import merge_axes
from inlay.schedule.primitives.partition import partition
from inlay.schedule.primitives.peel import peel
from inlay.schedule.primitives.reorder import reorder
from inlay.schedule.primitives.set_scope import set_scope
from inlay.schedule.primitives.skip_zero_terms import skip_zero_terms
from inlay.schedule.primitives.split import split
from inlay.schedule.primitives.split_cascade import Copy, split_cascade
from inlay.schedule.primitives.unroll import unroll
from inlay.schedule.primitives.use_fma import use_fma
from inlay.schedule.primitives.vectorize import vectorize
from inlay.schedule.rules.ahead import fetch_next
from inlay.schedule.rules.choices import write_out_choices
from inlay.schedule.rules.contraction_class import epilogue_of, group_widths, lines_of_rows, no_contraction
from inlay.schedule.rules.contraction_plan import (
    MAX_UNROLLED_DOTS,
    Plan,
    computed_weights,
    is_short,
    plan_contraction,
)
from inlay.schedule.rules.groups import (
    dot_kind,
    group_of,
    multiplies_vectors,
    sums_dots,
    transposed_factor,
    use_dots,
    written,
)
from inlay.schedule.rules.line_buffers import add_line_buffers, plan_line_buffers
from inlay.schedule.rules.loops import merge_all, reduce_loops, spatial_loops, write_out_steps
from inlay.schedule.rules.matrices import contract_matrices, matrix_plan, with_line_buffers
from inlay.schedule.rules.nests import parallelize, shared_tiles, vectorize_nest
from inlay.schedule.rules.packing import pack, pack_before, pack_inside
from inlay.schedule.rules.stages import join, stages, vectorize_stages
from inlay.schedule.rules.term_blocks import block_of_terms, cut_terms, inner_terms, sum_in_blocks
from inlay.schedule.state import Illegal, Schedule, illegal

MAX_UNROLLED_STEPS = 24
"""A reduction of at most so many steps is written out."""
MAX_UNROLLED_TAPS = 32
"""The same of several of its innermost loops: 9 columns of 3 channels are 27 (256 x 256 to 64 channels on
Zen 5, ms: 10.2 to 13.5 in a loop over columns, 7.6 written out; one loop of 28 or 30 steps is 7 % faster as
it is)."""

TOGETHER = (8, 2)
"""Tiles that share what is computed of weights, where that takes as long as a tile."""


def contraction(s: Schedule, target: Target) -> None:
    """Schedule a function whose reductions are all contractions.

    Raises:
        Illegal: one is not, or there is none; or a step refuses half-way.
    """
    _contractions(s, target, plain=False)


def plain_contraction(s: Schedule, target: Target) -> None:
    """Schedule a contraction where `contraction` was refused half-way: with tiles, and no more.

    Lines stay as they are, what makes a factor and what reads the result are nests of their own, and a
    factor that is computed is read as it is.

    Raises:
        Illegal: as `contraction`.
    """
    _contractions(s, target, plain=True)


def _contractions(s: Schedule, target: Target, *, plain: bool) -> None:
    blocks = s.block_names()
    reductions = [b for b in blocks if s.block(b).init is not None]
    if not reductions:
        raise illegal("class", "found no reduction, needed a sum of products")
    for block in reductions:
        is_packed = not plain and transposed_factor(s.block(block)) is not None and len(reductions) == 1
        if (why := no_contraction(s, block)) and not is_packed:
            raise illegal("class", f"found '{block}', {why}, needed a sum of products along columns")
    if reductions == [blocks[0]] and multiplies_vectors(s.block(blocks[0]), target):
        raise illegal("class", f"found '{blocks[0]}', which multiplies rows with one column, needed columns")
    only = reductions[0] if len(reductions) == 1 and not plain else ""
    known = lines_of_rows(s.block(only)) if only and stages(s, only) is None else None
    if known is not None:
        # Rows of all lines are one line: few tiles are smaller than they could be.
        merge_axes(s, known=known)
    taken: list[str] = []
    for block in reductions:
        taken += _inline_padding(s, block)
        taken += contract(s, block, target, plain=plain)
    for block in blocks:
        if block not in taken:
            _injective(s, block, target)


def contract(s: Schedule, block: str, target: Target, *, plain: bool = False) -> tuple[str, ...]:
    """Schedule one contraction and its epilogue.

    Args:
        s: the schedule, with the block still in the nest that `from_te` made.
        block: a block of which `no_contraction` has nothing to say.
        target: the machine.
        plain: with tiles, and no more (`plain_contraction`).

    Returns:
        The blocks this took care of, by the names they had.
    """
    epilogue = epilogue_of(s, block)
    taken: tuple[str, ...] = (block,) if epilogue is None else (block, epilogue)
    staged = stages(s, block) if epilogue is None and not plain else None
    plan = plan_contraction(s, block, target, () if staged is None else staged.axes)
    if plain:
        plan = replace(plan, packing=None)
    matrices = matrix_plan(s.block(block), plan.before, plan.after, plan.row, target)
    if matrices is not None and not plain:
        taken += contract_matrices(s, block, epilogue, with_line_buffers(s, block, matrices, target), target)
        parallelize(s, s.loops_of(block)[0])
        return taken
    is_staged = staged is not None or plain
    if not is_staged:
        plan = replace(plan, terms=block_of_terms(s.block(block), plan, target))
    buffers = None if is_staged else plan_line_buffers(s, block, plan.before, plan.panel, target)
    plan = replace(plan, lines=None if buffers is None else buffers.lines)
    begun = begin(s, block, epilogue, plan, target)
    plan = begun.plan
    if staged is not None:
        vectorize_stages(s, staged, target)
        join(s, staged)
        taken += (*staged.makers, staged.reader)
    if plan.block is not None and plan.terms is None:
        # Tiles of a block are then seen to be all that uses it.
        around = 0 if plan.blocks_first else len(plan.before) + (plan.packing is not None)
        at = s.loops_of(block)[around]
        begun = replace(begun, temporary=set_scope(s, begun.temporary, Scope.WORKSPACE, at=at))
        if plan.packing is None and is_short(s.block(block), plan):
            # While it is plain that blocks are apart: of the tiles of a last one that is short it is not.
            parallelize(s, s.loops_of(block)[0])
    if begun.packs is not None and plan.packing is not None:
        pack_inside(s, begun.packs, block, plan.packing, plan.before, target)
    if buffers is not None:
        at = s.loops_of(block)[max(buffers.depth - 1, 0)]
        taken += add_line_buffers(s, block, at, target, whole_rows=group_of(s.block(block)) is None)
    tiles = finish(s, begun, target)
    has_space = any(x is not None for x in (plan.packing, plan.block, plan.terms, buffers, staged))
    for loop in s.loops_of(block)[:1] if has_space or not tiles else _shared(s, block, tiles):
        parallelize(s, loop)
    return taken


def _shared(s: Schedule, block: str, tiles: Sequence[Copy]) -> tuple[str, ...]:
    """Return the loops that threads share, where nothing is kept for several tiles."""
    found = [s.loops_of(tile.names[block]) for tile in tiles]
    around = [x[: x.index(tile.outer)] for x, tile in zip(found, tiles, strict=True)]
    is_one = all(x == around[0] for x in around)
    return shared_tiles(s, around[0], [tile.outer for tile in tiles]) if is_one else (found[0][0],)


@dataclass(frozen=True, slots=True)
class Begun:
    """A contraction whose loops are in order, before they are cut.

    Attributes:
        block: that multiplies.
        plan: the order and the sizes.
        packs: the block that packs a factor, in a nest of its own; None for none.
        temporary: name of the buffer of sums.
        outer: the outermost loop.
    """

    block: str
    plan: Plan
    packs: str | None
    temporary: str
    outer: str


def begin(s: Schedule, block: str, epilogue: str | None, plan: Plan, target: Target) -> Begun:
    """Put the loops of a contraction and of its epilogue into the order of a plan, as one nest."""
    if epilogue is None:
        epilogue = cache_write(s, block, Scope.REGISTER)
    packs = None
    if plan.packing is not None and plan.packing.is_whole:
        pack_before(s, block, plan.packing, plan.panel)
        plan = replace(plan, packing=None)
    elif plan.packing is not None:
        packs = pack(s, block, plan.packing, plan.panel)
    _attempt(skip_zero_terms, s, block)
    if target.has_fma and dot_kind(s.block(block), target) is None:
        _attempt(use_fma, s, block)
    temporary = written(s.block(block)).name
    outer, shared = _merge_nests(s, (block, epilogue), plan)
    if plan.terms is not None:
        temporary = sum_in_blocks(s, block, epilogue, shared, target)
    return Begun(block, plan, packs, temporary, outer)


def finish(s: Schedule, begun: Begun, target: Target) -> list[Copy]:
    """Cut the rows of a contraction into tiles that are summed in registers; return these, as `cut_rows`."""
    guarded = s.block(begun.block).predicate is not None
    if begun.plan.terms is None:
        decompose_reduction(s, begun.block, reduce_loops(s, begun.block)[0])
    use_dots(s, begun.block, target)
    tiles = cut_rows(s, begun.block, begun.plan, begun.temporary, target, guarded=guarded)
    plan = begun.plan
    at = sum((len(plan.before), plan.packing is not None, plan.block is not None, plan.terms is not None))
    if tiles:
        fetch_next(s, [tile.names[begun.block] for tile in tiles], at, target)
    return tiles


def cut_rows(
    s: Schedule, block: str, plan: Plan, temporary: str, target: Target, *, guarded: bool = False
) -> list[Copy]:
    """Cut rows into tiles and give each its sums in registers.

    Args:
        s: the schedule, in which each row of the sums is started, added up and read by nests of its own.
        block: that multiplies.
        plan: the order and the sizes.
        temporary: name of the buffer of sums.
        target: the machine.
        guarded: whether windows reach over edges.

    Returns:
        The tiles, with the blocks in them; none where there are no rows, or where tiles share weights.
    """
    if plan.row is None:
        _finish(s, spatial_loops(s, block)[-2], temporary, block, _lanes(s, block, target))
        write_out_steps(s, block, target)
        return []
    row = _row_loop(s, block)
    edges = _clip(s, block, row) if guarded else (False, False)
    reach = _reach(s, block, row) if any(edges) else 0
    is_far = reach > plan.tiles[0]
    tiles = split_cascade(s, row, plan.tiles)
    weights = computed_weights(s.block(block), plan, target)
    groups = () if weights is None else split_cascade(s, tiles[0].outer, (*TOGETHER, 1))
    if groups:
        tiles = (*_inside(tiles[0], groups), *tiles[1:])
    parts = [(tile, False) for tile in tiles] if is_far else _edges(s, tiles, edges, reach)
    for tile, crosses in parts:
        lanes = _lanes(s, tile.names[block], target) if tile.tile == 1 else None
        _micro_kernel(s, tile, temporary, tile.names[block], lanes, crosses=crosses, is_far=is_far)
        _load_anew(s, tile.names[block], target)
        if not crosses:
            write_out_steps(s, tile.names[block], target)
    if weights is None:
        return [tile for tile, _ in parts]
    for group, tile in zip(groups[:-1], tiles, strict=False):  # the last has tiles that are alone
        _share_weights(s, group, tile.names[block], weights)
    return []


def _inside(tile: Copy, groups: Sequence[Copy]) -> list[Copy]:
    """Return the tiles in each of the loops that the one over tiles was split into."""
    return [
        Copy(tile.tile, g.inner, g.names[tile.inner], {b: g.names[n] for b, n in tile.names.items()})
        for g in groups
    ]


def _share_weights(s: Schedule, group: Copy, block: str, weights: str) -> None:
    """Compute the weights that a group of tiles multiplies once, in front of them.

    Weights in few bits become floats in registers, which takes as long as to multiply six rows by them. So
    where nobody knows how many rows there are, tiles go together through a copy in floats: the same numbers.
    """
    makes = cache_factor(s, block, weights)
    compute_at(s, makes, group.outer, Scope.WORKSPACE)
    vectorize(s, s.loops_of(makes)[-1])


def _inline_padding(s: Schedule, block: str) -> list[str]:
    """Compute padding where it is read instead of copying the input; return the blocks gone.

    Not what groups of terms are read from: what widens them writes the padding on the way.
    """
    if group_of(s.block(block)) is not None:
        return []
    read = {x.buffer for x in loads_of(s.block(block).body)}
    gone: list[str] = []
    for name in s.block_names():
        b = s.block(name)
        value = _value(b)
        if b.init is None and written(b) in read and _is_padding(value):
            # Only tests of known sizes are settled by bounds and edge tiles.
            tested = {y for d in _distances(value.condition) for y in symbols(d)}
            if any(i.extent.value is None for i in b.iters if i.sym in tested):
                continue
            _attempt(inline, s, name)
            gone += [name] if name not in s.block_names() else []
    return gone


def _is_padding(value: Scalar) -> TypeGuard[Select]:
    """Whether a value is zero in some places: terms with it are left out where it is inlined.

    Other numbers have to be added, so choosing in each term costs more than a copy; what chooses between
    tensors is a copy anyway.
    """
    sides = (value.then, value.otherwise) if isinstance(value, Select) else ()
    return any(isinstance(x, Lit) and x.value == 0 for x in sides)


def _value(b: Block) -> Scalar:
    return next(stores_of(b.body)).value


def _injective(s: Schedule, block: str, target: Target) -> None:
    """Schedule a nest beside the contraction: padding, packing, a conversion. One number has none."""
    if not s.loops_of(block):
        return
    vectorize_nest(s, s.loops_of(block)[-1], target)
    write_out_choices(s, block)
    loops = [x for x in s.loops_of(block) if s.loop(x).kind is LoopKind.SERIAL]
    outer = next((x for x in loops if s.loop(x).extent != 1), None)
    if outer is not None:
        reorder(s, [outer, *(x for x in loops if x != outer)])
        parallelize(s, outer)


def _merge_nests(s: Schedule, blocks: tuple[str, str], plan: Plan) -> tuple[str, int]:
    """Give both nests the order of the plan and join them around each row, or around blocks of terms.

    Returns the outermost loop, and how many they share.
    """
    for b in blocks:
        terms = cut_terms(s, b, plan.terms)
        spatial, reducing = spatial_loops(s, b), reduce_loops(s, b)[len(terms) :]
        panel, inner = split(s, spatial[-1], plan.panel)
        group: list[str] = []
        if plan.packing is not None:
            is_last_short = (s.loop(panel).extent % plan.packing.group) != 0
            outer, panel = split(s, panel, plan.packing.group)
            group = [outer]
            if is_last_short:
                clip(s, b, panel)  # the last group has fewer panels
        rows = [] if plan.row is None else [spatial[plan.row]]
        before = [spatial[i] for i in plan.before]
        lines: list[str] = []
        if plan.lines is not None:
            before[0], line = split(s, before[0], plan.lines)
            lines = [line]
        order = [*before, *group]
        if plan.block is not None and rows:
            block, rows[0] = split(s, rows[0], plan.block)
            order.insert(0 if plan.blocks_first else len(order), block)
        reorder(
            s, [*order, *lines, panel, *terms, *(spatial[i] for i in plan.after), *rows, *reducing, inner]
        )
        if is_short(s.block(b), plan):
            clip(s, b, rows[0])  # the last block has fewer rows
    first, second = s.loops_of(blocks[0]), s.loops_of(blocks[1])
    shared = len(second) - 1 if plan.terms is None else first.index(reduce_loops(s, blocks[0])[0])
    merge_all(s, [first[:shared], second[:shared]])
    return first[0], shared


def _row_loop(s: Schedule, block: str) -> str:
    """Return the loop just outside the reduction."""
    loops = s.loops_of(block)
    return loops[loops.index(inner_terms(s, block)[0]) - 1]


def _clip(s: Schedule, block: str, row: str) -> tuple[bool, bool]:
    """Let the bounds of reduction loops keep windows inside, except along the rows of a tile.

    Returns whether windows reach over the front and over the end of a line of rows.
    """
    var = s.loop(row).var
    for loop in inner_terms(s, block):
        own = s.loop(loop).var
        found = [set(symbols(d)) for d in _distances(s.block(block).predicate)]
        if not any(own in f and var in f for f in found):
            clip(s, block, loop)
    along = [coefficient(d, var) for d in _distances(s.block(block).predicate)]
    signs = [c.value for c in along if c is not None and c.value is not None]
    return any(c > 0 for c in signs), any(c < 0 for c in signs)


def _distances(predicate: Scalar | None) -> list[Int]:
    """Return what the comparisons of a predicate require not to be negative."""
    return [d for d in map(distance_of, conjuncts(predicate)) if d is not None]


def _reach(s: Schedule, block: str, row: str) -> int:
    """Return in how many rows of a line, at most, a window reaches over one end, where that is known."""
    line, most = s.loop(row), 0
    for distance in _distances(s.block(block).predicate):
        factor = coefficient(distance, line.var)
        step = 0 if factor is None or factor.value is None else factor.value
        if not step or line.extent.value is None:
            continue
        at_end = lit(0 if step > 0 else line.extent.value - 1)
        found = extremes(substitute(distance, {line.var: at_end}), list(map(s.loop, reduce_loops(s, block))))
        if found is not None and found[0].value is not None:
            most = max(most, -(found[0].value // abs(step)))
    return most


def _tested_loops(s: Schedule, block: str) -> list[str]:
    """Return the loops over terms that a test of window against line is about."""
    tested = {x for d in _distances(s.block(block).predicate) for x in symbols(d)}
    return [loop for loop in reduce_loops(s, block) if s.loop(loop).var in tested]


def _test_apart(s: Schedule, block: str) -> None:
    """Test rows of a tile only for the taps of a window that some have and others have not."""
    for loop in _tested_loops(s, block):
        _attempt(lambda s, b, at=loop: partition(s, b, at), s, block)


def _edges(s: Schedule, tiles: Sequence[Copy], at: tuple[bool, bool], reach: int) -> list[tuple[Copy, bool]]:
    """Cut off the tiles at the ends of a line where windows reach over these.

    That is one in front, where the largest are. The last may have fewer rows than reach over the end: then it
    is the one before it too.

    Returns the tiles, and whether windows of each may reach over an end.
    """
    front, end = at
    if any(s.loop(tile.outer).extent.value is None for tile in tiles):
        return [(tile, front or end) for tile in tiles]
    parts = [(tile, False) for tile in tiles]
    if front:
        parts[:1] = [(tile, i == 0) for i, tile in enumerate(_cut(s, tiles[0], 1))]
    last, covered = len(parts) - 1, 0
    while end and last >= 0 and covered < max(reach, 1):
        tile, crosses = parts[last]
        *inside, outside = [tile] if crosses else _cut(s, tile, -1)
        parts[last : last + 1] = [*((x, False) for x in inside), (outside, True)]
        covered += outside.tile
        last += len(inside) - 1
    return parts


def _cut(s: Schedule, tile: Copy, iteration: int) -> list[Copy]:
    """Cut a loop over tiles after its first or before its last iteration."""
    count = s.loop(tile.outer).extent.value or 0
    if count < 2:
        return [tile]
    names = peel(s, tile.outer, iteration % count)
    inner = {old: names[new] for old, new in tile.names.items()}
    return [tile, Copy(tile.tile, names[tile.outer], names[tile.inner], inner)]


def _micro_kernel(
    s: Schedule, tile: Copy, temporary: str, block: str, lanes: int | None, *, crosses: bool, is_far: bool
) -> None:
    """Give init, reduction and epilogue of a tile their own rows, and accumulate in registers."""
    nests = distribute(s, tile.inner)
    inner, reducing = s.loops_of(block)[-1], reduce_loops(s, block, nests[1])
    reorder(s, [*reducing, nests[1], inner])
    for loop in nests:
        unroll(s, loop)
    if is_far:
        _test_apart(s, block)
    _finish(s, tile.outer, temporary, block, lanes)
    if crosses:
        # Tests of window against line are settled when code is emitted, if both are written out.
        for loop in _tested_loops(s, block):
            if s.loop(loop).kind is LoopKind.SERIAL and s.loop(loop).extent.value:
                unroll(s, loop)


def _load_anew(s: Schedule, block: str, target: Target) -> None:
    """Let the taps of a window that are written out load anew what the taps before have loaded.

    Where windows overlap, the rows of a tile load the same elements, a tap apart. Registers are full of sums,
    so what is kept from one tap to the next, for all channels between, is stored on the stack and loaded from
    there: more work than to load it where it is. Not so where groups of channels are narrower than a
    register: what they load is shuffled.
    """
    lanes = target.lanes(written(s.block(block)).dtype.itemsize)
    widths = group_widths(s.block(block))
    if any(width % lanes for width in widths):
        return
    *outer, innermost = reduce_loops(s, block)
    if s.loop(innermost).kind is LoopKind.UNROLL and outer and s.loop(outer[-1]).kind is LoopKind.UNROLL:
        annotate(s, outer[-1], "loads", "anew")


def _lanes(s: Schedule, block: str, target: Target) -> int | None:
    """Return the lanes of a register of sums, where a row of them takes several; else None.

    Sums of dot products have lanes of their own.
    """
    lanes = target.lanes(written(s.block(block)).dtype.itemsize)
    columns = s.loop(s.loops_of(block)[-1]).extent.value
    if columns is None or lanes == 1 or columns % lanes or sums_dots(s.block(block)):
        return None
    return lanes if columns > lanes else None


def _finish(s: Schedule, around: str, temporary: str, block: str, lanes: int | None) -> None:
    """Accumulate in registers inside a loop, with vectors, and short reductions written out.

    Vectors have so many `lanes`, or all columns of the panel where that is None. A tile of one row takes as
    long as its panel takes to arrive. A vector of several registers LLVM loads in any order, mostly the last
    one first, and the first cache fetches ahead what is read upwards alone: 576 KB arrived from the second
    cache at 140 GB/s downwards, and at 245 upwards (Zen 5). So registers are loaded one by one. With more
    rows, products take longer than loads do.
    """
    set_scope(s, temporary, Scope.REGISTER, at=around)
    for b in s.block_names():
        loops = s.loops_of(b)
        if around not in loops:
            continue
        if lanes is None:
            vectorize(s, loops[-1])
            continue
        registers, inner = split(s, loops[-1], lanes)
        unroll(s, registers)
        vectorize(s, inner)
    most, together = MAX_UNROLLED_STEPS, MAX_UNROLLED_TAPS
    if sums_dots(s.block(block)):
        most = together = MAX_UNROLLED_DOTS
    steps = 1
    for loop in reversed(reduce_loops(s, block, around)):
        extent = s.loop(loop).extent.value
        if extent is None or extent > most or steps * extent > together:
            break
        steps *= extent
        unroll(s, loop)


def _attempt(simplify: Callable[[Schedule, str], None], s: Schedule, block: str) -> None:
    """Apply a primitive where it applies."""
    try:
        simplify(s, block)
    except Illegal:
        return
