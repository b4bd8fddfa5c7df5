"""Turn one accumulator into several, so that a reduction has independent iterations."""

from __future__ import annotations

from collections.abc import Sequence

from inlay.arith.expr import Int, Sym, fresh, lit, to_int
from inlay.loop.buffer import Buffer, Scope
from inlay.loop.inits import iter_symbols, predicate_without, spatial_pairs
from inlay.loop.reduction import Update, combine, first_partial, match_update, with_lets
from inlay.loop.scalar import Load, Scalar
from inlay.loop.stmt import Alloc, Block, BlockIter, For, IterKind, LoopKind, Stmt, Store
from inlay.loop.walk import Rewrite, seq
from inlay.schedule.state import Schedule, illegal, primitive


@primitive
def rfactor(s: Schedule, block: str, lanes: Sequence[str], *, first: bool = False) -> str:
    """Give each iteration of the `lanes` loops an accumulator of its own, combined at the end.

    Before:

        for i in 0..n { for ko in 0..m { for ki in 0..4 {
          block b(v: spatial n = i, r: reduce 4*m = 4*ko + ki) {
            init { y[v] = 0.0:f32 } y[v] = y[v] + x[v, r] } } } }

    After `rfactor(s, "b", ["ki"])`:

        alloc y_b: f32[n, 4] @workspace
        for i in 0..n {
          for ko in 0..m { for ki in 0..4 {
            block b_lanes(v: spatial n = i, l: spatial 4 = ki, q: reduce m = ko) {
              init { y_b[v, l] = -0.0:f32 } y_b[v, l] = y_b[v, l] + x[v, 4*q + l] } } }
          for ki_1 in 0..4 {
            block b(v: spatial n = i, p: reduce 4 = ki_1) {
              init { y[v] = 0.0:f32 } y[v] = y[v] + y_b[v, p] } }
        }

    The order of the sum changes to the one that the new loops show. Legal for reductions that
    combine with one operation, whose loops are all inside the spatial ones. The number of lanes
    need not be known: the accumulators are as many as the dims say. A lane that the predicate leaves
    out has no accumulator, and is not combined. With `first`, lanes are the first axes of the
    accumulators: those of one lane are side by side.

    Returns:
        The name of the new block.

    Raises:
        Illegal: `schedule.kind`, `schedule.not-nested`.
    """
    place, old = s.block_place(block), s.block(block)
    update = match_update(old)
    if update is None or old.init is None:
        raise illegal("kind", f"found {block}, which is not a reduction with its init")
    inner, chosen = _reduction_loops(s, old, lanes)
    target = update.store.buffer
    sizes = tuple(x.extent for x in chosen)
    shape = (*sizes, *target.shape) if first else (*target.shape, *sizes)
    partial = Buffer(s.fresh_name(f"{target.name}_{block}"), shape, target.dtype, Scope.WORKSPACE)
    name = s.fresh_name(f"{block}_lanes")
    many = _many(name, old, update, inner, chosen, partial, first=first)
    result: Stmt = many
    for x in reversed(inner):
        result = For(x.var, x.lo, x.extent, x.kind, result, x.note)
    both = seq(result, _one(s, old, update, chosen, partial, first=first))
    outermost = place
    for _ in inner:
        assert outermost.parent is not None, "the loops are around the block"
        outermost = outermost.parent
    s.replace(outermost, both)
    s.set_body(Alloc(partial, s.body))
    return name


def _reduction_loops(s: Schedule, block: Block, lanes: Sequence[str]) -> tuple[list[For], list[For]]:
    """Return the loops that a block reduces over, outermost first, and those that become lanes."""
    around = _loops_around(s, block.name)
    reducing = iter_symbols(block, IterKind.REDUCE)
    first = next((n for n, x in enumerate(around) if x.var in reducing), len(around))
    inner = around[first:]
    if any(x.var not in reducing or x.lo != 0 for x in inner):
        raise illegal("not-nested", f"found a spatial loop of {block.name} inside its reduction")
    chosen = [x for x in inner if x.var.name in lanes]
    if len(chosen) != len(lanes):
        raise illegal("kind", f"found {list(lanes)}, needed loops over which {block.name} reduces")
    if len(chosen) == len(inner):
        raise illegal("kind", f"found no loop left over which the lanes of {block.name} reduce")
    return inner, chosen


def _loops_around(s: Schedule, block: str) -> list[For]:
    """Return the loops directly around a block, outermost first, up to anything else."""
    found: list[For] = []
    for p in s.block_place(block).above():
        if not isinstance(p.stmt, For):
            break
        found.append(p.stmt)
    return found[::-1]


def _many(
    name: str,
    old: Block,
    update: Update,
    inner: list[For],
    chosen: list[For],
    partial: Buffer,
    *,
    first: bool,
) -> Block:
    """Return the block that updates one accumulator for each lane."""
    spatial = spatial_pairs(old)
    lane = {x.var: fresh("l") for x in chosen}
    rest = {x.var: fresh("q") for x in inner if x not in chosen}
    iters = [i for i, _ in spatial]
    bindings = [b for _, b in spatial]
    for x in chosen:
        iters.append(BlockIter(lane[x.var], x.extent, IterKind.SPATIAL))
        bindings.append(to_int(x.var))
    for x in inner:
        if x.var in rest:
            iters.append(BlockIter(rest[x.var], x.extent, IterKind.REDUCE))
            bindings.append(to_int(x.var))
    of_loops: dict[Sym, Int] = {v: to_int(i) for v, i in (lane | rest).items()}
    at_loops = Rewrite(of_loops)
    values = {
        i.sym: at_loops.int(b)
        for i, b in zip(old.iters, old.bindings, strict=True)
        if i.kind is IterKind.REDUCE
    }
    body = Rewrite(values)
    at = _joined(update.store.indices, [to_int(lane[x.var]) for x in chosen], first=first)
    value = combine(update.op, Load(partial, at), body.scalar(update.value))
    lets = tuple(type(x)(x.sym, body.scalar(x.value), x.body) for x in update.lets)
    init = Store(partial, at, first_partial(update.op, partial.dtype))
    return Block(
        name, tuple(iters), tuple(bindings), with_lets(lets, Store(partial, at, value)), init, old.predicate
    )


def _joined(indices: tuple[Int, ...], lanes: Sequence[Int], *, first: bool) -> tuple[Int, ...]:
    """Return where the accumulator of a lane is."""
    return (*lanes, *indices) if first else (*indices, *lanes)


def _one(s: Schedule, old: Block, update: Update, chosen: list[For], partial: Buffer, *, first: bool) -> Stmt:
    """Return the nest that combines the accumulators; it keeps the name of the block."""
    loops = [(x, s.fresh_loop(x.var.name)) for x in chosen]
    points = [BlockIter(fresh("p"), x.extent, IterKind.REDUCE) for x in chosen]
    spatial = spatial_pairs(old)
    target, at = update.store.buffer, update.store.indices
    source = _joined(at, [to_int(p.sym) for p in points], first=first)
    value = combine(update.op, Load(target, at), Load(partial, source))
    terms = iter_symbols(old, IterKind.REDUCE) - {x.var for x in chosen}
    result: Stmt = Block(
        old.name,
        (*(i for i, _ in spatial), *points),
        (*(b for _, b in spatial), *(to_int(var) for _, var in loops)),
        Store(target, at, value),
        old.init,
        _at_loops(predicate_without(old, terms), {x.var: to_int(var) for x, var in loops}),
    )
    for x, var in reversed(loops):
        result = For(var, lit(0), x.extent, LoopKind.SERIAL, result)
    return result


def _at_loops(predicate: Scalar | None, loops: dict[Sym, Int]) -> Scalar | None:
    return None if predicate is None else Rewrite(loops).scalar(predicate)
