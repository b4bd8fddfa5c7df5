"""Write a loop out."""

from __future__ import annotations

from inlay.loop.stmt import For, LoopKind
from inlay.schedule.primitives.split import require_serial
from inlay.schedule.state import Schedule, illegal, primitive


@primitive
def unroll(s: Schedule, loop: str) -> None:
    """Mark a loop of constant extent to be written out by the code generator.

    Before:

        for i in 0..4 { block b(v: spatial 4 = i) { y[v] = x[v] } }

    After `unroll(s, "i")`:

        for i in 0..4 unroll { block b(v: spatial 4 = i) { y[v] = x[v] } }

    Raises:
        Illegal: `schedule.not-constant`, `schedule.kind`.
    """
    place, old = s.loop_place(loop), s.loop(loop)
    require_serial(old)
    if old.extent.value is None:
        raise illegal("not-constant", f"found extent {old.extent} of {loop}")
    s.replace(place, For(old.var, old.lo, old.extent, LoopKind.UNROLL, old.body, old.note))
