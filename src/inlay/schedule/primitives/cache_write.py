"""Compute into a temporary, and copy it out."""

from __future__ import annotations

from inlay.arith.expr import fresh, lit, to_int
from inlay.loop.buffer import Buffer, Scope
from inlay.loop.scalar import Load
from inlay.loop.stmt import Alloc, Block, BlockIter, For, IterKind, LoopKind, Stmt, Store
from inlay.loop.walk import Rewrite, seq, stores_of
from inlay.schedule.state import Schedule, illegal, outermost_loop, primitive


@primitive
def cache_write(s: Schedule, block: str, scope: str) -> str:
    """Let a block write a temporary of the same shape, copied to its buffer afterwards.

    Before:

        for i in 0..n { for k in 0..m {
          block b(v: spatial n = i, r: reduce m = k) {
            init { y[v] = 0.0:f32 } y[v] = y[v] + x[v, r] } } }

    After `cache_write(s, "b", "register")`:

        alloc y_b: f32[n] @register
        for i in 0..n { for k in 0..m {
          block b(v: spatial n = i, r: reduce m = k) {
            init { y_b[v] = 0.0:f32 } y_b[v] = y_b[v] + x[v, r] } } }
        for b_copy_0 in 0..n { block b_copy(c: spatial n = b_copy_0) { y[c] = y_b[c] } }

    Use it before other primitives: the copy is a nest of its own, to be tiled and merged like any
    epilogue. It comes right after the outermost loop around the block.

    Returns:
        The name of the copying block.

    Raises:
        Illegal: `schedule.kind`, `schedule.dependence`.
    """
    place, old = s.block_place(block), s.block(block)
    stores = list(stores_of(old.body))
    if len({x.buffer for x in stores}) != 1:
        raise illegal("kind", f"found {block} to write several buffers, needed one")
    b = stores[0].buffer
    plain = {to_int(i.sym) for i in old.iters if i.kind is IterKind.SPATIAL}
    if set(stores[0].indices) != plain or len(plain) != len(b.shape):
        raise illegal("kind", f"found {block} to write a part of {b.name}, needed all of it")
    outermost = outermost_loop(place)
    within = s.body if outermost is None else s.loop(outermost)
    others = [x for x in s.accesses(s.body, b) if x.block is not old]
    inside = {x.block for x in s.accesses(within, b)}
    if any(x.writes or x.block in inside for x in others):
        raise illegal("dependence", f"found another block at work on {b.name}")
    temporary = Buffer(s.fresh_name(f"{b.name}_{block}"), b.shape, b.dtype, Scope(scope))
    rewrite = Rewrite(buffers={b: temporary})
    new = Block(
        old.name,
        old.iters,
        old.bindings,
        rewrite.stmt(old.body),
        None if old.init is None else rewrite.stmt(old.init),
        old.predicate,
    )
    s.replace(place, new)
    name = s.fresh_name(f"{block}_copy")
    nest = s.body if outermost is None else s.loop_place(outermost).stmt
    both = seq(nest, _copy_nest(s, name, temporary, b))
    if outermost is None:
        s.set_body(Alloc(temporary, both))
    else:
        s.replace(s.loop_place(outermost), both)
        s.set_body(Alloc(temporary, s.body))
    return name


def _copy_nest(s: Schedule, name: str, source: Buffer, target: Buffer) -> Stmt:
    """Return loops around a block that copies all of one buffer to another of its shape."""
    iters = [BlockIter(fresh(f"c{d}"), n, IterKind.SPATIAL) for d, n in enumerate(source.shape)]
    loops = [s.fresh_loop(f"{name}_{d}") for d in range(len(iters))]
    at = tuple(to_int(i.sym) for i in iters)
    result: Stmt = Block(name, tuple(iters), tuple(map(to_int, loops)), Store(target, at, Load(source, at)))
    for var, i in zip(reversed(loops), reversed(iters), strict=True):
        result = For(var, lit(0), i.extent, LoopKind.SERIAL, result)
    return result
