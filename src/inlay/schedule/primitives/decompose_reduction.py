"""Give the start of a reduction a nest of its own."""

from __future__ import annotations

from inlay.arith.expr import Int, Sym, symbols, to_int
from inlay.loop.scalar import Index, Scalar
from inlay.loop.stmt import Block, For, IterKind, Stmt
from inlay.loop.walk import Rewrite, scalars_below, seq
from inlay.schedule.primitives.split import conjunction, conjuncts
from inlay.schedule.state import Schedule, chain, illegal, primitive


@primitive
def decompose_reduction(s: Schedule, block: str, loop: str) -> str:
    """Move the init of a block in front of a loop that is around it.

    Before:

        for i in 0..n { for k in 0..m {
          block b(v: spatial n = i, r: reduce m = k) { init { y[v] = 0.0:f32 } y[v] = y[v] + x[v, r] } } }

    After `decompose_reduction(s, "b", "k")`:

        for i in 0..n {
          block b_init(v: spatial n = i) { y[v] = 0.0:f32 }
          for k in 0..m { block b(v: spatial n = i, r: reduce m = k) { y[v] = y[v] + x[v, r] } }
        }

    Loops inside `loop` over which the block is spatial are repeated around the init, with their
    kinds.

    Returns:
        The name of the init block.

    Raises:
        Illegal: `schedule.kind`, `schedule.not-nested`.
    """
    place, inner = s.loop_place(loop), s.block_place(block)
    old = s.block(block)
    if old.init is None:
        raise illegal("kind", f"found block {block} without an init")
    assert inner.parent is not None, "a loop is around the block"
    below = chain(place, inner.parent)
    reducing = _symbols_of(old, IterKind.REDUCE)
    above = {p.stmt.var for p in place.above() if isinstance(p.stmt, For)}
    if reducing & above:
        raise illegal("kind", f"found a loop outside {loop} over which {block} reduces")
    spatial = _symbols_of(old, IterKind.SPATIAL)
    repeated = [x for x in below if x.var in spatial]
    if any(x.var in reducing for x in repeated):
        raise illegal("kind", f"found a loop over which {block} both reduces and does not")
    name = s.fresh_name(f"{block}_init")
    init = _init_block(name, old, {x.var for x in below} - {x.var for x in repeated})
    nest = _repeat(s, repeated, init)
    reducer = Block(old.name, old.iters, old.bindings, old.body, None, old.predicate)
    s.replace(place, seq(nest, _replaced(below, reducer)))
    return name


def _symbols_of(block: Block, kind: IterKind) -> set[Sym]:
    pairs = zip(block.iters, block.bindings, strict=True)
    return {x for i, b in pairs if i.kind is kind for x in symbols(b)}


def _init_block(name: str, old: Block, gone: set[Sym]) -> Block:
    """Return the block of the init; conditions on loops that are gone held at the start anyway."""
    pairs = [
        (i, b)
        for i, b in zip(old.iters, old.bindings, strict=True)
        if i.kind is IterKind.SPATIAL
    ]
    assert old.init is not None, "the block has an init"
    predicate: Scalar | None = None
    for condition in conjuncts(old.predicate):
        if not any(x in gone for x in _mentioned(condition)):
            predicate = condition if predicate is None else conjunction(predicate, condition)
    iters = tuple(i for i, _ in pairs)
    return Block(name, iters, tuple(b for _, b in pairs), old.init, None, predicate)


def _mentioned(condition: Scalar) -> set[Sym]:
    return {
        v for x in scalars_below(condition) if isinstance(x, Index) for v in symbols(x.value)
    }


def _repeat(s: Schedule, loops: list[For], body: Stmt) -> Stmt:
    copies = [(x, s.fresh_loop(f"{x.var.name}_init")) for x in loops]
    mapping: dict[Sym, Int] = {x.var: to_int(var) for x, var in copies}
    rewrite = Rewrite(mapping)
    body = rewrite.stmt(body)
    for x, var in reversed(copies):
        body = For(var, rewrite.int(x.lo), rewrite.int(x.extent), x.kind, body)
    return body


def _replaced(loops: list[For], body: Stmt) -> Stmt:
    for x in reversed(loops):
        body = For(x.var, x.lo, x.extent, x.kind, body, x.note)
    return body
