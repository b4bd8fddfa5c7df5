"""Contractions of narrow integers on a matrix unit.

    for blocks of lines, panel of columns                 in this order or the other; parallel
      sums[..] @matrix, out[..] @stack
      for each matrix: sums = 0
      for reduction: for each matrix: sums += A * B
      for each matrix: out = sums
      epilogue(out) -> C                                  with vectors

`analysis/matrix_tiles.py` says how many matrices are computed at once. The outermost loop, which threads
share, is over blocks of lines or over panels. A thread reads all of the factor that is not shared, which
another one may have made and has in its caches: so lines are shared where weights are the smaller factor,
where there are few panels, and where `contraction.py` has them first. Panels are where blocks do not divide
the lines, as blocks of the last size are a loop of their own. Loops of one iteration are inside, because
threads could share nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from inlay.analysis.matrix_tiles import MatrixBlocks, matrix_blocks
from inlay.arith.dtype import I32
from inlay.loop.buffer import Buffer, Scope
from inlay.loop.stmt import Block, IterKind
from inlay.loop.walk import loads_of
from inlay.machine.matrix_units import MatrixProduct
from inlay.machine.target import Target
from inlay.schedule.primitives.annotate import annotate
from inlay.schedule.primitives.cache_write import cache_write
from inlay.schedule.primitives.decompose_reduction import decompose_reduction
from inlay.schedule.primitives.distribute import distribute
from inlay.schedule.primitives.reorder import reorder
from inlay.schedule.primitives.set_scope import set_scope
from inlay.schedule.primitives.split import split
from inlay.schedule.primitives.split_cascade import split_cascade
from inlay.schedule.primitives.tensorize import tensorize
from inlay.schedule.primitives.unroll import unroll
from inlay.schedule.primitives.use_matrix_unit import use_matrix_unit
from inlay.schedule.primitives.vectorize import vectorize
from inlay.schedule.rules.groups import group_of, packed_panel, symbols_in, written
from inlay.schedule.rules.line_buffers import add_line_buffers, plan_line_buffers
from inlay.schedule.rules.loops import merge_all, reduce_loops, spatial_loops
from inlay.schedule.state import Schedule

AHEAD = 4096
"""Bytes that second factors are asked for ahead: about what 20 products take, and as long as the third cache
takes (7 x 7 x 512, 3 x 3: 174 us for 275 without, 200 with 8192)."""
LEAST_SHARED = 4
"""With fewer panels, or blocks of lines, than this, threads share the others."""
PANELS = -1
"""Stands for the loop over panels of columns, among axes."""


@dataclass(frozen=True, slots=True)
class MatrixPlan:
    """How a contraction is computed on a matrix unit; axes are positions among its spatial iters.

    Attributes:
        unit: the instruction.
        blocks: how many matrices at once.
        outer: axes outside the lines of a block, in order, with `PANELS`; the axis of the lines stands for
            their blocks, where these have as many lines each.
        units: axes of one element, which are inside, as threads share the outermost loop.
        line: axis of which a block takes several; None for none.
        row: axis of the rows.
        ahead: the buffer of second factors where they do not stay in the first cache, or empty.
        cut: lines of the outermost axis for which operands are staged together; None for one iteration of it.
        staged: how many loops are around what the contraction stages; None where it stages nothing.
    """

    unit: MatrixProduct
    blocks: MatrixBlocks
    outer: tuple[int, ...]
    units: tuple[int, ...]
    line: int | None
    row: int
    ahead: str
    cut: int | None = None
    staged: int | None = None

    @property
    def outside(self) -> tuple[int, ...]:
        """The axes outside the panels."""
        return self.outer[: self.outer.index(PANELS)]

    @property
    def shared(self) -> int:
        """How many loops all nests are in together."""
        return len(self.outer) + (self.line is not None) + (self.cut is not None)


def matrix_plan(
    b: Block, before: Sequence[int], after: Sequence[int], row: int | None, target: Target
) -> MatrixPlan | None:
    """Return how a contraction runs on a matrix unit; None where there is none for it or it does not pay.

    Args:
        b: the sums.
        before, after: axes outside and inside the panels of columns, but for the rows.
        row: axis of the rows.
        target: the machine.
    """
    group = group_of(b)
    factors = _factors(b)
    if row is None or group is None or factors is None or b.predicate is not None:
        return None
    unit = target.matrix_product(factors[0].dtype, factors[1].dtype)
    sizes = {i.sym: i.extent.value for i in b.iters}
    spatial = [i for i in b.iters if i.kind is IterKind.SPATIAL]
    reducing = [i for i in b.iters if i.kind is IterKind.REDUCE]
    if unit is None or len(reducing) < 2 or group is not reducing[-1]:
        return None
    if group.extent != unit.width or packed_panel(b) != unit.columns or written(b).dtype is not I32:
        return None
    free = [i for i in (*before, *after) if spatial[i].extent != 1]
    line = max(free, default=None)
    rows, columns = (sizes[spatial[i].sym] or 0 for i in (row, -1))
    lines = 1 if line is None else sizes[spatial[line].sym] or 0
    if not (rows and columns and lines) or any(sizes[i.sym] is None for i in reducing):
        return None  # other axes are loops around blocks, of which nothing has to be known
    *kernel, groups, _ = (sizes[i.sym] or 0 for i in reducing)
    blocks = matrix_blocks(unit, rows, lines, columns, groups, prod(kernel), target.l1_bytes)
    if blocks is None:
        return None
    line = None if blocks.lines == 1 else line
    outer = [i for i in (*before, PANELS, *after) if i == PANELS or spatial[i].extent != 1]
    if line is not None:
        outer.remove(line)
        few = columns < LEAST_SHARED * blocks.across * unit.columns
        smaller = groups * prod(kernel) * unit.width * columns <= _known_bytes(factors[0])
        is_even = lines % blocks.lines == 0 and lines >= LEAST_SHARED * blocks.lines
        if is_even and (line in before or few or smaller):
            outer.insert(0, line)
        elif line in before:
            outer.sort(key=lambda i: i != PANELS)
    units = tuple(i for i in (*before, *after) if spatial[i].extent == 1)
    second = groups * prod(kernel) * unit.width * unit.columns * blocks.across
    ahead = factors[1].name if 2 * second > target.l1_bytes else ""
    return MatrixPlan(unit, blocks, tuple(outer), units, line, row, ahead)


def _known_bytes(b: Buffer) -> int:
    """Return the bytes of one image, where there is an unknown number of them."""
    return prod(e.value or 1 for e in b.shape) * b.dtype.itemsize


def _factors(b: Block) -> tuple[Buffer, Buffer] | None:
    """Return what has the rows, and what has the columns."""
    column = [i for i in b.iters if i.kind is IterKind.SPATIAL][-1].sym
    found = [x for x in loads_of(b.body) if x.buffer is not written(b)]
    if len(found) != 2:
        return None
    second = [x for x in found if column in symbols_in(x.indices)]
    first = [x for x in found if column not in symbols_in(x.indices)]
    return (first[0].buffer, second[0].buffer) if len(first) == len(second) == 1 else None


def with_line_buffers(s: Schedule, block: str, plan: MatrixPlan, target: Target) -> MatrixPlan:
    """Return the plan with what is staged where that pays."""
    columns, lines = plan.blocks.across * plan.unit.columns, plan.blocks.lines
    multiple = lines if plan.line in plan.outer else 1
    found = plan_line_buffers(s, block, plan.outside, columns, target, multiple)
    if found is None or found.depth == 0:
        return plan
    return replace(plan, cut=None if found.lines == multiple else found.lines, staged=found.depth)


def contract_matrices(
    s: Schedule, block: str, epilogue: str | None, plan: MatrixPlan, target: Target
) -> tuple[str, ...]:
    """Schedule a contraction and its epilogue; return the blocks besides that this took care of."""
    copy = cache_write(s, block, Scope.MATRIX)
    names = [block, copy] if epilogue is None else [block, copy, epilogue]
    sums, out = written(s.block(block)).name, written(s.block(copy)).name
    for name in names:
        _order(s, name, plan)
    merge_all(s, [s.loops_of(name)[: plan.shared] for name in names])
    staged = (
        ()
        if plan.staged is None
        else add_line_buffers(s, block, s.loops_of(block)[plan.staged - 1], target, whole_rows=True)
    )
    if plan.line is None:
        _block(s, names, [[] for _ in names], plan, (sums, out))
        return staged
    for line, parts in _parts(s, names, s.loops_of(block)[plan.shared - 1], plan):
        lines = distribute(s, line)
        _block(s, parts, [[x] for x in lines], plan, (sums, out))
    return staged


def _parts(s: Schedule, names: Sequence[str], line: str, plan: MatrixPlan) -> list[tuple[str, list[str]]]:
    """Return the loops over the lines of a block, each with the blocks that are in it."""
    if plan.line in plan.outer:
        return [(line, list(names))]
    left = (s.loop(line).extent.value or 0) % plan.blocks.lines
    sizes = (plan.blocks.lines, left) if left else (plan.blocks.lines,)
    return [(x.inner, [x.names[n] for n in names]) for x in split_cascade(s, line, sizes)]


def _order(s: Schedule, name: str, plan: MatrixPlan) -> None:
    """Cut columns into panels, and put the loops of a nest into the order of the plan."""
    spatial, reducing = spatial_loops(s, name), reduce_loops(s, name)
    panel, inner = split(s, spatial[-1], plan.blocks.across * plan.unit.columns)
    around: list[str] = []
    outer = list(plan.outer)
    if plan.cut is not None:
        axis = plan.outside[0]
        block, spatial[axis] = split(s, spatial[axis], plan.cut)
        around, outer = [block], [*plan.outside[1:], axis, *plan.outer[len(plan.outside) :]]
    loops = {PANELS: panel, **dict(enumerate(spatial))}
    lines = [] if plan.line is None else [spatial[plan.line]]
    if plan.line in plan.outer:
        loops[plan.line], lines[0] = split(s, lines[0], plan.blocks.lines)
    around += [loops[i] for i in outer]
    reorder(s, [*around, *lines, *(spatial[i] for i in plan.units), spatial[plan.row], *reducing, inner])


def _block(
    s: Schedule, names: Sequence[str], lines: Sequence[list[str]], plan: MatrixPlan, buffers: tuple[str, str]
) -> None:
    """Compute blocks in the nests of sums, of copies and of the epilogue, which are inside the same loops.

    Args:
        s: the schedule.
        names: the block of each nest.
        lines: of each nest, the loop over the lines of a block, if there is one.
        plan: how.
        buffers: sums, and what they are copied to.
    """
    block, copy, *epilogue = names
    around = [_tile(s, name, own, plan) for name, own in zip(names[:2], lines, strict=False)]
    for name, own in zip(epilogue, lines[2:], strict=True):
        around.append(_tile_epilogue(s, name, own, plan))
        vectorize(s, s.loops_of(name)[-1])
    merge_all(s, around)
    set_scope(s, buffers[0], Scope.MATRIX, at=around[0][-1])
    if epilogue:
        set_scope(s, buffers[1], Scope.STACK, at=around[0][-1])
    sums_over = reduce_loops(s, block)
    if plan.ahead:
        loop = next((x for x in sums_over if s.loop(x).extent != 1), sums_over[0])
        annotate(s, loop, "prefetch", f"{plan.ahead} {AHEAD}")
    start = decompose_reduction(s, block, sums_over[0])
    tensorize(s, s.loops_of(block)[-1])
    written_out = len(lines[0]) + 2
    for name, nest in ((start, 2), (block, 3), (copy, 2)):
        loops = s.loops_of(name)
        for loop in loops[-nest - written_out : -nest]:
            unroll(s, loop)
        use_matrix_unit(s, loops[-nest], plan.unit.name)


def _tile(s: Schedule, name: str, lines: list[str], plan: MatrixPlan) -> list[str]:
    """Cut the rows and columns of a nest into matrices; return the loops to be shared with other nests."""
    x, (shared, row, column) = plan.blocks, _inside(s, name, lines, plan)
    reducing = reduce_loops(s, name)
    tile, rows = split(s, row, x.rows * x.along)
    along, rows = split(s, rows, x.rows)
    across, columns = split(s, column, plan.unit.columns)
    inner: list[str] = []
    if reducing:
        steps, within = split(s, reducing[-2], x.steps)
        reducing, inner = [*reducing[:-2], steps], [within, reducing[-1]]
    reorder(s, [*shared, tile, *reducing, *lines, along, across, rows, columns, *inner])
    return [*shared, tile]


def _tile_epilogue(s: Schedule, name: str, lines: list[str], plan: MatrixPlan) -> list[str]:
    shared, row, column = _inside(s, name, lines, plan)
    tile, rows = split(s, row, plan.blocks.rows * plan.blocks.along)
    reorder(s, [*shared, tile, *lines, rows, column])
    return [*shared, tile]


def _inside(s: Schedule, name: str, lines: list[str], plan: MatrixPlan) -> tuple[list[str], str, str]:
    """Return the loops over axes of one element, and those over rows and columns."""
    *outer, row, column = (x for x in spatial_loops(s, name) if x not in lines)
    return outer[len(outer) - len(plan.units) :], row, column
