"""Load both sides of a select at once where it chooses lane by lane.

    for l in 0..16 vector {                          for l in 0..16 vector {
      y[l] = select(c[l], x[l], w[l]) }          ->    let a = x[l] in let b = w[l] in
                                                         y[l] = select(c[l], a, b) }

A side is read under a mask of the lanes that take it, and elements of less than 32 bits have none on most
processors: each lane is a branch then. What certainly lies inside of its tensor may be read for all lanes. It
stays where it is if the select takes one side for all lanes, or an index may lead outside: what is beside
a tensor that is padded is not there to be read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from inlay.arith.expr import Sym, fresh
from inlay.loop.buffer import Scope
from inlay.loop.inits import comparisons
from inlay.loop.lets import bind_lets
from inlay.loop.ranges import Bounds
from inlay.loop.scalar import Load, Name, Scalar, Select
from inlay.loop.stmt import For, If, Let, LoopKind, Stmt, Store
from inlay.loop.walk import map_children, map_operands, operands, symbols_of


@dataclass(frozen=True, slots=True)
class _Place:
    """What is around a statement.

    Attributes:
        bounds: its loops.
        wide: what differs by lane.
        bound: what lets bind.
    """

    bounds: Bounds = field(default_factory=Bounds)
    wide: frozenset[Sym] = frozenset()
    bound: frozenset[Sym] = frozenset()

    def differs(self, x: Scalar) -> bool:
        """Whether a value may differ by lane."""
        return any(sym in self.wide for sym in symbols_of(x))

    def holds(self, load: Load) -> bool:
        """Whether an element is in its buffer, whatever conditions hold."""
        buffer = load.buffer
        known = self.bound.isdisjoint(symbols_of(load))
        inside = zip(load.indices, buffer.shape, strict=True)
        return known and all(self.bounds.within(e, n) for e, n in inside)


def load_sides(s: Stmt) -> Stmt:
    """Return an equal statement. Requires: no `Block`."""
    return _walk(s, _Place())


def _walk(s: Stmt, place: _Place) -> Stmt:
    match s:
        case For(var=var, lo=lo, extent=extent, kind=kind):
            wide = place.wide | {var} if kind is LoopKind.VECTOR else place.wide
            inner = replace(place, bounds=place.bounds.inside(var, lo, extent), wide=wide)
            return map_children(s, lambda child: _walk(child, inner))
        case Let(sym=sym, value=value, body=body):
            wide = place.wide | {sym} if place.differs(value) else place.wide
            inside = _walk(body, replace(place, wide=wide, bound=place.bound | {sym}))
            lets, value = _without(value, place)
            return s if not lets and inside is body else bind_lets(lets, Let(sym, value, inside))
        case Store(buffer=buffer, indices=indices, value=value):
            lets, value = _without(value, place)
            return bind_lets(lets, Store(buffer, indices, value)) if lets else s
        case If(condition=condition, then=then, otherwise=otherwise):
            inside = _walk(then, replace(place, bounds=_where(condition, place.bounds)))
            rest = None if otherwise is None else _walk(otherwise, place)
            return s if inside is then and rest is otherwise else If(condition, inside, rest)
        case _:
            return map_children(s, lambda child: _walk(child, place))


def _where(condition: Scalar, bounds: Bounds) -> Bounds:
    """Return the bounds where a condition holds: `o < end`, and the loop over `o` has not come to its end."""
    for a, b in comparisons(condition):
        if isinstance(a.value.atom, Sym) and a.value.atom in bounds:
            bounds = bounds.until(a.value.atom, b.value)
    return bounds


def _without(x: Scalar, place: _Place) -> tuple[tuple[tuple[Sym, Scalar], ...], Scalar]:
    """Return the loads of sides, as lets, and the scalar that names them."""
    if not place.wide:
        return (), x
    names = {load: fresh("side") for load in _of_sides(x, place, is_side=False)}

    def named(y: Scalar) -> Scalar:
        if isinstance(y, Load):
            return Name(names[y], y.dtype) if y in names else y
        return map_operands(y, named)

    return tuple((sym, load) for load, sym in names.items()), named(x) if names else x


def _of_sides(x: Scalar, place: _Place, *, is_side: bool) -> Iterator[Load]:
    """Yield loads, in order, under selects that differ by lane and under no others."""
    match x:
        case Load():
            if is_side and x.buffer.scope is not Scope.REGISTER and place.holds(x):
                yield x
        case Select(condition=condition, then=then, otherwise=otherwise):
            yield from _of_sides(condition, place, is_side=is_side)
            if place.differs(condition):
                yield from _of_sides(then, place, is_side=True)
                yield from _of_sides(otherwise, place, is_side=True)
        case _:
            for y in operands(x):
                yield from _of_sides(y, place, is_side=is_side)
