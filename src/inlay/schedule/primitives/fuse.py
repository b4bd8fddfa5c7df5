"""Make one loop of two nested ones."""

from __future__ import annotations

from inlay.arith.expr import lit, symbols, to_int
from inlay.loop.inits import iter_symbols
from inlay.loop.stmt import For, IterKind, LoopKind, Stmt
from inlay.loop.walk import Rewrite, blocks_of
from inlay.schedule.primitives.parallel import require_independent
from inlay.schedule.primitives.split import require_serial
from inlay.schedule.state import Schedule, chain, illegal, primitive


@primitive
def fuse(s: Schedule, outer: str, inner: str, *, keeps: bool = False) -> str:
    """Make one loop of two, where the inner is directly inside the outer.

    Before:

        for i in 0..4 { for j in 0..n {
          block b(u: spatial 4 = i, v: spatial n = j) { y[u, v] = x[u, v] } } }

    After `fuse(s, "i", "j")`:

        for i_j in 0..4*n {
          block b(u: spatial 4 = (i_j / n), v: spatial n = (i_j % n)) { y[u, v] = x[u, v] } }

    With `keeps`, both are left as loops of one iteration, so that what their last iterations do may still be
    separated from the others (`lower/partition_loops.py`):

        for i_j in 0..4*n {
          for i in (i_j / n)..(i_j / n) + 1 { for j in (i_j % n)..(i_j % n) + 1 { ... } } }

    The outer one may be parallel, if iterations of the inner one are independent: then those of both are.

    Returns:
        The name of the new loop.

    Raises:
        Illegal: `schedule.not-nested`, `schedule.extent`, `schedule.kind`, `schedule.dependence`.
    """
    place = s.loop_place(outer)
    nest = chain(place, s.loop_place(inner))
    if len(nest) != 2:
        raise illegal("not-nested", f"found loops between {outer} and {inner}")
    a, b = nest
    require_serial(b)
    if a.kind is LoopKind.PARALLEL:
        require_independent(s, b)
    else:
        require_serial(a)
    if a.var in symbols(b.extent) or a.var in symbols(b.lo):
        raise illegal("extent", f"found the range of {inner} to depend on {outer}")
    for block in blocks_of(b.body):
        reducing = iter_symbols(block, IterKind.REDUCE)
        if block.init is not None and (a.var in reducing) != (b.var in reducing):
            raise illegal("kind", f"found {block.name} to reduce over one of {outer} and {inner}")
    var = s.fresh_loop(f"{outer}_{inner}")
    at = to_int(var)
    first, second = a.lo + at // b.extent, b.lo + at % b.extent
    if keeps:
        one = For(b.var, second, lit(1), b.kind, b.body, b.note)
        body: Stmt = For(a.var, first, lit(1), LoopKind.SERIAL, one)
    else:
        body = Rewrite({a.var: first, b.var: second}).stmt(b.body)
    s.replace(place, For(var, lit(0), a.extent * b.extent, a.kind, body, a.note))
    return var.name
