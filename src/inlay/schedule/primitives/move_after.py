"""Change the order of neighboring statements."""

from __future__ import annotations

from inlay.loop.buffer import Buffer
from inlay.loop.deps import BlockAccess, apart, region
from inlay.loop.stmt import Seq, Stmt
from inlay.loop.walk import seq
from inlay.schedule.state import Place, Schedule, illegal, primitive


@primitive
def move_after(s: Schedule, loop: str, target: str) -> None:
    """Move a loop, with all inside it, to right after another in the same sequence.

    Before:

        for i in 0..n { block a(v: spatial n = i) { t[v] = x[v] } }
        for j in 0..n { block b(w: spatial n = j) { u[w] = x[w] } }
        for k in 0..n { block c(z: spatial n = k) { y[z] = t[z] + u[z] } }

    After `move_after(s, "i", "j")`:

        for j in 0..n { block b(w: spatial n = j) { u[w] = x[w] } }
        for i in 0..n { block a(v: spatial n = i) { t[v] = x[v] } }
        for k in 0..n { block c(z: spatial n = k) { y[z] = t[z] + u[z] } }

    Legal if what it passes touches no element that it writes, and the other way round.

    Raises:
        Illegal: `schedule.not-nested`, `schedule.dependence`.
    """
    place, at = s.loop_place(loop), s.loop_place(target)
    parent = place.parent
    siblings = parent.stmt if parent is not None else None
    if not isinstance(siblings, Seq) or at.parent is not parent or at is place:
        raise illegal("not-nested", f"found {loop} and {target} in different statements")
    stmts = list(siblings.stmts)
    start, end = stmts.index(place.stmt), stmts.index(at.stmt)
    passed = stmts[start + 1 : end + 1] if start < end else stmts[end + 1 : start]
    _require_apart(s, place, passed)
    stmts.remove(place.stmt)
    stmts.insert(stmts.index(at.stmt) + 1, place.stmt)
    assert parent is not None, "the loops have a sequence around them"
    s.replace(parent, seq(*stmts))


def _require_apart(s: Schedule, place: Place, passed: list[Stmt]) -> None:
    mine: dict[Buffer, list[BlockAccess]] = {}
    for x in s.accesses(place.stmt):
        mine.setdefault(x.buffer, []).append(x)
    for other in passed:
        for y in s.accesses(other):
            for x in mine.get(y.buffer, ()):
                if (x.writes or y.writes) and not apart(region(x, None), region(y, None)):
                    raise illegal(
                        "dependence",
                        f"found {x.buffer.name} touched by {x.block.name} and by {y.block.name}, "
                        "which it would pass",
                    )
