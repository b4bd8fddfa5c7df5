"""Give each statement of a loop a loop of its own."""

from __future__ import annotations

from inlay.arith.expr import to_int
from inlay.loop.stmt import For, Seq
from inlay.loop.walk import Rewrite, seq
from inlay.schedule.primitives.merge import require_same_iteration
from inlay.schedule.primitives.split import require_serial
from inlay.schedule.state import Schedule, illegal, primitive


@primitive
def distribute(s: Schedule, loop: str) -> tuple[str, ...]:
    """Repeat a loop around each of the statements in it.

    Before:

        for i in 0..n {
          block a(v: spatial n = i) { t[v] = x[v] * 2.0:f32 }
          block b(w: spatial n = i) { y[w] = t[w] + 1.0:f32 }
        }

    After `distribute(s, "i")`:

        for i in 0..n { block a(v: spatial n = i) { t[v] = x[v] * 2.0:f32 } }
        for i_1 in 0..n { block b(w: spatial n = i_1) { y[w] = t[w] + 1.0:f32 } }

    Other systems: loop fission. It is the inverse of `merge`, and legal on the same condition.

    Returns:
        The names of the loops, in order; the first keeps its name.

    Raises:
        Illegal: `schedule.kind`, `schedule.not-nested`, `schedule.dependence`.
    """
    place, old = s.loop_place(loop), s.loop(loop)
    require_serial(old)
    if not isinstance(old.body, Seq):
        raise illegal("not-nested", f"found one statement in {loop}, needed several")
    loops = [For(old.var, old.lo, old.extent, old.kind, body, old.note) for body in old.body.stmts]
    for i, first in enumerate(loops):
        for second in loops[i + 1 :]:
            require_same_iteration(s, first, second)
    made = [loops[0]]
    for one in loops[1:]:
        var = s.fresh_loop(loop)
        body = Rewrite({old.var: to_int(var)}).stmt(one.body)
        made.append(For(var, old.lo, old.extent, old.kind, body, old.note))
    s.replace(place, seq(*made))
    return tuple(x.var.name for x in made)
