"""Divide the range of a loop by which side of a select is taken."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from inlay.arith.expr import Int, Sym, maximum, minimum, symbols
from inlay.loop.inits import conjuncts
from inlay.loop.scalar import Scalar, Select
from inlay.loop.stmt import Block, For, Store
from inlay.loop.walk import Rewrite, map_operands, scalars_below, seq
from inlay.schedule.primitives.clip import bound_by, distance_of
from inlay.schedule.primitives.split import require_serial
from inlay.schedule.state import Schedule, illegal, primitive


@primitive
def split_cases(s: Schedule, block: str, loop: str, *, varies: bool = False) -> tuple[str, ...]:
    """Run apart the iterations for which a select takes its one or its other side.

    Before:

        for i in 0..9 {
          block b(v: spatial 9 = i) { y[v] = select([v] < [4], x[v], x[8 - v]) } }

    After `split_cases(s, "b", "i")`:

        for i in 0..4 { block b(v: spatial 9 = i) { y[v] = x[v] } }
        for i_1 in 4..9 { block b_1(v: spatial 9 = i_1) { y[v] = x[8 - v] } }

    It is the first select of the block whose condition says a range of an innermost loop, the same in all
    iterations of the loops around it unless it `varies`. Where that is in the middle, a third loop is behind
    it. Other systems: index-set splitting.

    Returns:
        The names of the loops, in order.

    Raises:
        Illegal: `schedule.kind`, `schedule.class`.
    """
    place, old, b = s.loop_place(loop), s.loop(loop), s.block(block)
    require_serial(old)
    if old.body is not b or not isinstance(b.body, Store):
        raise illegal("class", f"found {loop} around more than one store of {block}")
    if b.init is not None:
        raise illegal("class", f"found {block}, which is a reduction: each part would begin anew")
    around = [s.loop(x).var for x in s.loops_of(block) if x != loop] if varies else []
    found = next(_cases(b, b.body, old, [*s.function.dims, *around]), None)
    if found is None:
        raise illegal("class", f"found no select of {block} that says a range of {loop}")
    select, first, end = found
    ranges = [(old.lo, first, False), (first, end, True), (end, old.lo + old.extent, False)]
    parts: list[For] = []
    for lo, hi, holds in ranges:
        if lo == hi:
            continue
        chosen = _taken(b, b.body, select, holds=holds)
        part = replace(old, body=chosen)
        part = s.copied_loop(part)[0] if parts else part
        parts.append(replace(part, lo=lo, extent=hi - lo))
    s.replace(place, seq(*parts))
    return tuple(x.var.name for x in parts)


def _cases(b: Block, store: Store, loop: For, known: Sequence[Sym]) -> Iterator[tuple[Select, Int, Int]]:
    """Yield selects with the range in which the first side is taken, from the outside in."""
    bound = {i.sym: x for i, x in zip(b.iters, b.bindings, strict=True)}
    for x in scalars_below(store.value):
        if not isinstance(x, Select):
            continue
        first, end = lo, hi = loop.lo, loop.lo + loop.extent
        for condition in conjuncts(Rewrite(bound).scalar(x.condition)):
            distance = distance_of(condition)
            bound_of = None if distance is None else bound_by(distance, loop.var)
            if bound_of is None:
                break
            is_first, at = bound_of
            first, end = (maximum(first, at), end) if is_first else (first, minimum(end, at))
        else:
            first = minimum(first, hi)
            end = minimum(maximum(end, first), hi)
            is_same = {*symbols(first), *symbols(end)}.issubset(known)
            if is_same and (first, end) != (lo, hi) and first != end:
                yield x, first, end


def _taken(b: Block, store: Store, select: Select, *, holds: bool) -> Block:
    """Return a block in which a select takes one side."""

    def walk(x: Scalar) -> Scalar:
        if x is select:
            return select.then if holds else select.otherwise
        return map_operands(x, walk)

    return replace(b, body=replace(store, value=walk(store.value)))
