"""Let a block update a temporary, which is loaded before and stored behind."""

from __future__ import annotations

from inlay.loop.buffer import Buffer, Scope
from inlay.loop.inits import init_nest
from inlay.loop.scalar import Load
from inlay.loop.stmt import Alloc, Block, For, Stmt, Store
from inlay.loop.walk import Rewrite, loads_of, seq, stores_of
from inlay.schedule.state import Schedule, chain, illegal, primitive


@primitive
def cache_inplace(s: Schedule, block: str, loop: str, scope: str) -> tuple[str, str]:
    """Let a block update a temporary in each iteration of a loop.

    Before:

        for i in 0..n { block b_init(v: spatial n = i) { y[v] = 0.0:f32 } }
        for o in 0..m { for i in 0..n { for k in 0..8 {
          block b(v: spatial n = i, r: reduce 8*m = 8*o + k) { y[v] = y[v] + x[v, r] } } } }

    After `cache_inplace(s, "b", "o", "register")`:

        for i in 0..n { block b_init(v: spatial n = i) { y[v] = 0.0:f32 } }
        for o in 0..m {
          alloc y_b: f32[n] @register
          for i_load in 0..n { block b_load(v: spatial n = i_load) { y_b[v] = y[v] } }
          for i in 0..n { for k in 0..8 {
            block b(v: spatial n = i, r: reduce 8*m = 8*o + k) { y_b[v] = y_b[v] + x[v, r] } } }
          for i_store in 0..n { block b_store(v: spatial n = i_store) { y[v] = y_b[v] } }
        }

    Loops inside `loop` over which the block is spatial are repeated around what loads and what stores.
    The order of a sum stays what it is.

    Returns:
        The names of the blocks that load and that store.

    Raises:
        Illegal: `schedule.kind`, `schedule.dependence`, `schedule.not-nested`.
    """
    place, inner, old = s.loop_place(loop), s.block_place(block), s.block(block)
    stores = list(stores_of(old.body))
    y, at = stores[0].buffer, stores[0].indices
    read = {x.indices for x in loads_of(old.body) if x.buffer is y}
    if old.init is not None or len(stores) != 1 or read != {at}:
        raise illegal("kind", f"found {block}, needed one that updates a buffer and does not start it")
    if any(x.block is not old for x in s.accesses(s.loop(loop), y)):
        raise illegal("dependence", f"found another block in {loop} at work on {y.name}")
    assert inner.parent is not None, "a loop is around the block"
    outer, *below = chain(place, inner.parent)
    temporary = Buffer(s.fresh_name(f"{y.name}_{block}"), y.shape, y.dtype, Scope(scope))

    def nest(verb: str, store: Store) -> tuple[str, Stmt]:
        name = s.fresh_name(f"{block}_{verb}")
        moved = Block(old.name, old.iters, old.bindings, old.body, store, old.predicate)
        return name, init_nest(moved, below, name, lambda base: s.fresh_name(f"{base}_{verb}"))

    load, before = nest("load", Store(temporary, at, Load(y, at)))
    store, behind = nest("store", Store(y, at, Load(temporary, at)))
    body = Alloc(temporary, seq(before, Rewrite(buffers={y: temporary}).stmt(outer.body), behind))
    s.replace(place, For(outer.var, outer.lo, outer.extent, outer.kind, body, outer.note))
    return load, store
