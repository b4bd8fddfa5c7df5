"""Compute what follows inside a loop of what it reads, as soon as it can be."""

from __future__ import annotations

from inlay.arith.expr import Int, Sym, lit, to_int
from inlay.loop.buffer import Buffer, Scope
from inlay.loop.deps import BlockAccess, Interval, iteration_dim, region
from inlay.loop.inits import conjunction, iter_symbols
from inlay.loop.ranges import Bounds
from inlay.loop.scalar import Scalar
from inlay.loop.stmt import Block, For, IterKind, LoopKind, Seq, Stmt
from inlay.loop.walk import loads_of, seq
from inlay.schedule.primitives.inline import element_of, without_empty
from inlay.schedule.primitives.split import less
from inlay.schedule.state import Schedule, illegal, primitive


@primitive
def reverse_compute_at(s: Schedule, block: str, loop: str) -> None:
    """Move a block to the end of a loop, over just what an iteration of the loop has completed.

    Before:

        alloc t: f32[8*n] workspace
        for i in 0..n { for j in 0..8 {
          block a(v: spatial 8*n = 8*i + j) { t[v] = x[v] * 2.0:f32 } } }
        for k in 0..8*n { block b(w: spatial 8*n = k) { y[w] = t[w] + 1.0:f32 } }

    After `reverse_compute_at(s, "b", "i")`:

        alloc t: f32[8*n] workspace
        for i in 0..n {
          for j in 0..8 { block a(v: spatial 8*n = 8*i + j) { t[v] = x[v] * 2.0:f32 } }
          for b_0 in 0..8 { block b(w: spatial 8*n = 8*i + b_0) { y[w] = t[w] + 1.0:f32 } }
        }

    Legal for a block that reads one element of a temporary at each point, by its own iters, if each
    element of the temporary is completed in exactly one iteration of the loop and of those around
    it, and one block alone writes it.

    Raises:
        Illegal: `schedule.kind`, `schedule.dependence`.
    """
    consumer, at = s.block(block), s.loop(loop)
    if at.kind is LoopKind.VECTOR:
        raise illegal("kind", f"found vector loop {loop}, which has no place for other loops")
    element_of(consumer, block)
    source, axes = _source(s, consumer, at, block)
    writes = [x for x in s.accesses(s.body, source) if x.writes]
    writers = {x.block for x in writes}
    if len(writers) != 1 or any(at not in x.loops for x in writes):
        raise illegal("dependence", f"found {source.name} written outside {loop}")
    producer = writers.pop()
    _require_inputs_ready(s, consumer, source, at)
    s.require_in_scope(consumer, s.loop_place(loop))
    completed = _completed(writes[-1], producer, at, source)
    around = writes[-1].loops[: writes[-1].loops.index(at) + 1]
    nest = _nest(s, consumer, axes, completed, {x.var: (x.lo, x.extent) for x in around})
    s.replace(s.block_place(block), Seq(()))
    s.set_body(without_empty(s.body, None))
    now = s.loop(loop)
    s.replace(
        s.loop_place(loop),
        For(now.var, now.lo, now.extent, now.kind, seq(now.body, nest), now.note),
    )


def _source(s: Schedule, consumer: Block, at: For, name: str) -> tuple[Buffer, dict[Sym, int]]:
    """Return the temporary that is written inside the loop, and its axis for each iter."""
    inside = {x.buffer for x in s.accesses(at) if x.writes and x.buffer.scope is not Scope.PARAM}
    found = {x.buffer for x in loads_of(consumer.body) if x.buffer in inside}
    if len(found) != 1:
        raise illegal("kind", f"found {name} to read {len(found)} temporaries of the loop")
    source = found.pop()
    reads = {x.indices for x in loads_of(consumer.body) if x.buffer is source}
    if len(reads) != 1:
        raise illegal("kind", f"found {name} to read several elements of {source.name}")
    iters = {i.sym: i.extent for i in consumer.iters}
    axes: dict[Sym, int] = {}
    for axis, e in enumerate(reads.pop()):
        if not isinstance(e.atom, Sym) or iters.get(e.atom) != source.shape[axis]:
            raise illegal("kind", f"found {name} to read a part of {source.name}")
        axes[e.atom] = axis
    if len(axes) != len(source.shape):
        raise illegal("kind", f"found {name} to read a diagonal of {source.name}")
    return source, axes


def _require_inputs_ready(s: Schedule, consumer: Block, source: Buffer, at: For) -> None:
    """Refuse if something the block reads is written after the loop."""
    others = {x.buffer for x in loads_of(consumer.body)} - {source}
    everything = s.accesses(s.body)
    last = max(x.order for x in everything if at in x.loops)
    for x in everything:
        if x.writes and x.buffer in others and x.order > last:
            raise illegal("dependence", f"found {x.buffer.name} written after {at.var.name}")


def _completed(write: BlockAccess, producer: Block, at: For, source: Buffer) -> tuple[Interval, ...]:
    """Return the region that an iteration completes, and no other iteration touches."""
    outer = write.loops[: write.loops.index(at) + 1]
    reducing = iter_symbols(producer, IterKind.REDUCE)
    if any(x.var in reducing for x in outer):
        raise illegal("dependence", f"found {source.name} incomplete inside {at.var.name}")
    swept = region(write, at)
    if swept is None or any(not x.dense for x in swept):
        raise illegal("dependence", f"found {source.name} written in a way not understood")
    for x in outer:
        r = region(write, x)
        apart = r is not None and iteration_dim([(r, x.var)]) is not None
        if not apart and x.extent != 1:
            raise illegal(
                "dependence", f"found {source.name} written by several iterations of {x.var.name}"
            )
    return swept


def _nest(
    s: Schedule,
    consumer: Block,
    axes: dict[Sym, int],
    completed: tuple[Interval, ...],
    around: dict[Sym, tuple[Int, Int]],
) -> Stmt:
    """Return loops over the region; iters that the temporary does not have run in full."""
    bounds = Bounds(around)
    bindings: list[Int] = []
    loops: list[tuple[Sym, Int]] = []
    predicate: Scalar | None = None
    for d, i in enumerate(consumer.iters):
        axis = axes.get(i.sym)
        x = Interval(lit(0), i.extent, dense=True) if axis is None else completed[axis]
        value = x.lo
        if x.extent != 1:
            var = s.fresh_loop(f"{consumer.name}_{d}")
            loops.append((var, x.extent))
            bounds = bounds.inside(var, lit(0), x.extent)
            value = value + to_int(var)
        bindings.append(value)
        # Tiles of the producer may reach beyond the end, its points do not.
        if axis is not None and not bounds.less(value, i.extent):
            condition = less(value, i.extent)
            predicate = condition if predicate is None else conjunction(predicate, condition)
    result: Stmt = Block(
        consumer.name, consumer.iters, tuple(bindings), consumer.body, None, predicate
    )
    for var, extent in reversed(loops):
        result = For(var, lit(0), extent, LoopKind.SERIAL, result)
    return result
