"""Cut the range of a loop in two."""

from __future__ import annotations

from dataclasses import replace

from inlay.arith.expr import lit
from inlay.loop.walk import seq
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
    second, names = s.copied_loop(old)
    first = replace(old, extent=lit(at))
    s.replace(place, seq(first, replace(second, lo=old.lo + at, extent=old.extent - at)))
    return names
