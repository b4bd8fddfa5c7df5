"""Compute a factor of what a block sums up in front of it, once for each element."""

from __future__ import annotations

from inlay.arith.expr import Int, Sym, fresh, lit, symbols, to_int
from inlay.loop.buffer import Buffer, Scope
from inlay.loop.inits import mentioned
from inlay.loop.scalar import Binary, BinaryOp, Index, Intrinsic, IntrinsicOp, Load, Scalar
from inlay.loop.stmt import Alloc, Block, BlockIter, For, IterKind, LoopKind, Stmt, Store
from inlay.loop.walk import Rewrite, map_operands, scalars_below
from inlay.schedule.primitives.cache_read import put_before
from inlay.schedule.state import Schedule, illegal, outermost_loop, primitive


@primitive
def cache_factor(s: Schedule, block: str, buffer: str) -> str:
    """Let a block read a factor of its terms, which is computed of a buffer, from a temporary.

    Before:

        for i in 0..n { for j in 0..32 { for k in 0..m {
          block b(v: spatial n = i, c: spatial 32 = j, r: reduce m = k) {
            init { y[v, c] = 0.0:f32 } y[v, c] = y[v, c] + (x[v, r] * (w[r, c] * z[c])) } } } }

    After `cache_factor(s, "b", "w")`:

        alloc w_b: f32[m, 32] @workspace
        for w_b_0 in 0..m { for w_b_1 in 0..32 {
          block b_factor(r: spatial m = w_b_0, c: spatial 32 = w_b_1) { w_b[r, c] = w[r, c] * z[c] } } }
        for i in 0..n { for j in 0..32 { for k in 0..m {
          block b(v: spatial n = i, c: spatial 32 = j, r: reduce m = k) {
            init { y[v, c] = 0.0:f32 } y[v, c] = y[v, c] + (x[v, r] * w_b[r, c]) } } } }

    The temporary has an axis for each iter that the factor depends on, those of the reduction first. What
    computes it comes right before the outermost loop around the block: `compute_at` puts it further inside.

    Returns:
        The name of the block that computes it.

    Raises:
        Illegal: `schedule.kind`, `schedule.dependence`.
    """
    place, old = s.block_place(block), s.block(block)
    source = s.buffer(buffer)
    if not isinstance(old.body, Store):
        raise illegal("kind", f"found {block}, which does not store what it computes at once")
    factor = _factor(old.body.value, source)
    if factor is None:
        raise illegal("kind", f"found no factor in {block} that is computed of {buffer}")
    outermost = outermost_loop(place)
    within = s.body if outermost is None else s.loop(outermost)
    read = {x.buffer for x in scalars_below(factor) if isinstance(x, Load)}
    if any(x.writes for b in read for x in s.accesses(within, b)):
        raise illegal("dependence", f"found {buffer} or what goes with it written where {block} reads it")
    read_at = _mentioned(factor)
    iters = [i for i in old.iters if i.sym in read_at and i.kind is IterKind.REDUCE]
    iters += [i for i in old.iters if i.sym in read_at and i.kind is IterKind.SPATIAL]
    if old.predicate is not None and _is_tested(old, old.predicate, iters[:-1]):
        raise illegal("kind", f"found terms of {block} that a condition leaves out: they may not be there")
    cached = Buffer(
        s.fresh_name(f"{buffer}_{block}"), tuple(i.extent for i in iters), factor.dtype, Scope.WORKSPACE
    )
    here = Load(cached, tuple(to_int(i.sym) for i in iters))
    body = Store(old.body.buffer, old.body.indices, _replaced(old.body.value, factor, here))
    s.replace(place, Block(old.name, old.iters, old.bindings, body, old.init, old.predicate))
    name = s.fresh_name(f"{block}_factor")
    put_before(s, outermost, _nest(s, name, cached, iters, factor))
    s.set_body(Alloc(cached, s.body))
    return name


def _factor(value: Scalar, source: Buffer) -> Scalar | None:
    """Return the factor of a product that is added, where it is more than an element of a buffer."""
    match value:
        case Intrinsic(op=IntrinsicOp.FMA, args=(one, two, _)):
            factors = (one, two)
        case Binary(op=BinaryOp.ADD, rhs=Binary(op=BinaryOp.MUL, lhs=one, rhs=two)):
            factors = (one, two)
        case _:
            return None
    for x in factors:
        loads = [y.buffer for y in scalars_below(x) if isinstance(y, Load)]
        if source in loads and not isinstance(x, Load):
            return x
    return None


def _is_tested(old: Block, predicate: Scalar, iters: list[BlockIter]) -> bool:
    """Whether a condition is about some iters; one about the last is that of a loop that was split."""
    bound = {i.sym: b for i, b in zip(old.iters, old.bindings, strict=True)}
    return not mentioned(predicate).isdisjoint(x for i in iters for x in symbols(bound[i.sym]))


def _mentioned(x: Scalar) -> set[Sym]:
    found: set[Sym] = set()
    for y in scalars_below(x):
        match y:
            case Load(indices=indices):
                found |= {z for e in indices for z in symbols(e)}
            case Index(value=value):
                found |= set(symbols(value))
            case _:
                pass
    return found


def _replaced(value: Scalar, old: Scalar, new: Scalar) -> Scalar:
    if value is old:
        return new
    return map_operands(value, lambda x: _replaced(x, old, new))


def _nest(s: Schedule, name: str, cached: Buffer, iters: list[BlockIter], factor: Scalar) -> Stmt:
    own = [BlockIter(fresh(i.sym.name), i.extent, IterKind.SPATIAL) for i in iters]
    where: dict[Sym, Int] = {i.sym: to_int(o.sym) for i, o in zip(iters, own, strict=True)}
    loops = [s.fresh_loop(f"{cached.name}_{d}") for d in range(len(own))]
    store = Store(cached, tuple(to_int(i.sym) for i in own), Rewrite(where).scalar(factor))
    result: Stmt = Block(name, tuple(own), tuple(map(to_int, loops)), store)
    for var, i in zip(reversed(loops), reversed(own), strict=True):
        result = For(var, lit(0), i.extent, LoopKind.SERIAL, result)
    return result
