"""Give the start of a reduction a nest of its own."""

from __future__ import annotations

from inlay.loop.inits import init_nest, iter_symbols, without_init
from inlay.loop.stmt import For, IterKind, Stmt
from inlay.loop.walk import seq
from inlay.schedule.state import Schedule, chain, illegal, primitive


@primitive
def decompose_reduction(s: Schedule, block: str, loop: str) -> str:
    """Move the init of a block in front of a loop that is around it.

    Before:

        for i in 0..n { for k in 0..m {
          block b(v: spatial n = i, r: reduce m = k) {
            init { y[v] = 0.0:f32 } y[v] = y[v] + x[v, r] } } }

    After `decompose_reduction(s, "b", "k")`:

        for i in 0..n {
          block b_init(v: spatial n = i) { y[v] = 0.0:f32 }
          for k in 0..m { block b(v: spatial n = i, r: reduce m = k) { y[v] = y[v] + x[v, r] } }
        }

    Loops inside `loop` over which the block is spatial are repeated around the init, with their
    kinds.

    Returns:
        The name of the init block.

    Raises:
        Illegal: `schedule.kind`, `schedule.not-nested`.
    """
    place, inner = s.loop_place(loop), s.block_place(block)
    old = s.block(block)
    if old.init is None:
        raise illegal("kind", f"found block {block} without an init")
    assert inner.parent is not None, "a loop is around the block"
    below = chain(place, inner.parent)
    reducing = iter_symbols(old, IterKind.REDUCE)
    if reducing & {p.stmt.var for p in place.above() if isinstance(p.stmt, For)}:
        raise illegal("kind", f"found a loop outside {loop} over which {block} reduces")
    if reducing & iter_symbols(old, IterKind.SPATIAL):
        raise illegal("kind", f"found a loop over which {block} both reduces and does not")
    name = s.fresh_name(f"{block}_init")
    nest = init_nest(old, below, name, lambda base: s.fresh_name(f"{base}_init"))
    result: Stmt = without_init(old)
    for x in reversed(below):
        result = For(x.var, x.lo, x.extent, x.kind, result, x.note)
    s.replace(place, seq(nest, result))
    return name
