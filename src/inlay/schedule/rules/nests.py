"""What rules share: how a nest of independent points becomes parallel and vector loops.

Costs are counted in elements and operations, roughly: a kernel of few of them is not worth waking
other threads for, and a body of many operations is not worth unrolling.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence

from inlay.arith.expr import Int, Sym, coefficient, divisors, evaluate, symbols
from inlay.loop.scalar import (
    Binary,
    BinaryOp,
    Dot,
    Index,
    Intrinsic,
    IntrinsicOp,
    Load,
    Select,
    Unary,
    UnaryOp,
)
from inlay.loop.stmt import Block, For, LoopKind, Stmt, Store
from inlay.loop.walk import (
    blocks_of,
    child_stmts,
    iters_along,
    loads_of,
    own_scalars,
    scalars_below,
    stmts_below,
    stores_of,
)
from inlay.machine.target import MASKED_BYTES, Target
from inlay.schedule.primitives.annotate import annotate
from inlay.schedule.primitives.distribute import distribute
from inlay.schedule.primitives.fuse import fuse
from inlay.schedule.primitives.parallel import parallel
from inlay.schedule.primitives.peel import peel
from inlay.schedule.primitives.reorder import reorder
from inlay.schedule.primitives.split import split
from inlay.schedule.primitives.split_cases import split_cases
from inlay.schedule.primitives.unroll import unroll
from inlay.schedule.primitives.vectorize import vectorize
from inlay.schedule.rules.shared_places import computed_places
from inlay.schedule.rules.transposed import (
    MOST_APART,
    distances_of,
    power_within,
    step_of,
    tile_of,
    transpose_tiles,
)
from inlay.schedule.state import Illegal, Schedule, Step, illegal

PARALLEL_WORK = 16384
"""Operations below which a nest stays on one thread, when the number is known."""
SHARED = 16
"""Iterations of a loop, at least, that threads share as it is: else together with the one inside it."""
LONG_ITERATION = 2048
"""Operations, at least, of what threads share of two loops together."""
SHORT_KERNEL = "found a kernel that is predicted to be shorter than giving another thread a part"
"""Why loops of a kernel that is short stay on one thread."""
NEAR = 8
"""So many times more or fewer operations, and measuring may say otherwise."""
CHEAP_BODY = 12
"""Operations up to which four vectors are computed at a time."""
UNROLLED_VECTORS = 4
MIXED_VECTORS = 4
"""Vectors whose instructions alternate, where each takes many: a chain of them waits for itself."""
UNROLLED_SCALARS = 8
MOST_UNROLLED = 16
"""Scalars written out where indices are divided."""
SHORT = 4
"""Extents up to which strided copies are left to LLVM, which interleaves whole vectors."""
LONG = 8
"""Vectors from which on elements that are left over behind them are worth a nest of their own."""
TILE = 16
"""Rows and columns of a tile that is copied across the grain: a cache line of f32 each way."""


_HEAVY = {BinaryOp.DIV: 4, BinaryOp.REM: 10, BinaryOp.FLOORDIV: 10, BinaryOp.FLOORMOD: 10}
_FUNCTION = 15


def require_no_reduction(s: Schedule) -> None:
    """Refuse a function with a reduction.

    Raises:
        Illegal: `schedule.class`.
    """
    found = next((block.name for block in blocks_of(s.body) if block.init is not None), None)
    if found is not None:
        raise illegal("class", f"found '{found}', which is a reduction, needed element-wise work or moves")


def operations(s: Stmt) -> int:
    """Estimate the operations of one run of the blocks in a statement."""
    total = 0
    for inner in stmts_below(s):
        for value in own_scalars(inner):
            for x in scalars_below(value):
                match x:
                    case Binary(op=op):
                        total += _HEAVY.get(op, 1)
                    case Unary(op=op):
                        total += 5 if op is UnaryOp.SQRT else 1
                    case Intrinsic(op=op):
                        total += 1 if op is IntrinsicOp.FMA else _FUNCTION
                    case Select():
                        total += 1
                    case Dot(width=products):
                        total += 2 * products
                    case _:
                        pass
    return total


def width(block: Block, target: Target, along: Sym | None = None) -> int:
    """Return the lanes for a block: a full register of its widest element format.

    What does not depend on the loop over lanes, if that is given, is one number for all of them.
    """
    pairs = zip(block.iters, block.bindings, strict=True)
    same = set[Sym]() if along is None else {i.sym for i, b in pairs if along not in symbols(b)}
    loads = [x for x in loads_of(block) if along is None or not _symbols_of(x) <= same]
    formats = [x.buffer.dtype for x in loads]
    formats += [s.buffer.dtype for s in stores_of(block.body)]
    return min(target.lanes(d.itemsize) for d in formats)


def _symbols_of(load: Load) -> set[Sym]:
    return {x for e in load.indices for x in symbols(e)}


def vectorize_nest(s: Schedule, loop: str, target: Target) -> str:
    """Split an innermost loop into vectors, several at a time if the body is cheap.

    Returns:
        The name of the loop over the vectors, or of the loop itself when it is too short.
    """
    body = s.loop(loop)
    block = next(blocks_of(body))
    if not is_strided(block, body.var):
        return vectorize_run(s, loop, target)
    around = _alone_in(s, loop, block)
    for n, outside in reversed(list(enumerate(around))):
        lanes = _lanes_across(body, block, target, is_outermost=outside == s.loops_of(block.name)[0])
        if columns := tile_of(block, (s.loop(outside), body), lanes):
            return transpose_tiles(s, [*around[n:], loop], columns, lanes)
    if operations(block.body) <= CHEAP_BODY:
        return _copy_across(s, loop, around[-1] if around else None, target)
    return vectorize_run(s, loop, target)


def _lanes_across(body: For, block: Block, target: Target, *, is_outermost: bool) -> int:
    """Return the lanes of vectors across the grain: few enough that the last ones have no condition.

    All that there are, where what is left over behind many vectors may be a nest of its own.
    """
    lanes, extent = width(block, target, body.var), body.extent.value
    if extent is None or extent % lanes == 0 or (is_outermost and extent >= LONG * lanes):
        return lanes
    return min(lanes, max(SHORT, extent & -extent))


def _alone_in(s: Schedule, loop: str, block: Block) -> list[str]:
    """Return the loops around an innermost one that each are all that is in the one before."""
    around = s.loops_of(block.name)
    if not around or around[-1] != loop:
        return []
    alone = [loop]
    for outside in reversed(around[:-1]):
        if s.loop(outside).body is not s.loop(alone[0]):
            break
        alone.insert(0, outside)
    return alone[:-1]


def vectorize_run(s: Schedule, loop: str, target: Target) -> str:
    """Split an innermost loop along neighbors into vectors, several at a time if the body is cheap.

    Returns:
        As `vectorize_nest`.
    """
    body = s.loop(loop)
    block = next(blocks_of(body))
    size = width(block, target, body.var)
    extent = body.extent.value
    cheap = operations(block.body) <= CHEAP_BODY
    if extent is not None and extent < size:
        is_register = extent >= SHORT and extent & (extent - 1) == 0 and is_narrow(block)
        if is_register or (extent > 1 and 2 * extent >= size):
            vectorize(s, loop)
        return loop
    size = _whole(size, extent, block)

    def fits(count: int) -> bool:
        step = size * count
        return extent is None or (extent >= step and not _is_ragged(extent, step, block))

    count = UNROLLED_VECTORS if cheap else 1
    if extent is not None and extent % size == 0 and is_strided(block, body.var):
        count = math.gcd(count, extent // size)  # elements that are shuffled had better have no condition
    while count > 1 and not fits(count):
        count //= 2
    if cheap:
        count = s.asked.pick(f"{block.name}.vectors", count, [n for n in (1, 2, 4, 8) if n == 1 or fits(n)])
    outer, inner = split(s, loop, size * count)
    if count > 1:
        group, lane = split(s, inner, size)
        unroll(s, group)
        vectorize(s, lane)
    else:
        vectorize(s, inner)
        if not cheap:
            mixed = s.asked.pick(f"{block.name}.mixed", MIXED_VECTORS, (1, 2, 8))
            annotate(s, outer, "steps", f"{mixed} mixed")
    return outer


def is_narrow(block: Block) -> bool:
    """Whether a block touches elements of fewer bits than processors can mask one by one."""
    touched = [*(x.buffer for x in loads_of(block)), *(x.buffer for x in stores_of(block.body))]
    return any(b.dtype.itemsize < MASKED_BYTES for b in touched)


def _is_ragged(extent: int, step: int, block: Block) -> bool:
    return extent % step != 0 and is_narrow(block)


def _whole(size: int, extent: int | None, block: Block) -> int:
    """Return the lanes of vectors: fewer where an extent divides into those and masks are taken apart."""
    if extent is None or not _is_ragged(extent, size, block):
        return size
    divides = extent & -extent
    masked = extent // size + size  # as many vectors, and a branch for each lane of the last
    return divides if divides >= SHORT and extent // divides <= masked else size


def _copy_across(s: Schedule, loop: str, outside: str | None, target: Target) -> str:
    """Copy across the grain: elements a few apart by vectors that are shuffled, or else one by one.

    If the loop next outside runs along what is loaded, both are tiled, so that a tile reads whole
    cache lines and writes whole cache lines.
    """
    block, var, extent = next(blocks_of(s.loop(loop))), s.loop(loop).var, s.loop(loop).extent
    if extent.value is not None and extent.value <= TILE:
        if extent.value > SHORT:
            unroll(s, loop)
        return loop
    lanes = _whole(width(block, target, var), extent.value, block)
    lanes = lanes if extent.value is None else min(lanes, extent.value)
    if all(_are_near(block, x, var, lanes) for x in loads_of(block)):
        return vectorize_run(s, loop, target)
    if outside is None or not is_contiguous(block, s.loop(outside).var):
        outer, inner = split(s, loop, _unrolled(block, var, extent.value))
        unroll(s, inner)
        return outer
    _, row = split(s, outside, TILE)
    outer, inner = split(s, loop, TILE)
    reorder(s, [outer, row])
    unroll(s, inner)
    return outer


def _are_near(block: Block, load: Load, loop: Sym, lanes: int) -> bool:
    """Whether elements of vectors are a few apart, or there several times each: shuffles do those."""
    step = step_of(block, load, loop)
    if step is not None or lanes <= SHORT:
        return step is not None and abs(step) <= MOST_APART
    found = distances_of(block, load, loop, lanes)
    return found is not None and max(found) - min(found) < lanes


def _unrolled(block: Block, loop: Sym, extent: int | None) -> int:
    """Return how many scalars are written out: whole periods of what the indices of loads divide by.

    So that in each of them quotients and remainders are those of the loop outside, and numbers.
    """
    iters = [i.sym for i, b in zip(block.iters, block.bindings, strict=True) if b.atom == loop]
    found = {n for x in iters for load in loads_of(block) for e in load.indices for n in divisors(e, x)}
    period = math.lcm(*found) if found and min(found) > 0 else 1
    if period > MOST_UNROLLED:
        return UNROLLED_SCALARS
    several = period * max(1, UNROLLED_SCALARS // period)
    return period if period > 1 and extent is not None and extent % several else several


def is_contiguous(block: Block, loop: Sym) -> bool:
    """Whether all that a block loads along a loop is next to each other."""
    iters = [i.sym for i, b in zip(block.iters, block.bindings, strict=True) if b.atom == loop]
    found = False
    for load in loads_of(block):
        if any(x in symbols(e) for x in iters for e in load.indices[:-1]):
            return False
        found = found or any(coefficient(e, x) == 1 for e in load.indices[-1:] for x in iters)
    return found


def vectorize_cases(s: Schedule, loop: str, target: Target) -> None:
    """Split an innermost loop into vectors, apart from elements that do not lie side by side.

    Where a select says which are which, each range has a loop of its own: the middle of a padded line is a
    copy, and only its ends are mirrored. So does what is left over of a row behind whole vectors, by shorter
    ones, if elements are too narrow to be masked. Shorter rows with such a select are left to LLVM.
    """
    body = s.loop(loop)
    block, var, extent = next(blocks_of(body)), body.var, body.extent.value
    chooses, is_strided_along = _chooses_along(block, var), is_strided(block, var)
    is_row_of_narrow = extent is not None and is_narrow(block) and s.loops_of(block.name)[0] != loop
    is_cut = is_row_of_narrow and (extent or 0) >= width(block, target, var)
    if is_row_of_narrow and not is_cut and chooses:
        return
    parts: tuple[str, ...] = ()
    if is_contiguous(block, var) and (is_strided_along or (is_cut and chooses)):
        with contextlib.suppress(Illegal):
            parts = split_cases(s, block.name, loop)
    for part in parts:
        vectorize_cases(s, part, target)
    if not parts and is_cut and not is_strided_along and all(var not in at for at in computed_places(block)):
        _cut_row(s, loop, target)
    elif not parts:
        vectorize_nest(s, loop, target)


def _cut_row(s: Schedule, loop: str, target: Target) -> None:
    """Make whole vectors of a row, and of what is left behind them shorter ones."""
    body = s.loop(loop)
    extent, lanes = body.extent.value or 0, width(next(blocks_of(body)), target, body.var)
    lanes = min(lanes, power_within(max(extent, SHORT)))
    rest = [peel(s, loop, extent - extent % lanes)[loop]] if extent > lanes and extent % lanes else []
    vectorize_nest(s, loop, target)
    for behind in rest:
        _cut_row(s, behind, target)


def _chooses_along(block: Block, loop: Sym) -> bool:
    """Whether a select of a block depends on a loop."""
    iters = iters_along(block, (loop,))
    selects = (x for e in own_scalars(block.body) for x in scalars_below(e) if isinstance(x, Select))
    indices = (y for x in selects for y in scalars_below(x.condition) if isinstance(y, Index))
    return any(iters & {*symbols(y.value)} for y in indices)


def is_strided(block: Block, loop: Sym) -> bool:
    """Whether a block loads along a loop in steps other than 0 and 1."""
    iters = iters_along(block, (loop,))
    for load in loads_of(block):
        for axis, e in enumerate(load.indices):
            if any(x in iters for x in symbols(e)):
                last = axis == len(load.indices) - 1
                if not last or any(coefficient(e, x) not in (0, 1) for x in iters):
                    return True
    return False


def parallelize(s: Schedule, loop: str) -> bool:
    """Make an outermost loop parallel unless its work, or that of the kernel, is known to be small.

    The note `work` says how many operations one iteration has, where that is known, so that a
    runtime can use fewer threads than there are iterations.
    """
    if s.is_short:
        s.declined.append((Step(parallel.__name__, (loop,)), SHORT_KERNEL))
        return False
    outermost = s.loop(loop)
    per_iteration = work(outermost.body)
    count = outermost.extent.value
    operations = None if per_iteration is None or count is None else per_iteration * count
    is_short = count is not None and (per_iteration or PARALLEL_WORK) * count < PARALLEL_WORK
    if operations is not None and PARALLEL_WORK // NEAR <= operations <= PARALLEL_WORK * NEAR:
        is_short = not s.asked.switch(f"{loop}.threads", default=not is_short, of_threads=True)
    if count is not None and (count < 2 or is_short):
        few = "one iteration" if count < 2 else f"{(per_iteration or 1) * count} operations"
        needed = f"needed {PARALLEL_WORK} operations to be worth other threads"
        s.declined.append((Step(parallel.__name__, (loop,)), f"found a loop of {few}, {needed}"))
        return False
    if outermost.kind is not LoopKind.SERIAL:
        return False
    parallel(s, loop)
    loop = _with_inner(s, loop)
    per_iteration = work(s.loop(loop).body)
    if per_iteration is not None:
        annotate(s, loop, "work", str(per_iteration))
    return True


def shared_tiles(s: Schedule, around: Sequence[str], tiles: Sequence[str]) -> tuple[str, ...]:
    """Return the outermost loops of what threads share: of a nest as it is, or of one for each size of tiles.

    A line of rows has tiles of two sizes, and others at its ends. Where the loops around them run a few
    times, as for the one panel of a convolution of few channels over one line, threads share the tiles. For
    that those of each size get a nest of their own; the first and the last are too few to be shared.

    Args:
        s: the schedule.
        around: loops around tiles, the outermost first.
        tiles: the loops over tiles, which are all that is in the innermost of those.
    """
    loops, counts = [s.loop(x) for x in around], [s.loop(x).extent.value for x in tiles]
    is_open = any(n is None for n in counts) and any(x.extent != 1 for x in loops)
    is_short = all(n is not None and n < SHARED for n in counts)
    if not around or is_open or is_short or math.prod(_least(x.extent) for x in loops) >= SHARED:
        return tuple(around[:1]) or (tiles[0],)
    try:
        parts = [distribute(s, x) if len(tiles) > 1 else (x,) for x in reversed(around)][::-1]
    except Illegal:
        return (around[0],)
    found: list[str] = []
    for i, tile in enumerate(tiles):
        mine = [names[i] for names in parts]
        while mine and s.loop(mine[-1]).extent == 1 and s.loop(tile).extent != 1:
            tile = fuse(s, mine.pop(), tile)
        found.append(mine[0] if mine else tile)
    # Where nobody knows how many there are, tiles of other sizes are what is left of those of the first.
    return tuple(found) if counts[0] is not None else tuple(found[:1])


def _with_inner(s: Schedule, loop: str) -> str:
    """Return what threads share: a loop or, where it runs a few times or nobody knows how often, two.

    It may run once, as over a batch of one sample. Three panels are two and one for two threads. Where an
    iteration of the inner loop is short, chunks of them are shared: finding out which one it is takes a dozen
    instructions.
    """
    outer = s.loop(loop)
    inner = outer.body
    count = inner.extent.value if isinstance(inner, For) else None
    if not isinstance(inner, For) or count is None or count < 2:
        return loop
    if _least(outer.extent) >= SHARED:
        return loop
    name, operations = inner.var.name, work(inner.body)
    try:
        if operations is not None and operations < LONG_ITERATION:
            chunks = next(d for d in range(min(SHARED, count), count + 1) if count % d == 0)
            if count // chunks * operations < LONG_ITERATION:
                return loop
            name, _ = split(s, name, count // chunks)
        return fuse(s, loop, name, keeps=True)
    except Illegal:
        return loop


def _least(extent: Int) -> int:
    """Return how often a loop runs where each size that is not known is one."""
    return evaluate(extent, dict.fromkeys(symbols(extent), 1))


def work(s: Stmt) -> int | None:
    """Estimate the operations in a statement, None when an extent is not known."""
    match s:
        case For(extent=extent, body=body):
            inner = work(body)
            return None if inner is None or extent.value is None else extent.value * inner
        case Block():
            return operations(s.body) + sum(1 for _ in loads_of(s)) + 1
        case Store():
            return operations(s) + sum(1 for _ in loads_of(s)) + 1
        case _:
            parts = [work(child) for child in child_stmts(s)]
            return None if any(p is None for p in parts) else sum(p for p in parts if p is not None)
