"""Compute what a loop reads inside the loop, as much as one iteration needs."""

from __future__ import annotations

from inlay.arith.expr import Int, Sym, lit, to_int
from inlay.loop.buffer import Scope
from inlay.loop.deps import BlockAccess, Interval, hull, inside, joined, ranges
from inlay.loop.inits import conjunction
from inlay.loop.ranges import Bounds
from inlay.loop.scalar import Scalar
from inlay.loop.stmt import Block, For, LoopKind, Seq, Stmt
from inlay.loop.walk import seq
from inlay.schedule.primitives.inline import element_of, require_stable, without_empty
from inlay.schedule.primitives.set_scope import set_scope
from inlay.schedule.primitives.split import less
from inlay.schedule.state import Place, Schedule, illegal, primitive


@primitive
def compute_at(s: Schedule, block: str, loop: str, scope: str) -> None:
    """Move a block into a loop, where it computes the elements that one iteration reads.

    Before:

        alloc t: f32[n + 2] @workspace
        for i in 0..n + 2 { block a(v: spatial n + 2 = i) { t[v] = x[v] * 2.0:f32 } }
        for j in 0..n { for k in 0..3 {
          block b(w: spatial n = j, r: reduce 3 = k) {
            init { y[w] = 0.0:f32 } y[w] = y[w] + t[w + r] } } }

    After `compute_at(s, "a", "j", "stack")`:

        for j in 0..n {
          alloc t_j: f32[n + 2] @stack
          for a_0 in 0..3 { block a(v: spatial n + 2 = j + a_0) { t_j[v] = x[v] * 2.0:f32 } }
          for k in 0..3 {
            block b(w: spatial n = j, r: reduce 3 = k) {
              init { y[w] = 0.0:f32 } y[w] = y[w] + t_j[w + r] } } }

    What several iterations read is computed by each of them. Lowering shrinks the temporary, which gets
    the scope that is given, to what one iteration needs (here, three elements).

    Legal for a block that does not reduce, alone writes a temporary, and is read inside the loop alone.
    Along an axis where it cannot be told what an iteration reads, all of it is computed.

    Raises:
        Illegal: `schedule.kind`, `schedule.dependence`, `schedule.not-nested`.
    """
    producer, place, around = s.block(block), s.loop_place(loop), s.loop(loop)
    target, (axes, _) = element_of(producer, block)
    if target.scope == Scope.PARAM:
        raise illegal("kind", f"found {block} to write parameter {target.name}")
    if around.kind not in (LoopKind.SERIAL, LoopKind.PARALLEL):
        raise illegal("kind", f"found {around.kind} loop {loop}, which has no place for a nest")
    if loop in s.loops_of(block):
        raise illegal("not-nested", f"found {block} inside {loop} already")
    others = [x for x in s.accesses(s.body, target) if x.block is not producer]
    _require_readers_inside(others, around, block)
    require_stable(s, producer)
    s.require_in_scope(producer, place)
    known = Bounds({**_ranges_above(place), around.var: (around.lo, around.extent)})
    region = [_needed(others, around, axis, n, known) for axis, n in enumerate(target.shape)]
    nest = _nest(s, producer, dict(zip(axes, region, strict=True)), known)
    s.replace(s.block_place(block), Seq(()))
    s.set_body(without_empty(s.body, None))
    inner = For(around.var, around.lo, around.extent, around.kind, seq(nest, around.body), around.note)
    s.replace(s.loop_place(loop), inner)
    set_scope(s, target.name, scope, at=loop)


def _require_readers_inside(others: list[BlockAccess], loop: For, block: str) -> None:
    for x in others:
        if x.writes:
            raise illegal("dependence", f"found another block that writes {x.buffer.name}")
        if loop not in x.loops:
            raise illegal(
                "dependence", f"found {x.block.name} to read {x.buffer.name} outside {loop.var.name}"
            )
    if not others:
        raise illegal("dependence", f"found nothing that reads what {block} writes")


def _ranges_above(place: Place) -> dict[Sym, tuple[Int, Int]]:
    return ranges(reversed([p.stmt for p in place.above() if isinstance(p.stmt, For)]))


def _needed(readers: list[BlockAccess], loop: For, axis: int, n: Int, known: Bounds) -> Interval:
    """Return what one iteration reads along an axis; all of it where that cannot be told."""
    whole = Interval(lit(0), n, dense=True)
    found: Interval | None = None
    for x in readers:
        bounds = Bounds(ranges(x.loops))
        here = None if x.gathers else hull(bounds.simplify(x.indices[axis]), inside(x, loop))
        both = here if found is None or here is None else joined(found, here)
        if both is None:
            return whole
        found = both
    assert found is not None, "something reads it"
    # An index may reach over the end where a predicate turns iterations off.
    at_ends = found.lo == 0 and not known.at_least(n - found.extent, 1)
    return whole if at_ends or not known.at_least(found.lo, 0) else found


def _nest(s: Schedule, b: Block, region: dict[Sym, Interval], known: Bounds) -> Stmt:
    """Return loops over a region around a block."""
    loops: list[tuple[Sym, Int]] = []
    bindings: list[Int] = []
    predicate: Scalar | None = None
    for d, i in enumerate(b.iters):
        part = region[i.sym]
        var = s.fresh_loop(f"{b.name}_{d}")
        loops.append((var, part.extent))
        at = part.lo + to_int(var)
        bindings.append(at)
        if not known.at_least(i.extent - part.lo - part.extent, 0):
            condition = less(at, i.extent)
            predicate = condition if predicate is None else conjunction(predicate, condition)
    result: Stmt = Block(b.name, b.iters, tuple(bindings), b.body, None, predicate)
    for var, extent in reversed(loops):
        result = For(var, lit(0), extent, LoopKind.SERIAL, result)
    return result
