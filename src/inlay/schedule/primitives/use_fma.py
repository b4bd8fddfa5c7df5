"""Multiply and add with one rounding."""

from __future__ import annotations

from inlay.loop.scalar import Binary, BinaryOp, Intrinsic, IntrinsicOp, Scalar
from inlay.loop.stmt import Block, Stmt, Store
from inlay.loop.walk import map_children
from inlay.schedule.state import Schedule, illegal, primitive


@primitive
def use_fma(s: Schedule, block: str) -> None:
    """Compute what a block stores as `a * b + c` with one rounding instead of two.

    Before:

        for i in 0..n { for k in 0..m {
          block b(v: spatial n = i, r: reduce m = k) {
            init { y[v] = 0.0:f32 } y[v] = y[v] + (x[v, r] * x[v, r]) } } }

    After `use_fma(s, "b")`:

        for i in 0..n { for k in 0..m {
          block b(v: spatial n = i, r: reduce m = k) {
            init { y[v] = 0.0:f32 } y[v] = fma(x[v, r], x[v, r], y[v]) } } }

    So are factors that are such sums, and what is added. The result differs by rounding errors, and is the
    more exact one.

    Raises:
        Illegal: `schedule.kind`.
    """
    place, old = s.block_place(block), s.block(block)
    found: list[Store] = []

    def change(stmt: Stmt) -> Stmt:
        if isinstance(stmt, Store):
            fused = _fused(stmt.value)
            if fused is not None:
                found.append(stmt)
                return Store(stmt.buffer, stmt.indices, fused)
        return map_children(stmt, change)

    body = change(old.body)
    if not found:
        raise illegal("kind", f"found no sum of a product and floats in block {block}")
    s.replace(place, Block(old.name, old.iters, old.bindings, body, old.init, old.predicate))


def _fused(x: Scalar) -> Scalar | None:
    if not isinstance(x, Binary) or x.op is not BinaryOp.ADD or not x.dtype.is_float:
        return None
    for product, rest in ((x.rhs, x.lhs), (x.lhs, x.rhs)):
        if isinstance(product, Binary) and product.op is BinaryOp.MUL:
            factors = (_fused(y) or y for y in (product.lhs, product.rhs))
            return Intrinsic(IntrinsicOp.FMA, (*factors, _fused(rest) or rest), x.dtype)
    return None
