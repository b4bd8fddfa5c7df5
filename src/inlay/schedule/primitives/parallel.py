"""Run the iterations of a loop on different threads."""

from __future__ import annotations

from inlay.arith.expr import Sym, symbols
from inlay.loop.buffer import Buffer
from inlay.loop.deps import Interval, accesses, iteration_dim, region
from inlay.loop.stmt import Alloc, For, IterKind, LoopKind
from inlay.loop.walk import blocks_of, stmts_below
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
    touched: dict[Buffer, list[tuple[tuple[Interval, ...], Sym]]] = {}
    written: set[Buffer] = set()
    for x in accesses(loop):
        if x.buffer in own or x.buffer.per_part:
            continue
        r = region(x, loop)
        if r is not None:
            touched.setdefault(x.buffer, []).append((r, loop.var))
        if x.writes:
            written.add(x.buffer)
        if r is None and (x.writes or x.buffer in s.outputs):
            raise illegal("dependence", f"found {x.buffer.name} indexed in a way not understood")
    for buffer in touched:
        if buffer in written and iteration_dim(touched[buffer]) is None:
            raise illegal(
                "dependence",
                f"found {buffer.name} shared by iterations of {loop.var.name}",
                hint="give each iteration its own buffer with set_scope",
            )
