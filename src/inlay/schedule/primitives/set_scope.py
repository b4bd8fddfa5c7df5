"""Choose where a temporary lives, and for how long."""

from __future__ import annotations

from inlay.arith.expr import Sym
from inlay.loop.buffer import Buffer, Scope
from inlay.loop.deps import BlockAccess, covers, region
from inlay.loop.inits import conjuncts, iter_symbols, predicate_without
from inlay.loop.scalar import Binary, BinaryOp, Index
from inlay.loop.stmt import Alloc, For, IterKind, LoopKind, Stmt
from inlay.loop.walk import Rewrite, child_stmts, map_children
from inlay.schedule.state import Schedule, illegal, primitive


@primitive
def set_scope(s: Schedule, buffer: str, scope: str, at: str | None = None) -> str:
    """Give a temporary a scope, and allocate it anew in each iteration of a loop.

    Before:

        alloc t: f32[n] @workspace
        for i in 0..n {
          block a(v: spatial n = i) { t[v] = x[v] * 2.0:f32 }
          block b(w: spatial n = i) { y[w] = t[w] + 1.0:f32 }
        }

    After `set_scope(s, "t", "register", at="i")`:

        for i in 0..n {
          alloc t_i: f32[n] @register
          block a(v: spatial n = i) { t_i[v] = x[v] * 2.0:f32 }
          block b(w: spatial n = i) { y[w] = t_i[w] + 1.0:f32 }
        }

    Lowering shrinks the buffer to what one iteration touches (here, one element). Legal if an
    iteration reads only what it wrote before, and nothing outside the loop reads what it writes.
    Where several nests use one temporary, each is given its own with a call of its own.

    Returns:
        The name of the buffer inside the loop; the same buffer with a new scope if `at` is None.

    Raises:
        Illegal: `schedule.kind`, `schedule.dependence`.
    """
    old = s.buffer(buffer)
    if old.scope == Scope.PARAM:
        raise illegal("kind", f"found parameter {buffer}, needed a temporary")
    if at is None:
        new = Buffer(old.name, old.shape, old.dtype, Scope(scope), old.strides)
        s.set_body(_with_buffer(s.body, old, new))
        return new.name
    place, loop = s.loop_place(at), s.loop(at)
    if loop.kind is LoopKind.VECTOR:
        raise illegal("kind", f"found vector loop {at}, which has no place for a buffer")
    everything = s.accesses(s.body, old)
    mine = [x for x in everything if loop in x.loops]
    if not mine:
        raise illegal("kind", f"found {buffer} not used inside {at}")
    others = [x for x in everything if loop not in x.loops]
    _require_self_contained(mine, loop, f"one iteration of {at}")
    _require_self_contained(others, _loop_around(s.body, old), f"what is outside {at}")
    new = Buffer(s.fresh_name(f"{buffer}_{at}"), old.shape, old.dtype, Scope(scope), old.strides)
    # The temporary may be allocated inside already; then it only changes its name and scope.
    body = Alloc(new, Rewrite(buffers={old: new}).stmt(_without_alloc(loop.body, old)))
    s.replace(place, For(loop.var, loop.lo, loop.extent, loop.kind, body, loop.note))
    if not others:
        s.set_body(_without_alloc(s.body, old))
    return new.name


def _require_self_contained(found: list[BlockAccess], loop: For | None, what: str) -> None:
    """Each read is covered by one write that comes before it.

    A block that updates reads its own element. Its init is among its writes, and happens before the
    outermost loop over which it reduces: inside the iteration only if that loop is.
    """
    writes = [x for x in found if x.writes]
    regions = {id(x): region(x, loop) for x in found}
    for x in found:
        if x.writes:
            continue
        earlier = [w for w in writes if w.order < x.order or (w.block is x.block and _starts_inside(x, loop))]
        earlier = [w for w in earlier if _writes_all(w)]
        if not any(covers(regions[id(w)], regions[id(x)], x.buffer.shape) for w in earlier):
            raise illegal(
                "dependence",
                f"found {x.block.name} to read {x.buffer.name}, which {what} does not write before",
            )


def _writes_all(w: BlockAccess) -> bool:
    """Whether a block writes all of its region that is inside the buffer.

    A predicate may keep it from elements outside the buffer, and no others. Conditions on single
    terms of a reduction do not count where the block also starts it.
    """
    free = iter_symbols(w.block, IterKind.REDUCE) if w.block.init is not None else set[Sym]()
    conditions = conjuncts(predicate_without(w.block, free))
    limits = {e - n for e, n in zip(w.indices, w.buffer.shape, strict=True)}
    return all(
        isinstance(c, Binary)
        and c.op is BinaryOp.LT
        and isinstance(c.lhs, Index)
        and isinstance(c.rhs, Index)
        and c.lhs.value - c.rhs.value in limits
        for c in conditions
    )


def _starts_inside(x: BlockAccess, loop: For | None) -> bool:
    """Whether the init of a block runs in the same iteration of `loop` as its updates."""
    if x.block.init is None:
        return False
    outside = () if loop is None else x.loops[: x.loops.index(loop) + 1]
    return iter_symbols(x.block, IterKind.REDUCE).isdisjoint(y.var for y in outside)


def _with_buffer(s: Stmt, old: Buffer, new: Buffer) -> Stmt:
    return Rewrite(buffers={old: new}).stmt(s)


def _loop_around(s: Stmt, b: Buffer, loop: For | None = None) -> For | None:
    """Return the innermost loop in which a buffer is allocated anew, if there is one."""
    if isinstance(s, Alloc) and s.buffer is b:
        return loop
    inner = s if isinstance(s, For) else loop
    found = (_loop_around(child, b, inner) for child in child_stmts(s))
    return next((x for x in found if x is not None), None)


def _without_alloc(s: Stmt, b: Buffer) -> Stmt:
    if isinstance(s, Alloc) and s.buffer is b:
        return s.body
    return map_children(s, lambda child: _without_alloc(child, b))
