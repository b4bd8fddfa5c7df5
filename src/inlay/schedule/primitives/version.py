"""Copy a loop, to run one of the copies by how many iterations there are."""

from __future__ import annotations

from dataclasses import replace

from inlay.arith.expr import floordiv, lit, minimum
from inlay.loop.walk import seq
from inlay.schedule.primitives.split import require_serial
from inlay.schedule.state import Schedule, illegal, primitive


@primitive
def version(s: Schedule, loop: str, at: int) -> dict[str, str]:
    """Run one copy of a loop for fewer than `at` iterations, and another one for more.

    Before:

        for i in 0..n { block b(v: spatial n = i) { y[v] = x[v] } }

    After `version(s, "i", 4)`:

        for i in 0..n - n*min(n / 4, 1) { block b(v: spatial n = i) { y[v] = x[v] } }
        for i_1 in 0..n*min(n / 4, 1) { block b_1(v: spatial n = i_1) { y[v] = x[v] } }

    So what pays for many iterations alone is only in the code that many take. Other systems: loop
    versioning, multi-versioning.

    Returns:
        Old to new names of the loops and blocks of the second copy; the first keeps them.

    Raises:
        Illegal: `schedule.kind`, `schedule.extent`.
    """
    place, old = s.loop_place(loop), s.loop(loop)
    require_serial(old)
    if old.extent.value is not None or at < 1:
        raise illegal("extent", f"found {old.extent} iterations of {loop}, needed a number that is not known")
    second, names = s.copied_loop(old)
    many = old.extent * minimum(floordiv(old.extent, lit(at)), lit(1))
    s.replace(place, seq(replace(old, extent=old.extent - many), replace(second, extent=many)))
    return names
