"""Compute the terms of a loop of a sum by a dot-product instruction."""

from __future__ import annotations

from collections.abc import Iterator

from inlay.arith.dtype import F32, I32
from inlay.arith.expr import Int, Sym, coefficient, fresh, substitute, symbols, to_int
from inlay.loop.dots import are_factors
from inlay.loop.reduction import match_update
from inlay.loop.scalar import Binary, BinaryOp, Cast, Dot, Index, ReduceOp, Scalar
from inlay.loop.stmt import Block, BlockIter, For, IterKind, Store
from inlay.loop.walk import Rewrite, scalars_below
from inlay.schedule.primitives.split import require_serial
from inlay.schedule.state import Schedule, illegal, primitive

WIDEST = 16
"""More products at once than any instruction adds up."""


@primitive
def tensorize(s: Schedule, loop: str, *, saturates: bool = False) -> None:
    """Turn the innermost loop of a sum of products of narrow numbers into a `dot`.

    Before:

        for i in 0..n { for k in 0..m { for j in 0..2 {
          block b(v: spatial n = i, r: reduce m = k, t: reduce 2 = j) {
            init { y[v] = 0:i32 } y[v] = y[v] + (i32(x[v, r, t]) * i32(w[r, t])) } } } }

    After `tensorize(s, "j")`:

        for i in 0..n { for k in 0..m {
          block b(v: spatial n = i, r: reduce m = k) {
            init { y[v] = 0:i32 } y[v] = dot(j < 2, y[v], x[v, r, j], w[r, j]) } } }

    The sum is the same: integers wrap, so their order does not matter. Products of bf16 are added to an f32
    in the order of the instruction, the last one first, and numbers below 2^-126 may count as 0: for who
    asked for products in bf16. Which instruction does it is left to code generation, and so is doing
    without.

    Args:
        s: the schedule.
        loop: the innermost one.
        saturates: whether the sum of each pair of products becomes the nearest i16, as some instructions
            do it (`dot_saturating`). That is another sum where a pair leaves i16: for who asked for it.

    Raises:
        Illegal: `schedule.not-constant`, `schedule.kind`, `schedule.not-nested`.
    """
    place, old = s.loop_place(loop), s.loop(loop)
    require_serial(old)
    block = old.body
    if not isinstance(block, Block):
        raise illegal("not-nested", f"found no block directly inside {loop}, needed the innermost loop")
    width = old.extent.value
    if saturates and width is not None and width % 2:
        raise illegal("not-constant", f"found extent {width} of {loop}, needed pairs, which saturate")
    if width is None or not 1 <= width <= WIDEST:
        raise illegal("not-constant", f"found extent {old.extent} of {loop}, needed 1 to {WIDEST}")
    s.replace(place, _with_dot(block, old, width, saturates=saturates))


def _with_dot(block: Block, loop: For, width: int, *, saturates: bool) -> Block:
    if block.predicate is not None and loop.var in _symbols_below(block.predicate):
        raise illegal("kind", f"found {block.name} to run in some iterations of {loop.var.name} only")
    number = fresh(loop.var.name)
    iters: list[BlockIter] = []
    bindings: list[Int] = []
    at: dict[Sym, Int] = {}
    for i, binding in zip(block.iters, block.bindings, strict=True):
        start = substitute(binding, {loop.var: loop.lo})
        if loop.var in symbols(binding):
            step = coefficient(binding, loop.var)
            if i.kind is not IterKind.REDUCE or step is None or step.value is None:
                raise illegal("kind", f"found {loop.var.name} not to run through terms of a sum")
            within = to_int(number) * step
            at[i.sym] = within if binding == loop.var else to_int(i.sym) + within
            if start == 0 and i.extent == width:
                at[i.sym] = within
                continue
        iters.append(i)
        bindings.append(start)
    if block.init is not None and all(i.kind is IterKind.SPATIAL for i in iters):
        raise illegal(
            "kind",
            f"found {loop.var.name} to be the whole sum of {block.name}",
            hint="decompose the reduction first",
        )
    store = _dot(block, number, width, Rewrite(at), saturates=saturates)
    return Block(block.name, tuple(iters), tuple(bindings), store, block.init, block.predicate)


def _dot(block: Block, number: Sym, width: int, at: Rewrite, *, saturates: bool) -> Store:
    update = match_update(block)
    sums = None if update is None else update.store.buffer.dtype
    if update is None or update.lets or update.op is not ReduceOp.SUM or sums not in (I32, F32):
        raise illegal("kind", f"found {block.name} not to be a sum in i32 or f32")
    store, product = update.store, update.value
    if not isinstance(product, Binary) or product.op is not BinaryOp.MUL:
        raise illegal("kind", f"found {block.name} not to be a sum of products")
    a, b = (_narrow(x, block.name) for x in (product.lhs, product.rhs))
    if not are_factors(a.dtype, b.dtype, sums):
        raise illegal("kind", f"found factors of {block.name} that are no widened i8, u8, i16 or bf16")
    assert isinstance(store.value, Binary), "an update is an operation on two values"
    total = Dot(number, width, store.value.lhs, at.scalar(a), at.scalar(b), saturates)
    return Store(store.buffer, store.indices, total)


def _narrow(x: Scalar, block: str) -> Scalar:
    """Return what is widened."""
    if not isinstance(x, Cast):
        raise illegal("kind", f"found a factor of {block} that is no widened i8, u8, i16 or bf16")
    return x.operand


def _symbols_below(x: Scalar) -> Iterator[Sym]:
    for y in scalars_below(x):
        if isinstance(y, Index):
            yield from symbols(y.value)
