"""Symbols in types: which occur free, substitution, equality up to the names of bound ones.

A symbol is *bound* by a `FuncType` or an `ExistsType` and otherwise *free*: it belongs to the scope
in which the type stands. `opening` moves symbols between the two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import assert_never

from inlay.arith import expr as arith
from inlay.arith.expr import Int, Sym, from_atom
from inlay.ir.types import (
    AdtType,
    BoolType,
    DimParam,
    ExistsType,
    FuncType,
    IntType,
    RefType,
    ShapeType,
    StorageType,
    TensorType,
    TupleType,
    Type,
    TypeVar,
    UnknownType,
)

LEAST_INT = -(2**63)
"""`DimParam.low` of a symbol that may be any control integer, negative ones included."""


def parts(t: Type) -> tuple[Type, ...]:
    """Return the types that a type is directly made of."""
    match t:
        case TupleType(fields=types) | AdtType(args=types):
            return types
        case RefType(content=body) | ExistsType(body=body):
            return (body,)
        case FuncType(params=params, result=result):
            return (*params, result)
        case _:
            return ()


def free_symbols(t: Type) -> tuple[Sym, ...]:
    """Return the symbols that occur free, in order of first appearance."""
    found: dict[Sym, None] = {}
    _collect(t, found, frozenset())
    return tuple(found)


def _collect(t: Type, found: dict[Sym, None], bound: frozenset[Sym]) -> None:
    match t:
        case TensorType(shape=values) | ShapeType(values=values):
            for e in values:
                _collect_int(e, found, bound)
        case IntType(value=e):
            _collect_int(e, found, bound)
        case TupleType(fields=types) | AdtType(args=types):
            for f in types:
                _collect(f, found, bound)
        case RefType(content=content):
            _collect(content, found, bound)
        case FuncType(params=params, result=result, dims=dims):
            inner = bound.union(d.sym for d in dims)
            for p in (*params, result):
                _collect(p, found, inner)
            _collect_highs(dims, found, inner)
        case ExistsType(dims=dims, body=body):
            inner = bound.union(d.sym for d in dims)
            _collect(body, found, inner)
            _collect_highs(dims, found, inner)
        case TypeVar() | StorageType() | BoolType() | UnknownType():
            pass
        case _:
            assert_never(t)


def _collect_highs(dims: tuple[DimParam, ...], found: dict[Sym, None], bound: frozenset[Sym]) -> None:
    for d in dims:
        _collect_int(d.high, found, bound)


def _collect_int(e: Int | None, found: dict[Sym, None], bound: frozenset[Sym]) -> None:
    if e is not None and e.value is None:
        for s in arith.symbols(e):
            if s not in bound:
                found[s] = None


_NO_TYPES: Mapping[str, Type] = {}


def substitute_type(t: Type, ints: Mapping[Sym, Int], types: Mapping[str, Type] = _NO_TYPES) -> Type:
    """Replace free symbols and type variables; binders are renamed where they would capture."""
    if not ints and not types:
        return t
    return _substitute(t, ints, types)


def _substitute(t: Type, ints: Mapping[Sym, Int], types: Mapping[str, Type]) -> Type:
    match t:
        case TensorType(shape=shape, dtype=dtype):
            return TensorType(tuple(arith.substitute(d, ints) for d in shape), dtype)
        case IntType(value=value):
            return t if value is None else IntType(arith.substitute(value, ints))
        case ShapeType(values=values):
            return ShapeType(tuple(None if v is None else arith.substitute(v, ints) for v in values))
        case TupleType(fields=fields):
            return TupleType(tuple(_substitute(f, ints, types) for f in fields))
        case AdtType(name=name, args=args):
            return AdtType(name, tuple(_substitute(a, ints, types) for a in args)) if args else t
        case RefType(content=content):
            return RefType(_substitute(content, ints, types))
        case TypeVar(name=name):
            return types.get(name, t)
        case FuncType(params=params, result=result, dims=dims, type_vars=type_vars):
            inner, dims = _under(dims, ints, types)
            if type_vars:
                own = {v.name for v in type_vars}
                types = {k: v for k, v in types.items() if k not in own}
            return FuncType(
                tuple(_substitute(p, inner, types) for p in params),
                _substitute(result, inner, types),
                dims,
                type_vars,
            )
        case ExistsType(dims=dims, body=body):
            inner, dims = _under(dims, ints, types)
            return ExistsType(dims, _substitute(body, inner, types))
        case StorageType() | BoolType() | UnknownType():
            return t
        case _:
            assert_never(t)


def _under(
    dims: tuple[DimParam, ...], ints: Mapping[Sym, Int], types: Mapping[str, Type]
) -> tuple[Mapping[Sym, Int], tuple[DimParam, ...]]:
    """Return the mapping inside a binder, and the binder, renamed if it would capture."""
    if not dims:
        return ints, dims
    bound = {d.sym for d in dims}
    inner = {s: e for s, e in ints.items() if s not in bound}
    incoming = {s for e in inner.values() for s in arith.symbols(e)}
    for t in types.values():
        incoming.update(free_symbols(t))
    if incoming & bound:
        renamed = rename_dims(dims)
        inner.update({d.sym: from_atom(r.sym) for d, r in zip(dims, renamed, strict=True)})
        dims = renamed
    return inner, tuple(_substitute_param(d, inner) for d in dims)


def _substitute_param(d: DimParam, ints: Mapping[Sym, Int]) -> DimParam:
    if d.high is None or d.high.value is not None:
        return d
    return DimParam(d.sym, d.low, arith.substitute(d.high, ints), d.multiple_of, d.typical)


def rename_dims(dims: Iterable[DimParam]) -> tuple[DimParam, ...]:
    """Return the same bound dims with fresh symbols of the same names."""
    dims = tuple(dims)
    fresh = {d.sym: arith.fresh(d.sym.name) for d in dims}
    ints = {s: from_atom(f) for s, f in fresh.items()}
    return tuple(
        DimParam(
            fresh[d.sym],
            d.low,
            None if d.high is None else arith.substitute(d.high, ints),
            d.multiple_of,
            d.typical,
        )
        for d in dims
    )


def dim_params(
    types: Iterable[Type], is_known: Callable[[Sym], bool] = lambda _: False
) -> tuple[DimParam, ...]:
    """Return the free symbols that are not known: as dims where they are one, else any integer."""
    found: dict[Sym, None] = {}
    dims: set[Sym] = set()

    def visit(e: Int, *, control: bool) -> Int:
        if not control:
            dims.update(arith.symbols(e))
        return e

    for t in types:
        map_ints(t, visit)
        found.update((s, None) for s in free_symbols(t) if not is_known(s))
    return tuple([DimParam(s, 0 if s in dims else LEAST_INT) for s in found])


def map_ints(t: Type, f: Callable[..., Int]) -> Type:
    """Rebuild a type with `f(e, control=...)` for every integer in it, bound symbols included.

    `control` is true for the values of control types and false for dims of tensors.
    """
    match t:
        case TensorType(shape=shape, dtype=dtype):
            return TensorType(tuple(f(d, control=False) for d in shape), dtype)
        case IntType(value=value):
            return t if value is None else IntType(f(value, control=True))
        case ShapeType(values=values):
            return ShapeType(tuple(None if v is None else f(v, control=True) for v in values))
        case TupleType(fields=fields):
            return TupleType(tuple(map_ints(x, f) for x in fields))
        case AdtType(name=name, args=args):
            return AdtType(name, tuple(map_ints(x, f) for x in args))
        case RefType(content=content):
            return RefType(map_ints(content, f))
        case FuncType(params=params, result=result, dims=dims, type_vars=type_vars):
            return FuncType(tuple(map_ints(p, f) for p in params), map_ints(result, f), dims, type_vars)
        case ExistsType(dims=dims, body=body):
            return ExistsType(dims, map_ints(body, f))
        case TypeVar() | StorageType() | BoolType() | UnknownType():
            return t
        case _:
            assert_never(t)


def same_type(a: Type, b: Type, ints: Mapping[Sym, Int] = MappingProxyType({})) -> bool:
    """Whether two types are equal up to renaming of bound symbols and type variables.

    Args:
        a: a type.
        b: the other.
        ints: what stands in `b` for free symbols of `a`.
    """
    return (a is b and not ints) or _same(a, b, ints, {})


def _same(a: Type, b: Type, ints: Mapping[Sym, Int], types: Mapping[str, str]) -> bool:
    match a, b:
        case TensorType(shape=sa, dtype=da), TensorType(shape=sb, dtype=db):
            return da == db and _same_ints(sa, sb, ints)
        case IntType(value=va), IntType(value=vb):
            return _same_ints((va,), (vb,), ints)
        case ShapeType(values=sa), ShapeType(values=sb):
            return _same_ints(sa, sb, ints)
        case TupleType(fields=fa), TupleType(fields=fb):
            return _same_types(fa, fb, ints, types)
        case AdtType(name=na, args=fa), AdtType(name=nb, args=fb):
            return na == nb and _same_types(fa, fb, ints, types)
        case RefType(content=ca), RefType(content=cb):
            return _same(ca, cb, ints, types)
        case FuncType(), FuncType():
            if len(a.dims) != len(b.dims) or len(a.type_vars) != len(b.type_vars):
                return False
            pairs = zip(a.type_vars, b.type_vars, strict=True)
            inner = {**types, **{x.name: y.name for x, y in pairs}} if a.type_vars else types
            bound = _bind(a.dims, b.dims, ints)
            return (
                bound is not None
                and _same_types(a.params, b.params, bound, inner)
                and _same(a.result, b.result, bound, inner)
            )
        case ExistsType(), ExistsType():
            bound = _bind(a.dims, b.dims, ints) if len(a.dims) == len(b.dims) else None
            return bound is not None and _same(a.body, b.body, bound, types)
        case TypeVar(name=na), TypeVar(name=nb):
            return types.get(na, na) == nb
        case _:
            return a == b


def _same_types(
    a: tuple[Type, ...], b: tuple[Type, ...], ints: Mapping[Sym, Int], types: Mapping[str, str]
) -> bool:
    return len(a) == len(b) and all(_same(x, y, ints, types) for x, y in zip(a, b, strict=True))


def _same_ints(a: tuple[Int | None, ...], b: tuple[Int | None, ...], ints: Mapping[Sym, Int]) -> bool:
    if not ints:
        return a == b
    return len(a) == len(b) and all(
        x is y or (x is not None and y is not None and arith.substitute(x, ints) == y)
        for x, y in zip(a, b, strict=True)
    )


def _bind(
    a: tuple[DimParam, ...], b: tuple[DimParam, ...], ints: Mapping[Sym, Int]
) -> Mapping[Sym, Int] | None:
    """Return the renaming with the binder `a` mapped to `b`; None if their bounds differ."""
    if not a:
        return ints
    inner = {**ints, **{x.sym: from_atom(y.sym) for x, y in zip(a, b, strict=True)}}
    for x, y in zip(a, b, strict=True):
        if (x.low, x.multiple_of, x.typical) != (y.low, y.multiple_of, y.typical):
            return None
        if not _same_ints((x.high,), (y.high,), inner):
            return None
    return inner
