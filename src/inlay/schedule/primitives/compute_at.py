"""Compute a temporary inside a loop of its readers, as much as one iteration needs."""

from __future__ import annotations

from inlay.arith.expr import Int, Sym, lit, to_int
from inlay.loop.buffer import Buffer, Scope
from inlay.loop.deps import BlockAccess, Interval, region
from inlay.loop.inits import conjunction
from inlay.loop.ranges import Bounds
from inlay.loop.scalar import Scalar
from inlay.loop.stmt import Block, For, IterKind, LoopKind, Seq, Stmt
from inlay.loop.walk import loads_of, seq, stores_of
from inlay.schedule.primitives.inline import without_empty
from inlay.schedule.primitives.split import less
from inlay.schedule.state import Schedule, illegal, primitive


@primitive
def compute_at(s: Schedule, block: str, loop: str) -> None:
    """Move a block to the start of a loop, and compute just what an iteration of the loop reads.

    Before:

        alloc t: f32[n + 1] workspace
        for j in 0..n + 1 { block a(w: spatial n + 1 = j) { t[w] = x[w] * 2.0:f32 } }
        for i in 0..n { block b(v: spatial n = i) { y[v] = t[v] + t[v + 1] } }

    After `compute_at(s, "a", "i")`:

        alloc t: f32[n + 1] workspace
        for i in 0..n {
          for a_0 in 0..2 { block a(w: spatial n + 1 = i + a_0) { t[w] = x[w] * 2.0:f32 } }
          block b(v: spatial n = i) { y[v] = t[v] + t[v + 1] }
        }

    Elements that several iterations read are computed again in each (unlike `merge`, which only
    changes the order); give each iteration its own buffer with `set_scope` before making the loop
    parallel. The block loses the loops around it and gets new ones over the region. Legal if only
    blocks inside the loop read what it writes, at indices whose range can be told.

    Raises:
        Illegal: `schedule.kind`, `schedule.dependence`.
    """
    producer, consumer = s.block(block), s.loop(loop)
    place = s.loop_place(loop)
    for p in (place, *place.above()):
        if isinstance(p.stmt, For) and p.stmt.kind in (LoopKind.PARALLEL, LoopKind.VECTOR):
            raise illegal(
                "kind",
                f"found {p.stmt.kind} loop {p.stmt.var.name}, whose iterations would share the result",
                hint="move the block first",
            )
    target, axes = _whole_write(producer, block)
    reads = [x for x in s.accesses(s.body, target) if x.block is not producer]
    if not reads or any(x.writes or consumer not in x.loops for x in reads):
        raise illegal("dependence", f"found {target.name} used outside {loop}")
    if any(isinstance(p.stmt, For) and p.stmt is consumer for p in s.block_place(block).above()):
        raise illegal("kind", f"found {block} inside {loop} already")
    _require_inputs_ready(s, producer, consumer)
    s.require_in_scope(producer, place)
    needed = _needed(reads, consumer, target)
    nest = _nest(s, producer, axes, needed, {x.var: (x.lo, x.extent) for x in reads[0].loops})
    s.replace(s.block_place(block), Seq(()))
    s.set_body(without_empty(s.body, None))
    at = s.loop(loop)
    new = For(at.var, at.lo, at.extent, at.kind, seq(nest, at.body), at.note)
    s.replace(s.loop_place(loop), new)


def _whole_write(block: Block, name: str) -> tuple[Buffer, list[Sym]]:
    """Return the temporary that a block writes in full, and the iter of each of its axes."""
    stores = list(stores_of(block.body))
    if len(stores) != 1 or stores[0].buffer.scope is Scope.PARAM:
        raise illegal("kind", f"found {name}, which does not write one temporary")
    spatial = {i.sym for i in block.iters if i.kind is IterKind.SPATIAL}
    axes = [e.atom for e in stores[0].indices if isinstance(e.atom, Sym)]
    if set(axes) != spatial or len(axes) != len(stores[0].indices) or block.predicate is not None:
        raise illegal("kind", f"found {name} to write a part of {stores[0].buffer.name}")
    return stores[0].buffer, axes


def _require_inputs_ready(s: Schedule, producer: Block, consumer: For) -> None:
    inputs = {x.buffer for x in loads_of(producer.body)}
    inputs -= {x.buffer for x in stores_of(producer.body)}
    for x in s.accesses(consumer):
        if x.writes and x.buffer in inputs:
            raise illegal("dependence", f"found {x.block.name} to write {x.buffer.name}")


def _needed(reads: list[BlockAccess], loop: For, target: Buffer) -> list[Interval]:
    """Return the interval along each axis that an iteration reads."""
    result: list[Interval | None] = []
    for x in reads:
        swept = region(x, loop)
        if swept is None:
            raise illegal("dependence", f"found {target.name} indexed in a way not understood")
        result = [_union(a, b) for a, b in zip(result or [None] * len(swept), swept, strict=True)]
    return [x for x in result if x is not None]


def _union(a: Interval | None, b: Interval) -> Interval:
    if a is None:
        return b
    shift = (b.lo - a.lo).value
    if shift == 0 and a.extent == b.extent:
        return a
    end, other = a.extent.value, b.extent.value
    if shift is None or end is None or other is None:
        raise illegal("dependence", "found reads whose distance is not a number")
    low, high = min(0, shift), max(end, shift + other)
    return Interval(a.lo + low, lit(high - low), dense=True)


def _nest(
    s: Schedule,
    producer: Block,
    axes: list[Sym],
    needed: list[Interval],
    around: dict[Sym, tuple[Int, Int]],
) -> Stmt:
    """Return loops over a region around the block; reductions run in full, innermost."""
    extents = {i.sym: i.extent for i in producer.iters}
    bounds = Bounds(around)
    bindings: dict[Sym, Int] = {}
    loops: list[tuple[Sym, Int]] = []
    predicate: Scalar | None = None
    for d, (axis, x) in enumerate(zip(axes, needed, strict=True)):
        value = x.lo
        if x.extent != 1:
            var = s.fresh_loop(f"{producer.name}_{d}")
            loops.append((var, x.extent))
            bounds = bounds.inside(var, lit(0), x.extent)
            value = value + to_int(var)
        bindings[axis] = value
        for condition in _limits(bounds, value, extents[axis]):
            predicate = condition if predicate is None else conjunction(predicate, condition)
    for i in producer.iters:
        if i.kind is IterKind.REDUCE:
            var = s.fresh_loop(f"{producer.name}_{i.sym.name}")
            loops.append((var, i.extent))
            bindings[i.sym] = to_int(var)
    values = tuple(bindings[i.sym] for i in producer.iters)
    result: Stmt = Block(
        producer.name, producer.iters, values, producer.body, producer.init, predicate
    )
    for var, extent in reversed(loops):
        result = For(var, lit(0), extent, LoopKind.SERIAL, result)
    return result


def _limits(bounds: Bounds, value: Int, extent: Int) -> list[Scalar]:
    """Return the conditions under which a value is in its domain, where that is not certain."""
    found: list[Scalar] = []
    if not bounds.at_least(value, 0):
        found.append(less(lit(-1), value))
    if not bounds.less(value, extent):
        found.append(less(value, extent))
    return found
