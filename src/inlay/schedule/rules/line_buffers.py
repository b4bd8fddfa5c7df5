"""Line buffers: what a contraction reads is copied where it is read, as many rows as a block of lines needs.

    for block of lines            parallel
      staged[rows]                what its windows reach, with padding, widened
      for line of block, panel, tile of line
        ...

The rows stay in the first caches, threads wait for each other once less, and scratch memory is a few rows
in place of the whole operand, whose bytes and those of the result are then all that is alive. A row is
copied anew by each block whose windows reach it: blocks have so many lines that this is half of the rows at
most. Where windows of lines do not overlap, a block is one line.

Where panels come first, each stages all of its operand, if that is small and next to nothing beside the
products: a single row of a matrix, say.

Along a row, padding at its ends and what is between are copied by loops of their own; what is between
is contiguous in both tensors, whatever the channels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from inlay.arith.expr import Int, Sym, lit, symbols, to_int
from inlay.loop.buffer import Scope
from inlay.loop.deps import hull
from inlay.loop.inits import conjuncts
from inlay.loop.scalar import Load, Select
from inlay.loop.stmt import Block, BlockIter, IterKind
from inlay.loop.walk import loads_of, stores_of
from inlay.machine.target import Target
from inlay.schedule.primitives.clip import bound_of
from inlay.schedule.primitives.compute_at import compute_at
from inlay.schedule.primitives.fuse import fuse
from inlay.schedule.primitives.peel import peel
from inlay.schedule.rules.choices import periods
from inlay.schedule.rules.groups import written
from inlay.schedule.rules.loops import divisors
from inlay.schedule.rules.nests import vectorize_nest, vectorize_run
from inlay.schedule.state import Illegal, Schedule

MOST_COPIES = 1.5
"""How often an element is copied at most, on average. 1.44 times is as fast as 1.2 times in depthwise
convolutions of 3 x 3 with 8 to 64 channels, which have the fewest products for each element."""
PRODUCTS = 16
"""Products for each element that a panel copies again."""


@dataclass(frozen=True, slots=True)
class LineBuffers:
    """Where a contraction stages what it reads.

    Attributes:
        depth: loops over axes outside the panels that are around it; 0 for the loop over panels.
        lines: of the outermost axis that are computed at once; None for one.
    """

    depth: int
    lines: int | None = None


def plan_line_buffers(
    s: Schedule, block: str, before: Sequence[int], panel: int, target: Target, multiple: int = 1
) -> LineBuffers | None:
    """Return where a contraction stages what other blocks write for it; None where that does not pay.

    Args:
        s: the schedule, with both in nests of their own.
        block: the contraction.
        before: its axes outside the panels, outermost first, as positions among its spatial iters.
        panel: columns that are computed at once.
        target: the machine.
        multiple: what a number of lines has to be a multiple of.
    """
    b = s.block(block)
    made = {written(x) for x in producers(s, block)}
    loads = [x for x in loads_of(b.body) if x.buffer in made]
    spatial = [i for i in b.iters if i.kind is IterKind.SPATIAL]
    if not loads:
        return None
    if not before:
        return LineBuffers(0) if all(_is_slight(b, x, panel, target) for x in loads) else None
    for depth in range(len(before), 0, -1):
        around = [spatial[i] for i in before[:depth]]
        for lines in _lines_at_a_time(around[0].extent, multiple):
            copies = [_copies(b, x, around, lines) for x in loads]
            if all(x is not None and x <= MOST_COPIES for x in copies):
                return LineBuffers(depth, None if lines == 1 else lines)
    return None


def _lines_at_a_time(extent: Int, multiple: int) -> list[int]:
    """Return into how many lines at a time an axis may be cut, but for all of them, the fewest first."""
    count = extent.value
    if count is None:
        return [1] if multiple == 1 else []
    return [n for n in divisors(count, multiple, count // 2) if n % multiple == 0]


def producers(s: Schedule, block: str) -> list[Block]:
    """Return the blocks that write what another one reads, and compute each element for itself.

    Not where values are chosen, which costs least for all choices at once.
    """
    read = {x.buffer for x in loads_of(s.block(block).body)}
    found = (s.block(name) for name in s.block_names() if name != block)
    return [b for b in found if b.init is None and written(b) in read and not periods(b)]


def _copies(b: Block, load: Load, around: Sequence[BlockIter], lines: int) -> float | None:
    """Return how often an element is copied if each iteration of some loops copies what it reads.

    None where that is not known.
    """
    inner: dict[Sym, tuple[Int, Int]] = {i.sym: (lit(0), i.extent) for i in b.iters if i not in around}
    inner[around[0].sym] = (lit(0), lit(lines))
    left = {i.sym: i for i in around}
    times = 1.0
    for e, size in zip(load.indices, load.buffer.shape, strict=True):
        mine = [left.pop(x) for x in symbols(e) if x in left]
        if not mine:
            continue
        if len(mine) == 1 and e == to_int(mine[0].sym):
            continue  # each element is copied by the one iteration that reads it
        swept, whole = hull(e, inner), size.value
        counts = [i.extent.value for i in mine]
        if swept is None or swept.extent.value is None or not whole or None in counts:
            return None
        for i, n in zip(mine, counts, strict=True):
            times *= (n or 1) / (lines if i is around[0] else 1)
        times *= swept.extent.value / whole
    return times if all(i.extent == 1 for i in left.values()) else None


def _is_slight(b: Block, load: Load, panel: int, target: Target) -> bool:
    """Whether what is read is small, and each element of it is in many products of a panel."""
    columns = [i for i in b.iters if i.kind is IterKind.SPATIAL][-1].extent.value or 0
    size, products = load.buffer.dtype.itemsize, min(panel, columns)
    read = {x for e in load.indices for x in symbols(e)}
    for i in b.iters:
        count = i.extent.value
        if count is None:
            return False
        if i.sym in read:
            size *= count
    return 8 * size <= target.l1_bytes and products >= PRODUCTS


def add_line_buffers(
    s: Schedule, block: str, at: str, target: Target, *, whole_rows: bool
) -> tuple[str, ...]:
    """Let other blocks write what a contraction reads in a loop around it, as much as an iteration needs.

    Args:
        s: the schedule.
        block: the contraction.
        at: the loop.
        target: the machine.
        whole_rows: whether rows are copied by whole vectors. Not for dot products of single groups: a group
            is read in a few cycles, and waits for a store of a vector over two cache lines (a kernel of 32 x
            32 x 16 with 3 x 3 windows took 12.8 us for 11.6, and 11.1 with a copy of all before).

    Returns:
        The blocks that do, by the names they had.
    """
    taken: list[str] = []
    for b in producers(s, block):
        try:
            # On the stack if there is room: its bytes are the same in every call, and warm.
            compute_at(s, b.name, at, Scope.STACK)
        except Illegal:
            continue
        if whole_rows:
            _copy_rows(s, b.name, target)
        else:
            vectorize_nest(s, s.loops_of(b.name)[-1], target)
        taken.append(b.name)
    return tuple(taken)


def _copy_rows(s: Schedule, name: str, target: Target) -> None:
    """Put vectors into a nest: along whole rows without their ends, where neighbors are copied."""
    cuts = _ends(s, name)
    if cuts is None:
        vectorize_nest(s, s.loops_of(name)[-1], target)
        return
    parts, done = [name], 0
    for cut in cuts:
        parts.append(peel(s, s.loops_of(parts[-1])[-2], cut - done)[parts[-1]])
        done = cut
    for part in parts:
        *_, row, column = s.loops_of(part)
        vectorize_run(s, fuse(s, row, column), target)


def _ends(s: Schedule, name: str) -> list[int] | None:
    """Return where along a row padding ends and begins; None where no neighbors along a row are copied."""
    b, loops = s.block(name), s.loops_of(name)
    loads, store = list(loads_of(b.body)), next(stores_of(b.body))
    if len(loads) != 1 or min(map(len, (b.iters, loads[0].indices))) < 2 or b.iters[-1].extent == 1:
        return None
    row, column = b.iters[-2:]
    here = to_int(row.sym), to_int(column.sym)
    count = s.loop(loops[-2]).extent.value
    moved = loads[0].indices[-2] - here[0], loads[0].indices[-1] - here[1]
    whole = [s.loop(loops[-1]).extent, loads[0].buffer.shape[-1], store.buffer.shape[-1]]
    is_at_start = b.bindings[-2:] == tuple(to_int(s.loop(x).var) for x in loops[-2:])
    if count is None or store.indices[-2:] != here or not is_at_start:
        return None
    if moved[0].value is None or moved[1] != 0 or any(n != column.extent for n in whole):
        return None
    conditions = conjuncts(store.value.condition) if isinstance(store.value, Select) else []
    bounds = [found for c in conditions if (found := bound_of(c, row.sym, set())) is not None]
    return sorted({at for _, x in bounds if (at := x.value) is not None and 0 < at < count})
