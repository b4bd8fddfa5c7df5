"""Leave out the terms of a sum that a guard makes zero."""

from __future__ import annotations

from inlay.arith.expr import to_int
from inlay.loop.inits import conjunction
from inlay.loop.scalar import Binary, BinaryOp, Lit, Load, Scalar, Select
from inlay.loop.stmt import Block, Store
from inlay.loop.walk import Rewrite
from inlay.schedule.state import Schedule, illegal, primitive


@primitive
def skip_zero_terms(s: Schedule, block: str) -> None:
    """Turn the guard of a product in a sum into a predicate of the block.

    Before:

        for i in 0..n { for k in 0..m {
          block b(v: spatial n = i, r: reduce m = k) {
            init { y[v] = 0.0:f32 }
            y[v] = y[v] + (select([v + r] < [n], x[v, r], 0.0:f32) * x[v, r]) } } }

    After `skip_zero_terms(s, "b")`:

        for i in 0..n { for k in 0..m {
          block b(v: spatial n = i, r: reduce m = k) where [i + k] < [n] {
            init { y[v] = 0.0:f32 } y[v] = y[v] + (x[v, r] * x[v, r]) } } }

    So that the padding of a convolution costs no multiplications, and its test can leave the inner
    loops. A term of zero times infinity or NaN, which would make the sum NaN, is left out as well.

    Raises:
        Illegal: `schedule.kind`.
    """
    place, old = s.block_place(block), s.block(block)
    store = old.body
    if not isinstance(store, Store) or old.init is None:
        raise illegal("kind", f"found {block} not to be a sum of one term")
    found = _guarded(store)
    if found is None:
        raise illegal("kind", f"found no product with a guarded factor in {block}")
    guard, value = found
    at = {i.sym: to_int(b) for i, b in zip(old.iters, old.bindings, strict=True)}
    predicate = Rewrite(at).scalar(guard)
    if old.predicate is not None:
        predicate = conjunction(old.predicate, predicate)
    body = Store(store.buffer, store.indices, value)
    s.replace(place, Block(old.name, old.iters, old.bindings, body, old.init, predicate))


def _guarded(store: Store) -> tuple[Scalar, Scalar] | None:
    """Return the guard, and the sum without it, of `y + guarded * other`."""
    value = store.value
    if not isinstance(value, Binary) or value.op is not BinaryOp.ADD:
        return None
    total, term = value.lhs, value.rhs
    if not isinstance(total, Load) or total.buffer is not store.buffer:
        return None
    if not isinstance(term, Binary) or term.op is not BinaryOp.MUL:
        return None
    for guarded, other in ((term.lhs, term.rhs), (term.rhs, term.lhs)):
        if isinstance(guarded, Select) and _is_zero(guarded.otherwise):
            factors = (guarded.then, other) if guarded is term.lhs else (other, guarded.then)
            product = Binary(BinaryOp.MUL, *factors, term.dtype)
            return guarded.condition, Binary(BinaryOp.ADD, total, product, value.dtype)
    return None


def _is_zero(x: Scalar) -> bool:
    return isinstance(x, Lit) and x.value == 0
