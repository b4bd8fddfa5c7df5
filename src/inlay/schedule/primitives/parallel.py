"""Run the iterations of a loop on different threads."""

from __future__ import annotations

from inlay.arith.expr import Int, symbols
from inlay.loop.buffer import Buffer
from inlay.loop.deps import BlockAccess, intervals, iteration_dim
from inlay.loop.stmt import Alloc, Block, For, IterKind, LoopKind
from inlay.loop.walk import blocks_of, stmts_below, stores_of
from inlay.schedule.primitives.split import require_serial
from inlay.schedule.state import Schedule, illegal, primitive


@primitive
def parallel(s: Schedule, loop: str) -> None:
    """Mark an outermost loop as parallel.

    Before:

        for i in 0..n { block b(v: spatial n = i) { y[v] = x[v] } }

    After `parallel(s, "i")`:

        for i in 0..n parallel { block b(v: spatial n = i) { y[v] = x[v] } }

    Legal if the iterations are independent: no block reduces over the loop, and what an iteration
    writes outside of buffers of its own no other touches.

    Raises:
        Illegal: `schedule.kind`, `schedule.dependence`.
    """
    place, old = s.loop_place(loop), s.loop(loop)
    require_serial(old)
    if any(isinstance(p.stmt, For) for p in place.above()):
        raise illegal("kind", f"found {loop} inside another loop, needed an outermost one")
    require_independent(s, old)
    s.replace(place, For(old.var, old.lo, old.extent, LoopKind.PARALLEL, old.body, old.note))


def require_independent(s: Schedule, loop: For) -> None:
    """Refuse if an iteration of a loop depends on another.

    Raises:
        Illegal: `schedule.kind`, `schedule.dependence`.
    """
    if loop.extent == 1:
        return
    for block in blocks_of(loop.body):
        for i, b in zip(block.iters, block.bindings, strict=True):
            if i.kind is IterKind.REDUCE and loop.var in symbols(b):
                raise illegal(
                    "kind", f"found {block.name} to reduce over {loop.var.name}", hint="use rfactor"
                )
    own = {x.buffer for x in stmts_below(loop.body) if isinstance(x, Alloc)}
    touched: dict[Buffer, list[BlockAccess]] = {}
    for x in s.accesses(loop):
        if x.buffer not in own and not x.buffer.per_part:
            touched.setdefault(x.buffer, []).append(x)
    for buffer, found in touched.items():
        if any(x.writes for x in found) and not _is_apart(found, loop):
            raise illegal(
                "dependence",
                f"found {buffer.name} shared by iterations of {loop.var.name}",
                hint="give each iteration its own buffer with set_scope",
            )


def _is_apart(found: list[BlockAccess], loop: For) -> bool:
    """Whether different iterations touch different elements of a buffer that some write.

    Either each iteration has a tile of its own along some axis; or one block alone touches the
    buffer, always at the element that its spatial iters name: then different points, and so
    different iterations, have different elements, however the loops are bound to the iters.
    """
    if iteration_dim([(intervals(x, loop), loop.var) for x in found]) is not None:
        return True
    first = found[0]
    if any(x.block is not first.block or x.indices != first.indices for x in found):
        return False
    named = {x.atom for x in _stored_at(first.block, first.buffer)}
    return all(i.sym in named for i in first.block.iters if i.kind is IterKind.SPATIAL and i.extent != 1)


def _stored_at(block: Block, buffer: Buffer) -> tuple[Int, ...]:
    """Return the indices, over the iters, at which a block stores to a buffer."""
    return next(x.indices for x in stores_of(block.body) if x.buffer is buffer)
