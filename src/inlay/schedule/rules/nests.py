"""What rules share: how a nest of independent points becomes parallel and vector loops.

Costs are counted in elements and operations, roughly: a kernel of few of them is not worth waking
other threads for, and a body of many operations is not worth unrolling.
"""

from __future__ import annotations

from inlay.loop.scalar import Binary, BinaryOp, Intrinsic, IntrinsicOp, Select, Unary, UnaryOp
from inlay.loop.stmt import Block, For, LoopKind, Stmt
from inlay.loop.walk import (
    blocks_of,
    child_stmts,
    loads_of,
    own_scalars,
    scalars_below,
    stmts_below,
    stores_of,
)
from inlay.schedule.primitives.annotate import annotate
from inlay.schedule.primitives.parallel import parallel
from inlay.schedule.primitives.split import split
from inlay.schedule.primitives.unroll import unroll
from inlay.schedule.primitives.vectorize import vectorize
from inlay.schedule.state import Schedule
from inlay.schedule.target import Target, lanes

PARALLEL_WORK = 16384
"""Operations below which a nest stays on one thread, when the number is known."""
CHEAP_BODY = 12
"""Operations up to which four vectors are computed at a time."""
UNROLLED_VECTORS = 4

_HEAVY = {BinaryOp.DIV: 4, BinaryOp.REM: 10, BinaryOp.FLOORDIV: 10, BinaryOp.FLOORMOD: 10}
_FUNCTION = 15


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
                    case _:
                        pass
    return total


def width(block: Block, target: Target) -> int:
    """Return the lanes for a block: a full register of its widest element format."""
    formats = [x.buffer.dtype for x in loads_of(block)]
    formats += [s.buffer.dtype for s in stores_of(block.body)]
    return min(lanes(target, d) for d in formats)


def vectorize_nest(s: Schedule, loop: str, target: Target) -> str:
    """Split an innermost loop into vectors, several at a time if the body is cheap.

    Returns:
        The name of the loop over the vectors, or of the loop itself when it is too short.
    """
    body = s.loop(loop)
    block = next(blocks_of(body))
    size = width(block, target)
    extent = body.extent.value
    if extent is not None and extent < size:
        if extent > 1 and 2 * extent >= size:
            vectorize(s, loop)
        return loop
    count = UNROLLED_VECTORS if operations(block.body) <= CHEAP_BODY else 1
    while extent is not None and count > 1 and extent < size * count:
        count //= 2
    outer, inner = split(s, loop, size * count)
    if count > 1:
        group, lane = split(s, inner, size)
        unroll(s, group)
        vectorize(s, lane)
    else:
        vectorize(s, inner)
    return outer


def parallelize(s: Schedule, loop: str) -> bool:
    """Make an outermost loop parallel unless its work is known to be small.

    The note `work` says how many operations one iteration has, where that is known, so that a
    runtime can use fewer threads than there are iterations.
    """
    outermost = s.loop(loop)
    per_iteration = work(outermost.body)
    count = outermost.extent.value
    if count is not None and (
        count < 2 or (per_iteration or PARALLEL_WORK) * count < PARALLEL_WORK
    ):
        return False
    if outermost.kind is not LoopKind.SERIAL:
        return False
    parallel(s, loop)
    if per_iteration is not None:
        annotate(s, loop, "work", str(per_iteration))
    return True


def work(s: Stmt) -> int | None:
    """Estimate the operations in a statement, None when an extent is not known."""
    match s:
        case For(extent=extent, body=body):
            inner = work(body)
            return None if inner is None or extent.value is None else extent.value * inner
        case Block():
            return operations(s.body) + sum(1 for _ in loads_of(s)) + 1
        case _:
            parts = [work(child) for child in child_stmts(s)]
            return None if any(p is None for p in parts) else sum(p for p in parts if p is not None)
