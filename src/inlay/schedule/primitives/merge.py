"""Run two neighboring loops as one."""

from __future__ import annotations

from inlay.arith.expr import Sym, to_int
from inlay.loop.buffer import Buffer, Scope
from inlay.loop.deps import BlockAccess, Interval, iteration_dim, region, renamed
from inlay.loop.stmt import Alloc, For, Seq, Stmt
from inlay.loop.walk import Rewrite, seq
from inlay.schedule.state import Schedule, illegal, primitive


@primitive
def merge(s: Schedule, first: str, second: str) -> None:
    """Run the body of the second loop right after that of the first, in each iteration.

    Before:

        for i in 0..n { block a(v: spatial n = i) { t[v] = x[v] * 2.0:f32 } }
        for j in 0..n { block b(w: spatial n = j) { y[w] = t[w] + 1.0:f32 } }

    After `merge(s, "i", "j")`:

        for i in 0..n {
          block a(v: spatial n = i) { t[v] = x[v] * 2.0:f32 }
          block b(w: spatial n = i) { y[w] = t[w] + 1.0:f32 }
        }

    Other systems: loop fusion.
    Legal if both have the same range and kind, stand next to each other, and each buffer that one
    writes and the other touches is touched by an iteration of the one only where the same iteration
    of the other does.

    Raises:
        Illegal: `schedule.not-nested`, `schedule.extent`, `schedule.kind`, `schedule.dependence`.
    """
    place_a, place_b = s.loop_place(first), s.loop_place(second)
    a, b = s.loop(first), s.loop(second)
    parent = place_a.parent
    siblings = parent.stmt if parent is not None else None
    if not isinstance(siblings, Seq) or place_b.parent is not parent:
        raise illegal("not-nested", f"found {first} and {second} in different statements")
    at = siblings.stmts.index(a)
    if siblings.stmts[at + 1 : at + 2] != (b,):
        raise illegal("not-nested", f"found {second} not right after {first}")
    if a.lo != b.lo or a.extent != b.extent:
        raise illegal("extent", f"found {first} of extent {a.extent} and {second} of extent {b.extent}")
    if a.kind is not b.kind:
        raise illegal("kind", f"found a {a.kind} loop and a {b.kind} loop")
    require_same_iteration(s, a, b)
    body = Rewrite({b.var: to_int(a.var)}).stmt(b.body)
    merged = For(a.var, a.lo, a.extent, a.kind, _behind(a.body, body), a.note)
    stmts = (*siblings.stmts[:at], merged, *siblings.stmts[at + 2 :])
    assert parent is not None, "the loops have a sequence around them"
    s.replace(parent, seq(*stmts))


def _behind(a: Stmt, b: Stmt) -> Stmt:
    """Return two statements as one.

    Registers of the second are there for both, so that loops in it may be merged too.
    """
    if isinstance(b, Alloc) and b.buffer.scope == Scope.REGISTER:
        return Alloc(b.buffer, _behind(a, b.body))
    return seq(a, b)


def require_same_iteration(s: Schedule, a: For, b: For) -> None:
    """Refuse if an iteration of one loop depends on another iteration of the other.

    Raises:
        Illegal: `schedule.dependence`.
    """
    shared: dict[Buffer, list[tuple[BlockAccess, For]]] = {}
    for loop in (a, b):
        for x in s.accesses(loop):
            shared.setdefault(x.buffer, []).append((x, loop))
    for buffer, found in shared.items():
        if len({loop for _, loop in found}) < 2 or not any(x.writes for x, _ in found):
            continue
        regions: list[tuple[tuple[Interval, ...], Sym]] = []
        for x, loop in found:
            r = region(x, loop)
            if r is None:
                raise illegal("dependence", f"found {buffer.name} indexed in a way not understood")
            regions.append((renamed(r, b.var, a.var), a.var))
        if iteration_dim(regions) is None:
            raise illegal(
                "dependence",
                f"found {buffer.name} touched by different iterations of {a.var.name} and {b.var.name}",
            )
