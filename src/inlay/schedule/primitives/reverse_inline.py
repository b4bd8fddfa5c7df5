"""Compute what follows right where its input is computed."""

from __future__ import annotations

from inlay.arith.expr import Int, Sym, to_int
from inlay.loop.buffer import Scope
from inlay.loop.lets import bind_lets, linearize
from inlay.loop.scalar import Load, Scalar
from inlay.loop.stmt import Block, Seq, Store
from inlay.loop.walk import Rewrite, loads_of
from inlay.schedule.primitives.inline import element_of, without_empty
from inlay.schedule.state import Schedule, illegal, primitive


@primitive
def reverse_inline(s: Schedule, block: str) -> None:
    """Move the computation of a block into the block that writes its input.

    Before:

        alloc t: f32[n] workspace
        for i in 0..n { block a(v: spatial n = i) { t[v] = x[v] * 2.0:f32 } }
        for j in 0..n { block b(w: spatial n = j) { y[w] = t[w] + 1.0:f32 } }

    After `reverse_inline(s, "b")`:

        for i in 0..n { block a(v: spatial n = i) { y[v] = (x[v] * 2.0:f32) + 1.0:f32 } }

    The nest of the producer stays, with its schedule. Legal if the block reads a temporary that one
    block without reduction writes and no other block reads, each element at one point. After a
    reduction use `merge`: its value is not complete before its last point.

    Raises:
        Illegal: `schedule.kind`, `schedule.dependence`.
    """
    consumer = s.block(block)
    target, (iters, value) = element_of(consumer, block)
    candidates = {x.buffer for x in loads_of(consumer.body) if x.buffer.scope is not Scope.PARAM}
    if len(candidates) != 1:
        raise illegal("kind", f"found {block} to read {len(candidates)} temporaries, needed one")
    source = candidates.pop()
    touching = s.accesses(s.body, source)
    writers = {x.block for x in touching if x.writes}
    if len(writers) != 1 or any(x.block is not consumer for x in touching if not x.writes):
        raise illegal("dependence", f"found {source.name} used by more than two blocks")
    producer = writers.pop()
    s.require_in_scope(consumer, s.block_place(producer.name))
    written, (outer, inner) = element_of(producer, producer.name)
    assert written is source, "the writer writes what was asked for"
    reads = {x.indices for x in loads_of(consumer.body) if x.buffer is source}
    if len(reads) != 1:
        raise illegal("kind", f"found {block} to read several elements of {source.name}")
    mapping: dict[Sym, Int] = {}
    for e, o in zip(reads.pop(), outer, strict=True):
        if isinstance(e.atom, Sym) and e.atom in iters:
            mapping[e.atom] = to_int(o)
    if len(mapping) != len(iters) or len(iters) != len(outer):
        raise illegal("kind", f"found {block} to read a part of {source.name}")

    def load(x: Load, _: tuple[Int, ...]) -> Scalar | None:
        return inner if x.buffer is source else None

    lets, result = linearize(Rewrite(mapping, load=load).scalar(value))
    indices = tuple(mapping[i] for i in iters)
    body = bind_lets(lets, Store(target, indices, result))
    new = Block(producer.name, producer.iters, producer.bindings, body, None, producer.predicate)
    s.replace(s.block_place(block), Seq(()))
    s.replace(s.block_place(producer.name), new)
    s.set_body(without_empty(s.body, source))
