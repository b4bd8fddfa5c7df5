"""Lines that an operator goes through by loops of its own: searches, sorts, sums that run along.

Such loops are lowered already: there are no blocks that could be scheduled. But most of them do the same for
each line of a tensor, which threads can share:

    for b in 0..B { for c in 0..C parallel { ... y[b, c, ...] = ... } }

A loop is over lines if its iterations touch different elements: of each parameter that is written, all
accesses have the same index along some axis, and the loop's variable is in it, with nothing that is bound
inside; or an iteration has so many elements of its own there as the index goes on by. The outermost loops
of which that is so may change places: those of few iterations go inside. Temporaries that are allocated
inside of a line belong to the thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from inlay.arith.expr import Int, Sym, coefficient, lit, substitute, symbols, to_int
from inlay.loop.buffer import Buffer
from inlay.loop.func import LoopFunction
from inlay.loop.ranges import Bounds
from inlay.loop.stmt import Alloc, For, If, Let, LoopKind, Seq, Stmt, Store, While
from inlay.loop.walk import loads_of, map_children, stmts_below, stores_of
from inlay.schedule.primitives.parallel import parallel
from inlay.schedule.rules.nests import PARALLEL_WORK, SHARED, SHORT_KERNEL, work
from inlay.schedule.state import Step

Declined = list[tuple[Step, str]]


def lines(f: LoopFunction, *, is_short: bool = False) -> tuple[Stmt, Declined]:
    """Return the statements of a lowered function, loops over lines parallel, and why some are not.

    Args:
        f: the function.
        is_short: whether a run takes less time than giving other threads a part of it.
    """
    declined: Declined = []

    def shared(s: Stmt) -> Stmt:
        match s:
            case Seq() | Alloc():
                # What is allocated around loops is no line's own: accesses to it decide like others.
                return map_children(s, shared)
            case For():
                return _shared(s, declined, is_short=is_short)
            case _:
                return s

    return shared(f.body), declined


def _shared(nest: For, declined: Declined, *, is_short: bool) -> For:
    """Return loops with the best one over lines outermost, and parallel."""
    around = list(_lines(nest))
    if not around:
        return nest
    wide = (x for x in around if x.extent.value is not None and x.extent.value >= SHARED)
    loop = next(wide, None) or next((x for x in around if x.extent != 1), around[0])
    if is_short:
        declined.append((Step(parallel.__name__, (loop.var.name,)), SHORT_KERNEL))
        return nest
    count, inside = loop.extent.value, around[-1].body
    for other in reversed(around):
        if other is not loop:
            inside = For(other.var, other.lo, other.extent, other.kind, inside, other.note)
    each = work(inside)
    if count is not None and (count < 2 or (each is not None and each * count < PARALLEL_WORK)):
        few = "one line" if count < 2 else f"lines of {(each or 1) * count} operations"
        reason = f"found {few}, needed {PARALLEL_WORK} operations to be worth other threads"
        declined.append((Step(parallel.__name__, (loop.var.name,)), reason))
        return nest
    note = loop.note if each is None else (*loop.note, ("work", str(each)))
    return For(loop.var, loop.lo, loop.extent, LoopKind.PARALLEL, inside, note)


def _lines(nest: For) -> Iterator[For]:
    """Yield the outermost loops, each alone in the one before, whose iterations are independent."""
    below = list(stmts_below(nest))
    if not any(isinstance(x, For | While) for x in below if x is not nest):
        return  # elements, and no lines
    if not all(isinstance(x, For | While | If | Let | Seq | Alloc | Store) for x in below):
        return
    bound = {x.var if isinstance(x, For) else x.sym for x in below if isinstance(x, For | Let)}
    s: Stmt = nest
    while isinstance(s, For) and s.kind is LoopKind.SERIAL and _is_apart(s, bound):
        yield s
        s = s.body


def _is_apart(loop: For, bound: set[Sym]) -> bool:
    """Whether iterations of a loop touch different elements of all that is written and outlives them."""
    if bound & {*symbols(loop.lo), *symbols(loop.extent)}:
        return False
    own = {x.buffer for x in stmts_below(loop) if isinstance(x, Alloc)}
    written = {x.buffer for x in stores_of(loop)} - own
    return all(_is_divided(loop, buffer, bound) for buffer in written)


def _is_divided(loop: For, buffer: Buffer, bound: set[Sym]) -> bool:
    """Whether all accesses to a buffer are, along some axis, where no other iteration has one."""
    found = [x.indices for x in (*stores_of(loop), *loads_of(loop)) if x.buffer is buffer]
    return any(_are_apart(axis, loop, bound) for axis in zip(*found, strict=True))


def _are_apart(indices: Sequence[Int], loop: For, bound: set[Sym]) -> bool:
    """Whether indices are within as many elements of an iteration's own as they go on by with each one."""
    factor = coefficient(indices[0], loop.var)
    if factor is None or not factor.value or any(coefficient(e, loop.var) != factor for e in indices):
        return False
    inside = [x for x in stmts_below(loop) if isinstance(x, For) and x is not loop]
    least = substitute(indices[0] - factor * to_int(loop.var), {x.var: x.lo for x in inside})
    ranges = Bounds({x.var: (x.lo, x.extent) for x in inside})
    offsets = [e - factor * to_int(loop.var) - least for e in indices]
    if bound & {*symbols(least)} or any(
        not bound & {*symbols(e)} <= {x.var for x in inside} for e in offsets
    ):
        return False
    return all(ranges.within(e, lit(abs(factor.value))) for e in offsets)
