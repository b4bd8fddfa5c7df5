"""Read a buffer through a temporary."""

from __future__ import annotations

from inlay.arith.expr import fresh, lit, to_int
from inlay.loop.buffer import Buffer, Scope
from inlay.loop.scalar import Load
from inlay.loop.stmt import Alloc, Block, BlockIter, For, IterKind, LoopKind, Stmt, Store
from inlay.loop.walk import Rewrite, seq
from inlay.schedule.state import Schedule, illegal, primitive


@primitive
def cache_read(s: Schedule, block: str, buffer: str, scope: str) -> str:
    """Let a block read a copy of a buffer.

    Before:

        for i in 0..n { block b(v: spatial n = i) { y[v] = x[v] + x[n - v - 1] } }

    After `cache_read(s, "b", "x", "workspace")`:

        alloc x_b: f32[n] workspace
        for b_x_0 in 0..n { block b_x(c: spatial n = b_x_0) { x_b[c] = x[c] } }
        for i in 0..n { block b(v: spatial n = i) { y[v] = x_b[v] + x_b[n - v - 1] } }

    The copy comes right before the outermost loop around the block; move it inside with
    `compute_at`, and give it a place with `set_scope`.

    Returns:
        The name of the copying block.

    Raises:
        Illegal: `schedule.kind`, `schedule.dependence`.
    """
    place, old = s.block_place(block), s.block(block)
    source = s.buffer(buffer)
    touched = [x for x in s.accesses(old) if x.buffer is source]
    if not touched or any(x.writes for x in touched):
        raise illegal("kind", f"found {block}, which does not only read {buffer}")
    around = s.loops_of(block)
    outermost = s.loop(around[0]) if around else s.body
    first = min(x.order for x in s.accesses(s.body) if x.block is old)
    for x in s.accesses(s.body, source):
        inside = x.loops[:1] == (outermost,) or not around
        if x.writes and (inside or x.order > first):
            raise illegal("dependence", f"found {x.block.name} to write {buffer} after the copy")
    s.require_in_scope(old, s.loop_place(around[0]) if around else s.block_place(block))
    copy = Buffer(s.fresh_name(f"{buffer}_{block}"), source.shape, source.dtype, Scope(scope))
    s.replace(place, Rewrite(buffers={source: copy}).block(old))
    name = s.fresh_name(f"{block}_{buffer}")
    nest = copy_nest(s, name, source, copy)
    if around:
        place = s.loop_place(around[0])
        s.replace(place, seq(nest, place.stmt))
    else:
        s.set_body(seq(nest, s.body))
    s.set_body(Alloc(copy, s.body))
    return name


def copy_nest(s: Schedule, name: str, source: Buffer, target: Buffer) -> Stmt:
    """Return loops around a block that copies all of one buffer to another of its shape."""
    iters = [BlockIter(fresh(f"c{d}"), n, IterKind.SPATIAL) for d, n in enumerate(source.shape)]
    loops = [s.fresh_loop(f"{name}_{d}") for d in range(len(iters))]
    at = tuple(to_int(i.sym) for i in iters)
    result: Stmt = Block(
        name, tuple(iters), tuple(map(to_int, loops)), Store(target, at, Load(source, at))
    )
    for var, i in zip(reversed(loops), reversed(iters), strict=True):
        result = For(var, lit(0), i.extent, LoopKind.SERIAL, result)
    return result
