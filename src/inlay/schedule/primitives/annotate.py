"""Leave a hint on a loop."""

from __future__ import annotations

from inlay.loop.stmt import For
from inlay.schedule.state import Schedule, primitive


@primitive
def annotate(s: Schedule, loop: str, key: str, value: str) -> None:
    """Add a note to a loop, for the code generator and for readers; a key is replaced.

    Before:

        for i in 0..n { block b(v: spatial n = i) { y[v] = x[v] } }

    After `annotate(s, "i", "grain", "64")`:

        for i in 0..n (grain="64") { block b(v: spatial n = i) { y[v] = x[v] } }
    """
    place, old = s.loop_place(loop), s.loop(loop)
    note = (*((k, v) for k, v in old.note if k != key), (key, value))
    s.replace(place, For(old.var, old.lo, old.extent, old.kind, old.body, note))
