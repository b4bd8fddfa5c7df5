"""Run a loop as SIMD operations."""

from __future__ import annotations

from inlay.loop.stmt import Block, For, LoopKind, Seq, Stmt
from inlay.loop.walk import child_stmts
from inlay.schedule.primitives.parallel import require_independent
from inlay.schedule.primitives.split import require_serial
from inlay.schedule.state import Schedule, illegal, primitive


@primitive
def vectorize(s: Schedule, loop: str) -> None:
    """Mark an innermost loop of constant extent as a vector loop.

    Before:

        for i_o in 0..n { for i_i in 0..8 { block b(v: spatial 8*n = 8*i_o + i_i) { y[v] = x[v] } } }

    After `vectorize(s, "i_i")`:

        for i_o in 0..n { for i_i in 0..8 vector {
          block b(v: spatial 8*n = 8*i_o + i_i) { y[v] = x[v] } } }

    Legal if the iterations are independent: no block in it reduces over the loop (see `rfactor`).

    Raises:
        Illegal: `schedule.not-constant`, `schedule.kind`, `schedule.not-nested`,
            `schedule.dependence`.
    """
    place, old = s.loop_place(loop), s.loop(loop)
    require_serial(old)
    if old.extent.value is None:
        raise illegal("not-constant", f"found extent {old.extent} of {loop}", hint="split the loop first")
    _require_blocks_only(old.body)
    require_independent(s, old)
    s.replace(place, For(old.var, old.lo, old.extent, LoopKind.VECTOR, old.body, old.note))


def _require_blocks_only(s: Stmt) -> None:
    match s:
        case Block():
            pass
        case Seq():
            for child in child_stmts(s):
                _require_blocks_only(child)
        case _:
            kind = type(s).__name__.lower()
            raise illegal("not-nested", f"found a {kind} inside, needed the innermost loop")
