"""Where the init of a reducing block runs: before the outermost loop over which the block reduces.

This is the meaning of an init, also when the reduction turns out to be empty: the init runs for each
spatial point of the block, once, and the loops over the reduction may then run zero times.

    for i { for k { block b(...) { init { I } B } } }   is   for i { for i' ... { I }  for k { b: B } }

Loops inside that one over which the block is spatial are repeated around the init. Conditions of the
predicate that mention a loop that is not repeated concern single terms of the reduction, and are
dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from inlay.arith.dtype import BOOL
from inlay.arith.expr import Int, Sym, fresh, symbols, to_int
from inlay.loop.scalar import Binary, BinaryOp, Index, Scalar
from inlay.loop.stmt import Block, BlockIter, For, IterKind, Stmt
from inlay.loop.walk import Rewrite, map_children, scalars_below, seq


def hoist_inits(s: Stmt) -> Stmt:
    """Return an equal statement in which no block has an init."""
    if isinstance(s, Block):
        if s.init is None:
            return s
        return seq(init_block(s, f"{s.name}_init", set()), without_init(s))
    if isinstance(s, For):
        nests: list[Stmt] = []
        s = For(s.var, s.lo, s.extent, s.kind, _take(s.body, (s,), nests), s.note)
        s = map_children(s, hoist_inits)
        return seq(*nests, s) if nests else s
    return map_children(s, hoist_inits)


def _take(s: Stmt, loops: tuple[For, ...], nests: list[Stmt]) -> Stmt:
    """Remove the inits of blocks that reduce over the first of `loops`, and collect their nests."""
    if isinstance(s, Block):
        if s.init is None or loops[0].var not in iter_symbols(s, IterKind.REDUCE):
            return s
        nests.append(init_nest(s, loops, f"{s.name}_init", lambda name: f"{name}_init"))
        return without_init(s)
    inner = (*loops, s) if isinstance(s, For) else loops
    return map_children(s, lambda child: _take(child, inner, nests))


def init_nest(block: Block, loops: Sequence[For], name: str, loop_name: Callable[[str], str]) -> Stmt:
    """Return the init of a block under copies of those `loops` over which it is spatial."""
    spatial = iter_symbols(block, IterKind.SPATIAL)
    repeated = [x for x in loops if x.var in spatial]
    gone = {x.var for x in loops} - {x.var for x in repeated}
    copies = [(x, fresh(loop_name(x.var.name))) for x in repeated]
    mapping: dict[Sym, Int] = {x.var: to_int(var) for x, var in copies}
    rewrite = Rewrite(mapping)
    result: Stmt = rewrite.stmt(init_block(block, name, gone))
    for x, var in reversed(copies):
        result = For(var, rewrite.int(x.lo), rewrite.int(x.extent), x.kind, result)
    return result


def init_block(block: Block, name: str, gone: set[Sym]) -> Block:
    """Return the init as a block over the spatial iters; conditions on `gone` loops are dropped."""
    assert block.init is not None, "the block has an init"
    pairs = spatial_pairs(block)
    iters, bindings = tuple(i for i, _ in pairs), tuple(b for _, b in pairs)
    return Block(name, iters, bindings, block.init, None, predicate_without(block, gone))


def spatial_pairs(block: Block) -> list[tuple[BlockIter, Int]]:
    """Return the spatial iters of a block with their bindings."""
    pairs = zip(block.iters, block.bindings, strict=True)
    return [(i, b) for i, b in pairs if i.kind is IterKind.SPATIAL]


def predicate_without(block: Block, gone: set[Sym]) -> Scalar | None:
    """Return the conditions of a predicate that mention none of the loops that are `gone`."""
    predicate: Scalar | None = None
    for condition in conjuncts(block.predicate):
        if not gone.intersection(mentioned(condition)):
            predicate = condition if predicate is None else conjunction(predicate, condition)
    return predicate


def without_init(block: Block) -> Block:
    """Return the block that only updates."""
    return Block(block.name, block.iters, block.bindings, block.body, None, block.predicate)


def iter_symbols(block: Block, kind: IterKind) -> set[Sym]:
    """Return the loop variables in the bindings of the iters of one kind."""
    pairs = zip(block.iters, block.bindings, strict=True)
    return {x for i, b in pairs if i.kind is kind for x in symbols(b)}


def conjunction(a: Scalar, b: Scalar) -> Scalar:
    """Return the scalar `a & b`."""
    return Binary(BinaryOp.AND, a, b, BOOL)


def conjuncts(x: Scalar | None) -> list[Scalar]:
    """Return the conditions that a predicate is made of."""
    if x is None:
        return []
    if isinstance(x, Binary) and x.op is BinaryOp.AND:
        return conjuncts(x.lhs) + conjuncts(x.rhs)
    return [x]


def comparisons(condition: Scalar) -> Iterator[tuple[Index, Index]]:
    """Yield the sides of all `a < b` that a condition asks for."""
    for x in conjuncts(condition):
        if isinstance(x, Binary) and x.op is BinaryOp.LT:
            if isinstance(x.lhs, Index) and isinstance(x.rhs, Index):
                yield x.lhs, x.rhs


def mentioned(condition: Scalar) -> set[Sym]:
    """Return the symbols in the indices of a condition."""
    return {v for x in scalars_below(condition) if isinstance(x, Index) for v in symbols(x.value)}
