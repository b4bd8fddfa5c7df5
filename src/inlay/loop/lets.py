"""Scalars as graphs to statements: what is shared is bound once, and `Bind`s become lets.

Inlining tensor expressions into each other gives scalars whose nodes are shared, and binds of i64
values (gathered indices) anywhere inside. A statement wants trees. `linearize` takes a scalar apart
into lets, in order, and a tree:

* A node with several users that is certainly evaluated becomes a let.
* A `Bind` becomes a let. If it stands on one side of a `select`, its value may load out of bounds
  when that side is not chosen, so the let gets `select(condition, value, 0)`: the let's users are
  all on that side, and never see the zero.
"""

from __future__ import annotations

from dataclasses import replace

from inlay.arith.dtype import I64
from inlay.arith.expr import Sym, fresh, from_atom
from inlay.loop.scalar import Bind, Cast, Dot, Index, Lit, Load, Name, Scalar, Select
from inlay.loop.stmt import Let, Stmt
from inlay.loop.walk import Rewrite, map_operands, operands

_Guards = tuple[tuple[Scalar, bool], ...]
"""The selects around a node: condition, and whether the node is on the side of `then`."""


def linearize(x: Scalar) -> tuple[tuple[tuple[Sym, Scalar], ...], Scalar]:
    """Return lets, in order, and a scalar without `Bind` in which no evaluated node is shared."""
    if isinstance(x, (Lit, Load, Name, Index)):
        return (), x
    builder = _Lets(x)
    result = builder.tree(x, ())
    return tuple(builder.lets), result


def bind_lets(lets: tuple[tuple[Sym, Scalar], ...], body: Stmt) -> Stmt:
    """Put the lets of `linearize` around a statement."""
    for sym, value in reversed(lets):
        body = Let(sym, value, body)
    return body


class _Lets:
    def __init__(self, root: Scalar) -> None:
        self.lets: list[tuple[Sym, Scalar]] = []
        self._memo: dict[tuple[int, _Guards], Scalar] = {}
        self._copies: list[Scalar] = []  # kept, so that no node's id is used again
        self._users = _count_users(root)
        self._certain = _certainly_evaluated(root)

    def tree(self, x: Scalar, guards: _Guards) -> Scalar:
        """Return the scalar, having added what it needs to `lets`."""
        if isinstance(x, (Lit, Name, Index)):
            return x
        if id(x) in self._certain:
            guards = ()
        key = (id(x), guards)
        found = self._memo.get(key)
        if found is None:
            found = self._memo[key] = self._named(x, self._rebuilt(x, guards))
        return found

    def _named(self, x: Scalar, tree: Scalar) -> Scalar:
        if self._users.get(id(x), 0) < 2 or id(x) not in self._certain or _is_cheap(tree):
            return tree
        sym = fresh(f"t{len(self.lets)}")
        self.lets.append((sym, tree))
        return Name(sym, tree.dtype)

    def _rebuilt(self, x: Scalar, guards: _Guards) -> Scalar:
        if isinstance(x, Select):
            condition = self.tree(x.condition, guards)
            then = self.tree(x.then, (*guards, (condition, True)))
            otherwise = self.tree(x.otherwise, (*guards, (condition, False)))
            return Select(condition, then, otherwise, x.dtype)
        if isinstance(x, Bind):
            value = self.tree(x.value, guards)
            for condition, chosen in reversed(guards):
                zero = Lit(0, I64)
                sides = (value, zero) if chosen else (zero, value)
                value = Select(condition, *sides, I64)
            sym = x.sym if all(s is not x.sym for s, _ in self.lets) else fresh(x.sym.name)
            self.lets.append((sym, value))
            body = x.body
            if sym is not x.sym:
                body = Rewrite({x.sym: from_atom(sym)}).scalar(body)
                self._copies.append(body)
            return self.tree(body, guards)
        if isinstance(x, Dot):
            # Its factors are one for each product: what they share has no one value to be named.
            return replace(x, acc=self.tree(x.acc, guards))
        return map_operands(x, lambda y: self.tree(y, guards))


def _is_cheap(x: Scalar) -> bool:
    return isinstance(x, (Lit, Name, Index)) or (isinstance(x, Cast) and _is_cheap(x.operand))


def _count_users(root: Scalar) -> dict[int, int]:
    users: dict[int, int] = {}
    pending = [root]
    while pending:
        for y in operands(pending.pop()):
            count = users[id(y)] = users.get(id(y), 0) + 1
            if count == 1:
                pending.append(y)
    return users


def _certainly_evaluated(root: Scalar) -> set[int]:
    """Return the nodes that are reached without choosing a side of a select."""
    seen: set[int] = {id(root)}
    pending = [root]
    while pending:
        x = pending.pop()
        # What a bind's body mentions must come after the bind, so only its value is certain.
        inner = (x.condition,) if isinstance(x, Select) else operands(x)
        for y in inner:
            if id(y) not in seen:
                seen.add(id(y))
                pending.append(y)
    return seen
