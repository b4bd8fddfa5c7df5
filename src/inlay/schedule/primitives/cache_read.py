"""Copy what a block reads into panels, in front of it."""

from __future__ import annotations

from collections.abc import Iterator

from inlay.arith.expr import Int, Sym, ceildiv, floordiv, fresh, lit, mod, symbols, to_int
from inlay.loop.buffer import Buffer, Scope
from inlay.loop.scalar import Lit, Load, Scalar, Select
from inlay.loop.stmt import Alloc, Block, BlockIter, For, IterKind, LoopKind, Stmt, Store
from inlay.loop.walk import Rewrite, loads_of, own_scalars, scalars_below, seq, stmts_below
from inlay.schedule.primitives.split import less
from inlay.schedule.state import Schedule, illegal, outermost_loop, primitive


@primitive
def cache_read(s: Schedule, block: str, buffer: str, panel: int) -> str:
    """Let a block read a buffer from panels of columns, which are copied from it before.

    Columns are the last spatial iter of the block. What is copied is what the block reads, with an axis
    for each of its iters: a buffer that is read transposed is copied so too. Behind the last column are
    zeros.

    Before:

        for i in 0..n { for j in 0..32 { for k in 0..m {
          block b(v: spatial n = i, c: spatial 32 = j, r: reduce m = k) {
            init { y[v, c] = 0.0:f32 } y[v, c] = y[v, c] + (x[v, r] * w[r, c]) } } } }

    After `cache_read(s, "b", "w", 16)`:

        alloc w_b: f32[2, m, 16] @workspace
        for w_b_0 in 0..2 { for w_b_1 in 0..m { for w_b_2 in 0..16 {
          block b_pack(p: spatial 2 = w_b_0, r: spatial m = w_b_1, l: spatial 16 = w_b_2) {
            w_b[p, r, l] = w[r, 16*p + l] } } } }
        for i in 0..n { for j in 0..32 { for k in 0..m {
          block b(v: spatial n = i, c: spatial 32 = j, r: reduce m = k) {
            init { y[v, c] = 0.0:f32 } y[v, c] = y[v, c] + (x[v, r] * w_b[c / 16, r, c % 16]) } } } }

    Use it before other primitives: the copy is a nest of its own, to be tiled and merged like any other.
    It comes right before the outermost loop around the block.

    Other systems: `cache_read` with a change of layout.

    Returns:
        The name of the copying block.

    Raises:
        Illegal: `schedule.kind`, `schedule.dependence`.
    """
    place, old = s.block_place(block), s.block(block)
    source = s.buffer(buffer)
    indices, column = _reads(old, source)
    read = {x for e in indices for x in symbols(e)}
    outer = [i for i in old.iters if i.sym in read and i is not column]
    outermost = outermost_loop(place)
    within = s.body if outermost is None else s.loop(outermost)
    if any(x.writes for x in s.accesses(within, source)):
        raise illegal("dependence", f"found {buffer} written where {block} reads it")
    before = [i for i in outer if i.kind is IterKind.SPATIAL]
    after = [i for i in outer if i.kind is IterKind.REDUCE]
    size = lit(panel)
    shape = (*(i.extent for i in before), ceildiv(column.extent, size), *(i.extent for i in after), size)
    packed = Buffer(s.fresh_name(f"{buffer}_{block}"), shape, source.dtype, Scope.WORKSPACE)
    at = tuple(to_int(i.sym) for i in before), tuple(to_int(i.sym) for i in after)
    here = (*at[0], floordiv(to_int(column.sym), size), *at[1], mod(to_int(column.sym), size))

    def moved(b: Buffer, e: tuple[Int, ...]) -> tuple[Buffer, tuple[Int, ...]]:
        return (packed, here) if b is source else (b, e)

    s.replace(place, _reading(old, Rewrite(access=moved)))
    name = s.fresh_name(f"{block}_pack")
    copy = _copy_nest(s, name, packed, [*before, column, *after], column, Load(source, indices))
    put_before(s, outermost, copy)
    s.set_body(Alloc(packed, s.body))
    return name


def put_before(s: Schedule, loop: str | None, copy: Stmt) -> None:
    """Run a statement right before a loop; before all else for None."""
    if loop is None:
        s.set_body(seq(copy, s.body))
    else:
        place = s.loop_place(loop)
        s.replace(place, seq(copy, place.stmt))


def _reads(old: Block, source: Buffer) -> tuple[tuple[Int, ...], BlockIter]:
    """Return where a block reads a buffer, and its iter over columns.

    Raises:
        Illegal: `schedule.kind`.
    """
    found = {x.indices for x in loads_of(old.body) if x.buffer is source}
    if len(found) != 1:
        raise illegal("kind", f"found {old.name} to read {source.name} at {len(found)} places, needed one")
    (indices,) = found
    read = {x for e in indices for x in symbols(e)}
    column = next((i for i in reversed(old.iters) if i.kind is IterKind.SPATIAL), None)
    if column is None or column.sym not in read:
        raise illegal("kind", f"found {source.name} not read along the last axis of {old.name}")
    if not read <= {i.sym for i in old.iters}:
        raise illegal("kind", f"found {source.name} read by {old.name} at more than its iters")
    if any(x.buffer is source for x in _chosen_loads(old)):
        raise illegal("kind", f"found {source.name} read by {old.name} only where a condition holds")
    return indices, column


def _chosen_loads(block: Block) -> Iterator[Load]:
    """Yield loads of which a condition decides whether they are made: what they read may not be there."""
    for stmt in stmts_below(block):
        for value in own_scalars(stmt):
            for x in scalars_below(value):
                if isinstance(x, Select):
                    for side in (x.then, x.otherwise):
                        yield from (y for y in scalars_below(side) if isinstance(y, Load))


def _reading(old: Block, rewrite: Rewrite) -> Block:
    return Block(old.name, old.iters, old.bindings, rewrite.stmt(old.body), old.init, old.predicate)


def _copy_nest(
    s: Schedule, name: str, packed: Buffer, read: list[BlockIter], column: BlockIter, value: Load
) -> Stmt:
    """Return loops around a block that fills panels; `read` are the iters of its axes but the last."""
    extents = dict(zip([i.sym for i in read], packed.shape, strict=False))
    iters = [BlockIter(fresh(i.sym.name), extents[i.sym], IterKind.SPATIAL) for i in read]
    lane = BlockIter(fresh("l"), packed.shape[-1], IterKind.SPATIAL)
    where: dict[Sym, Int] = {old.sym: to_int(new.sym) for old, new in zip(read, iters, strict=True)}
    where[column.sym] = where[column.sym] * lane.extent + to_int(lane.sym)
    element: Scalar = Rewrite(where).scalar(value)
    if column.extent % lane.extent != 0:
        inside = less(where[column.sym], column.extent)
        element = Select(inside, element, Lit(0, packed.dtype), packed.dtype)
    iters.append(lane)
    loops = [s.fresh_loop(f"{packed.name}_{d}") for d in range(len(iters))]
    store = Store(packed, tuple(to_int(i.sym) for i in iters), element)
    result: Stmt = Block(name, tuple(iters), tuple(map(to_int, loops)), store)
    for var, i in zip(reversed(loops), reversed(iters), strict=True):
        result = For(var, lit(0), i.extent, LoopKind.SERIAL, result)
    return result
