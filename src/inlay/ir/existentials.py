"""Opening and packing of `some` types: how symbols get into a scope, and out of it.

* **open**: a value of type `some k. T` is bound to a variable of type `T` with a fresh `k`. Unknown
  control values open as well: a variable for an `int` has type `int[k]`, so that `k` can be a dim.
* **pack**: where a value leaves the scope of `k` its type becomes `some k. T`, with `k` renamed, so
  that a symbol is never both bound in a type and free in the scope around it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from inlay.arith import expr as arith
from inlay.arith.expr import Int, Sym, from_atom
from inlay.ir.dims import LEAST_INT, free_symbols, map_ints, rename_dims, substitute_type
from inlay.ir.types import (
    INT_CONTROL,
    AdtType,
    DimParam,
    ExistsType,
    FuncType,
    IntType,
    RefType,
    ShapeType,
    TensorType,
    TupleType,
    Type,
)


def is_open(t: Type) -> bool:
    """Whether opening would change nothing."""
    match t:
        case ExistsType() | IntType(value=None):
            return False
        case ShapeType(values=values):
            return None not in values
        case TupleType(fields=fields):
            return all(map(is_open, fields))
        case _:
            return True


def open_exists(t: Type, hint: str = "k") -> tuple[Type, tuple[DimParam, ...]]:
    """Give names to what is not determined: `some k. T`, `int`, `shape[_, 4]`, also in tuples.

    Args:
        t: the type of a value that is about to be bound.
        hint: name for symbols that have none.

    Returns:
        The type of the variable, and its fresh symbols with what is known of them. The second is
        empty, and the first is `t` itself, when nothing is unknown.
    """
    if is_open(t):
        return t, ()
    opened: list[DimParam] = []
    return _open(t, hint, opened), tuple(opened)


def _open(t: Type, hint: str, opened: list[DimParam]) -> Type:
    match t:
        case ExistsType(dims=dims, body=body):
            fresh = rename_dims(dims)
            opened.extend(fresh)
            ints = {d.sym: from_atom(f.sym) for d, f in zip(dims, fresh, strict=True)}
            return _open(substitute_type(body, ints), hint, opened)
        case TupleType(fields=fields):
            return TupleType(tuple(_open(f, hint, opened) for f in fields))
        case IntType(value=None):
            return IntType(_fresh_int(hint, opened))
        case ShapeType(values=values):
            return ShapeType(tuple(_fresh_int(hint, opened) if v is None else v for v in values))
        case _:
            return t


def _fresh_int(hint: str, opened: list[DimParam]) -> Int:
    sym = arith.fresh(hint)
    opened.append(DimParam(sym, LEAST_INT))
    return from_atom(sym)


def opened_dims(declared: Type, actual: Type) -> tuple[DimParam, ...]:
    """Return the symbols that a binder of type `actual` opens for a value of type `declared`.

    The inverse of `open_exists` on types it made: `some k. Tensor[k]` and `Tensor[j]` give `j` with
    the bounds of `k`. A value whose type has become more exact since still gives a value to each
    symbol: `Tensor[5]` and `Tensor[j]` give `j`. Empty when the types agree.
    """
    if declared is actual or declared == actual:
        return ()
    found: dict[Sym, DimParam] = {}
    _opened(declared, actual, {}, found)
    if found:
        for s in free_symbols(declared):
            found.pop(s, None)
    return tuple(found.values())


def hides(declared: Type, actual: Type) -> bool:
    """Whether a binder of type `actual` knows less than the type of its value: a symbol that it
    opens stands for what that type says.
    """
    opened = opened_dims(declared, actual)
    return bool(opened) and len(opened) > len(open_exists(declared)[1])


def _opened(declared: Type, actual: Type, bound: Mapping[Sym, DimParam], found: dict[Sym, DimParam]) -> None:
    match declared, actual:
        case ExistsType(dims=dims, body=body), _:
            _opened(body, actual, {**bound, **{d.sym: d for d in dims}}, found)
        case TensorType(shape=declared_dims), TensorType(shape=actual_dims):
            for d, a in zip(declared_dims, actual_dims, strict=False):
                _opened_int(d, a, bound, found, 0)
        case IntType(value=d), IntType(value=a):
            _opened_int(d, a, bound, found, LEAST_INT)
        case ShapeType(values=declared_values), ShapeType(values=actual_values):
            for d, a in zip(declared_values, actual_values, strict=False):
                _opened_int(d, a, bound, found, LEAST_INT)
        case (TupleType(fields=declared_types), TupleType(fields=actual_types)) | (
            AdtType(args=declared_types),
            AdtType(args=actual_types),
        ):
            for d, a in zip(declared_types, actual_types, strict=False):
                _opened(d, a, bound, found)
        case RefType(content=d), RefType(content=a):
            _opened(d, a, bound, found)
        case _:
            pass


def _opened_int(
    d: Int | None, a: Int | None, bound: Mapping[Sym, DimParam], found: dict[Sym, DimParam], low: int
) -> None:
    if a is None or d == a:
        return
    inside = () if d is None else tuple(s for s in arith.symbols(d) if s in bound)
    if isinstance(a.atom, Sym) and not inside:
        found.setdefault(a.atom, DimParam(a.atom, low))
    if d is None or len(inside) != 1:
        return
    for s in arith.symbols(a):
        if s not in found and arith.substitute(d, {inside[0]: from_atom(s)}) == a:
            known = bound[inside[0]]
            found[s] = DimParam(s, known.low, known.high, known.multiple_of, known.typical)
            return


def pack(t: Type, dims: Iterable[DimParam]) -> Type:
    """Quantify those of `dims` that occur free in `t`, renamed; `t` itself when none does.

    Whoever opens the result finds each symbol in the value, so what a value does not determine is
    said less exactly: `Tensor[j + k]` is packed as `some d. Tensor[d]`, a symbol inside of the
    arguments of a data type is quantified there, and a bound by a symbol that is gone is dropped. A
    symbol that occurs once, as a control value without bounds, says no more than `int`.
    """
    wanted = {d.sym: d for d in dims}
    if not wanted or wanted.keys().isdisjoint(free_symbols(t)):
        return t
    if isinstance(t, ExistsType):  # what is quantified there already has to be found again, too
        wanted.update((d.sym, d) for d in t.dims)
        t = t.body
    determined = _determined(t, wanted.keys())
    lost = {s: d for s, d in wanted.items() if s not in determined}
    kept = [wanted[s] for s in wanted if s in determined]
    if lost:
        blurred: dict[Int, DimParam] = {}
        t = _blur(t, lost, blurred)
        # Cells and functions are what they are: their symbols are quantified, found or not.
        held = {s: lost.pop(s) for s in free_symbols(t) if s in lost}
        kept = [_without_bound(d, lost) for d in (*kept, *blurred.values(), *held.values())]
    lone = _lone_control_values(t, {d.sym for d in kept if d.low == LEAST_INT and d.high is None})
    if lone:
        t = _forget(t, lone)
        kept = [d for d in kept if d.sym not in lone]
    if not kept:
        return t
    kept = _bounds_first(kept)
    fresh = rename_dims(kept)
    body = substitute_type(t, {d.sym: from_atom(f.sym) for d, f in zip(kept, fresh, strict=True)})
    return ExistsType(fresh, body)


def _determined(t: Type, wanted: Iterable[Sym]) -> set[Sym]:
    """Return the wanted symbols that a value of the type determines: `k`, `2*k + n`."""
    unsolved = set(wanted)
    waiting = [e for e in _visible_ints(t) if not unsolved.isdisjoint(arith.symbols(e))]
    found: set[Sym] = set()
    progress = True
    while progress:
        progress = False
        for e in waiting:
            inside = [s for s in arith.symbols(e) if s in unsolved]
            if len(inside) != 1:
                continue
            c = arith.coefficient(e, inside[0])
            if c is not None and c.value:
                found.add(inside[0])
                unsolved.discard(inside[0])
                progress = True
    return found


def _visible_ints(t: Type) -> list[Int]:
    """Return the integers that can be read off a value: outside of data types and functions."""
    match t:
        case TensorType(shape=values) | ShapeType(values=values):
            return [v for v in values if v is not None]
        case IntType(value=Int() as value):
            return [value]
        case TupleType(fields=fields):
            return [e for f in fields for e in _visible_ints(f)]
        case RefType(content=inner) | ExistsType(body=inner):
            return _visible_ints(inner)
        case _:
            return []


def _blur(t: Type, lost: Mapping[Sym, DimParam], blurred: dict[Int, DimParam]) -> Type:
    """Rewrite a type so that symbols which values do not determine do not escape."""

    def blur(e: Int, low: int) -> Int:
        if lost.keys().isdisjoint(arith.symbols(e)):
            return e
        found = blurred.get(e)
        if found is None:
            found = blurred[e] = DimParam(arith.fresh("k"), low)
        elif low == 0 and found.low == LEAST_INT:
            found = blurred[e] = DimParam(found.sym, 0)
        return from_atom(found.sym)

    match t:
        case TensorType(shape=shape, dtype=dtype):
            return TensorType(tuple(blur(d, 0) for d in shape), dtype)
        case IntType(value=Int() as value):
            return IntType(blur(value, LEAST_INT))
        case ShapeType(values=values):
            return ShapeType(tuple(None if v is None else blur(v, LEAST_INT) for v in values))
        case TupleType(fields=fields):
            return TupleType(tuple(_blur(f, lost, blurred) for f in fields))
        case AdtType(name=name, args=args):
            return AdtType(name, tuple(pack(a, lost.values()) for a in args))
        case ExistsType(dims=dims, body=body):
            return ExistsType(tuple(_without_bound(d, lost) for d in dims), _blur(body, lost, blurred))
        case _:
            return t


def _bounds_first(dims: list[DimParam]) -> list[DimParam]:
    """Order a binder so that a bound mentions only symbols before it."""
    own = {d.sym for d in dims}
    ordered: list[DimParam] = []
    seen: set[Sym] = set()
    while len(ordered) < len(dims):
        ready = [
            d
            for d in dims
            if d.sym not in seen
            and (d.high is None or seen.issuperset(own.intersection(arith.symbols(d.high))))
        ]
        for d in ready:
            ordered.append(d)
            seen.add(d.sym)
        assert ready, "bounds of dims do not depend on each other in a circle"
    return ordered


def _without_bound(d: DimParam, lost: Mapping[Sym, DimParam]) -> DimParam:
    if d.high is None or lost.keys().isdisjoint(arith.symbols(d.high)):
        return d
    return DimParam(d.sym, d.low, None, d.multiple_of, d.typical)


def _lone_control_values(t: Type, candidates: set[Sym]) -> set[Sym]:
    """Return the candidates whose only occurrence is as a whole control value outside functions."""
    if not candidates:
        return candidates
    count: dict[Sym, int] = dict.fromkeys(candidates, 0)
    whole: set[Sym] = set()

    def visit(e: Int, *, control: bool) -> Int:
        for s in arith.symbols(e):
            if s in count:
                count[s] += 1
                if control and e.atom == s:
                    whole.add(s)
        return e

    map_ints(t, visit)
    return {s for s in whole if count[s] == 1}


def _forget(t: Type, syms: set[Sym]) -> Type:
    match t:
        case IntType(value=Int(atom=Sym() as s)) if s in syms:
            return INT_CONTROL
        case ShapeType(values=values):
            return ShapeType(tuple(None if v is not None and v.atom in syms else v for v in values))
        case TupleType(fields=fields):
            return TupleType(tuple(_forget(f, syms) for f in fields))
        case AdtType(name=name, args=args):
            return AdtType(name, tuple(_forget(a, syms) for a in args))
        case ExistsType(dims=dims, body=body):
            return ExistsType(dims, _forget(body, syms))
        case FuncType(params=params, result=result, dims=dims, type_vars=type_vars):
            return FuncType(tuple(_forget(p, syms) for p in params), _forget(result, syms), dims, type_vars)
        case _:
            return t
