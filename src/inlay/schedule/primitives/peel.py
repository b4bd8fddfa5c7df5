"""Cut the range of a loop in two."""

from __future__ import annotations

from inlay.arith.expr import lit, to_int
from inlay.loop.stmt import For
from inlay.loop.walk import Rewrite, blocks_of, fresh_copy, seq, stmts_below
from inlay.schedule.primitives.split import require_serial
from inlay.schedule.state import Schedule, illegal, primitive


@primitive
def peel(s: Schedule, loop: str, at: int) -> dict[str, str]:
    """Run the first `at` iterations of a loop apart from the rest.

    Before:

        for i in 0..4 { block b(v: spatial 4 = i) { y[v] = x[v] } }

    After `peel(s, "i", 1)`:

        for i in 0..1 { block b(v: spatial 4 = i) { y[v] = x[v] } }
        for i_1 in 1..4 { block b_1(v: spatial 4 = i_1) { y[v] = x[v] } }

    What holds in one of the parts alone, such as that a window does not reach over an edge, can then
    be used there. Other systems: loop peeling.

    Returns:
        Old to new names of the loops and blocks of the second part; the first keeps them.

    Raises:
        Illegal: `schedule.kind`, `schedule.extent`.
    """
    place, old = s.loop_place(loop), s.loop(loop)
    require_serial(old)
    count = old.extent.value
    if count is None or not 0 < at < count:
        raise illegal("extent", f"found {old.extent} iterations of {loop}, cannot cut after {at}")
    own = [x.var.name for x in stmts_below(old.body) if isinstance(x, For)]
    own += [b.name for b in blocks_of(old.body)]
    names: dict[str, str] = {}

    def rename(name: str) -> str:
        if name not in names:
            names[name] = s.fresh_name(name)
        return names[name]

    var = s.fresh_loop(loop)
    body = Rewrite({old.var: to_int(var)}).stmt(fresh_copy(old.body, rename))
    first = For(old.var, old.lo, lit(at), old.kind, old.body, old.note)
    second = For(var, old.lo + at, old.extent - at, old.kind, body, old.note)
    s.replace(place, seq(first, second))
    return {loop: var.name} | {n: rename(n) for n in own}
