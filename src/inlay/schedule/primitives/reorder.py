"""Change the order of nested loops."""

from __future__ import annotations

from collections.abc import Sequence

from inlay.arith.expr import symbols
from inlay.loop.inits import iter_symbols
from inlay.loop.stmt import Block, For, IterKind, LoopKind, Stmt
from inlay.schedule.state import Schedule, chain, illegal, primitive


@primitive
def reorder(s: Schedule, loops: Sequence[str]) -> None:
    """Put loops that are directly inside one another into the given order, outermost first.

    Before:

        for i in 0..n { for k in 0..m {
          block b(v: spatial n = i, r: reduce m = k) {
            init { y[v] = 0.0:f32 } y[v] = y[v] + x[v, r] } } }

    After `reorder(s, ["k", "i"])`:

        for k in 0..m { for i in 0..n {
          block b(v: spatial n = i, r: reduce m = k) {
            init { y[v] = 0.0:f32 } y[v] = y[v] + x[v, r] } } }

    Loops between them that are not named keep their places. The innermost must hold one block: its
    points are independent but for the order of its reduction, which is the order of its loops.

    Raises:
        Illegal: `schedule.not-nested`, `schedule.extent`, `schedule.kind`.
    """
    places = [s.loop_place(name) for name in loops]
    if len(set(loops)) != len(loops) or not loops:
        raise illegal("kind", f"found loops {list(loops)}, needed different ones")
    by_depth = sorted(places, key=lambda p: sum(1 for _ in p.above()))
    nest = chain(by_depth[0], by_depth[-1])
    block = _one_block(nest[-1].body)
    order = [p.stmt for p in places]
    new = _new_order(nest, [x for x in order if isinstance(x, For)])
    _require_independent_extents(new)
    _require_no_repetition(block, new)
    result = nest[-1].body
    for x in reversed(new):
        result = For(x.var, x.lo, x.extent, x.kind, result, x.note)
    s.replace(by_depth[0], result)


def _new_order(nest: list[For], order: list[For]) -> list[For]:
    queue = iter(order)
    return [next(queue) if x in order else x for x in nest]


def _one_block(s: Stmt) -> Block:
    while isinstance(s, For):
        s = s.body
    if not isinstance(s, Block):
        raise illegal("not-nested", "found several statements inside, needed one block")
    return s


def _require_no_repetition(block: Block, new: list[For]) -> None:
    """A loop that only repeats a block must stay outside its reduction, which it starts anew."""
    reducing = iter_symbols(block, IterKind.REDUCE)
    bound = reducing | iter_symbols(block, IterKind.SPATIAL)
    inside = False
    for x in new:
        inside = inside or x.var in reducing
        if inside and x.var not in bound and x.extent != 1:
            raise illegal("kind", f"found {x.var.name} to repeat {block.name} within its reduction")


def _require_independent_extents(new: list[For]) -> None:
    for i, x in enumerate(new):
        inner = {y.var for y in new[i:]}
        for e in (x.lo, x.extent):
            if any(v in inner for v in symbols(e)):
                raise illegal("extent", f"found the range of {x.var.name} to depend on a loop inside it")
        if x.kind is LoopKind.VECTOR and i + 1 < len(new):
            raise illegal("kind", f"found vector loop {x.var.name} around another loop")
        if x.kind is LoopKind.PARALLEL and i:
            raise illegal("kind", f"found parallel loop {x.var.name} inside another loop")
