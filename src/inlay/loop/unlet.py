"""Lets back to one scalar: the inverse of `lets.linearize`.

To put the body of one block into another, the value it stores must be one scalar again. A let that
scalars mention becomes the node itself, shared by its users; a let that integers mention becomes a
`Bind` around the scalars that load with it.
"""

from __future__ import annotations

from inlay.arith.expr import Sym, symbols
from inlay.loop.scalar import Bind, Index, Load, Name, Scalar
from inlay.loop.stmt import Let, Stmt, Store
from inlay.loop.walk import map_operands, scalars_below


def stored_value(s: Stmt) -> tuple[Store, Scalar] | None:
    """Return the store of `let ...; A[i] = x`, and `x` as one scalar; None for other statements.

    Indices of the store must not mention the lets.
    """
    lets: list[tuple[Sym, Scalar]] = []
    while isinstance(s, Let):
        lets.append((s.sym, s.value))
        s = s.body
    if not isinstance(s, Store):
        return None
    bound = {sym for sym, _ in lets}
    if any(x in bound for e in s.indices for x in symbols(e)):
        return None
    value = s.value
    for sym, let in reversed(lets):
        value = _without(value, sym, let)
    return s, value


def _without(x: Scalar, sym: Sym, value: Scalar) -> Scalar:
    """Replace a let-bound name, and bind it where integers mention it."""
    memo: dict[int, Scalar] = {}

    def named(y: Scalar) -> Scalar:
        found = memo.get(id(y))
        if found is None:
            if isinstance(y, Name) and y.sym == sym:
                found = value
            else:
                found = map_operands(y, named)
            memo[id(y)] = found
        return found

    result = named(x)
    return Bind(sym, value, result) if _in_integers(x, sym) else result


def _in_integers(x: Scalar, sym: Sym) -> bool:
    for y in scalars_below(x):
        indices = y.indices if isinstance(y, Load) else (y.value,) if isinstance(y, Index) else ()
        if any(sym in symbols(e) for e in indices):
            return True
    return False
