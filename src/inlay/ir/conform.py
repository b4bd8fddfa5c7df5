"""When a value of one type may stand where another is declared, and what two types have in common.

`conform(declared, actual)` is one algorithm for arguments, results, annotations and fields. It
matches the declared type against the actual one and

* solves *bindable* symbols and type variables of the declared type (the dims of a called function,
  the witnesses of a `some` type): first those that stand alone (`n`), then those that stand in an
  integer with one unknown (`2*n + 1`, checked to divide);
* asks the context to relate what is left (`ctx.equal`), which proves, records or refutes it.

Tuples and data types are immutable, so a more exact type may stand for a less exact one in their
fields; cells may be written, so theirs must agree exactly. Where a value cannot be looked into
before it is used (elements of data types, functions) nothing can be checked at run time and
relations must be provable.

`join(a, b)` is the least general type of both: dims that differ become `some` dims, the same
difference the same dim.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from inlay.arith import expr as arith
from inlay.arith.bounds import Range
from inlay.arith.expr import Int, Sym, floordiv, from_atom, substitute, symbols
from inlay.arith.solve import Facts
from inlay.base.diagnostics import CompileError
from inlay.ir.context import Context, StrictContext
from inlay.ir.dims import LEAST_INT, rename_dims, same_type, substitute_type
from inlay.ir.existentials import is_open, open_exists, pack
from inlay.ir.op import TypeContext
from inlay.ir.type_printer import type_text
from inlay.ir.types import (
    UNKNOWN,
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
    TypeVar,
    UnknownType,
)


class Matching:
    """One run of `conform` over several pairs of types that share bindable symbols.

    Attributes:
        ints: solved symbols.
        types: solved type variables, by name.
        opened: symbols of `some` types of actual values, opened on the way.
    """

    def __init__(self, ctx: Context) -> None:
        self.ctx = ctx
        self.ints: dict[Sym, Int] = {}
        self.types: dict[str, Type] = {}
        self.opened: list[DimParam] = []
        self._bindable: dict[Sym, DimParam] = {}
        self._type_vars: set[str] = set()
        self._later: list[tuple[Int, Int, str, Context]] = []
        self._depth = 0  # inside elements of data, each of which has its own witnesses
        self._inner: set[Sym] = set()
        self._known: dict[Sym, DimParam] = {}

    def bind(self, dims: tuple[DimParam, ...], type_vars: tuple[TypeVar, ...] = ()) -> None:
        """Make symbols and type variables bindable."""
        self._bindable.update((d.sym, d) for d in dims)
        self._type_vars.update(v.name for v in type_vars)

    def match(self, declared: Type, actual: Type, why: str) -> None:
        """Require that a value of type `actual` may stand where `declared` is declared."""
        self._match(declared, actual, why, self.ctx)

    def _match(self, declared: Type, actual: Type, why: str, ctx: Context) -> None:
        if declared is actual and not (self._bindable or self._type_vars) and is_open(actual):
            return
        if isinstance(declared, TypeVar) and declared.name in self._type_vars:
            self._match_type_var(declared, actual, why, ctx)
            return
        if isinstance(declared, ExistsType):
            witnesses = rename_dims(declared.dims)
            self.bind(witnesses)
            if self._depth:
                self._inner.update(w.sym for w in witnesses)
            ints = {d.sym: from_atom(w.sym) for d, w in zip(declared.dims, witnesses, strict=True)}
            declared = substitute_type(declared.body, ints)
        if isinstance(declared, IntType) and declared.value is None:
            inner = actual.body if isinstance(actual, ExistsType) else actual
            if not isinstance(inner, (IntType, UnknownType)):
                raise self._different(declared, actual, why)
            return
        if not is_open(actual):
            if isinstance(declared, TupleType) and isinstance(actual, TupleType):
                pass  # opened field by field, only where a name is needed
            elif not _accepts_unknown(declared, actual):
                actual = self._open(actual, ctx)
        match declared, actual:
            case (UnknownType(), _) | (_, UnknownType()):
                pass
            case TensorType(), TensorType():
                if len(declared.shape) != len(actual.shape) or declared.dtype != actual.dtype:
                    raise self._different(declared, actual, why)
                for d, a in zip(declared.shape, actual.shape, strict=True):
                    self._match_int(d, a, why, ctx)
            case IntType(value=Int() as d), IntType(value=Int() as a):
                self._match_int(d, a, why, ctx)
            case ShapeType(values=ds), ShapeType(values=values) if len(ds) == len(values):
                for d, a in zip(ds, values, strict=True):
                    if d is not None and a is not None:
                        self._match_int(d, a, why, ctx)
            case TupleType(fields=ds), TupleType(fields=fields) if len(ds) == len(fields):
                for d, a in zip(ds, fields, strict=True):
                    self._match(d, a, why, ctx)
            case AdtType(name=name, args=ds), AdtType(args=args) if name == actual.name and len(ds) == len(
                args
            ):
                self._depth += 1
                for d, a in zip(ds, args, strict=True):
                    self._match(d, a, why, ctx.strict())
                self._depth -= 1
            case RefType(content=d), RefType(content=a):
                self._match(d, a, why, ctx.strict())
                if not same_type(self.solve(d), a):
                    raise self._different(declared, actual, why)
            case FuncType(), FuncType():
                self._match_function(declared, actual, why, ctx)
            case _:
                if declared != actual:
                    raise self._different(declared, actual, why)

    def _open(self, actual: Type, ctx: Context) -> Type:
        actual, dims = open_exists(actual)
        self._known.update((d.sym, d) for d in dims)
        ctx.facts = assume_dims(ctx.facts, dims)
        if ctx is not self.ctx:  # which checks bounds in the end
            self.ctx.facts = assume_dims(self.ctx.facts, dims)
        if self._depth:
            self._inner.update(d.sym for d in dims)
        else:
            self.opened.extend(dims)
        return actual

    def _match_type_var(self, declared: TypeVar, actual: Type, why: str, ctx: Context) -> None:
        known = self.types.get(declared.name)
        if known is None:
            self.types[declared.name] = actual
        elif not same_type(known, actual):
            self.types[declared.name] = join(known, actual, ctx, why)

    def _match_function(self, declared: FuncType, actual: FuncType, why: str, ctx: Context) -> None:
        """Parameters the other way round; the dims of `declared` are whatever a caller chooses."""
        if len(declared.params) != len(actual.params):
            raise self._different(declared, actual, why)
        strict = ctx.strict()
        fresh = rename_dims(actual.dims)
        ints = {d.sym: from_atom(f.sym) for d, f in zip(actual.dims, fresh, strict=True)}
        actual = FuncType(
            tuple(substitute_type(p, ints) for p in actual.params), substitute_type(actual.result, ints)
        )
        for d, a in zip(declared.params, actual.params, strict=True):
            if self._has_unsolved(d):
                self._match(d, a, why, strict)
                continue
            inner = Matching(strict)
            inner.bind(fresh)
            inner.ints.update(self.ints)
            inner.match(a, self.solve(d), why)
            inner.finish()
            self.ints.update((s, e) for s, e in inner.ints.items() if s in ints)
            actual = FuncType(tuple(inner.solve(p) for p in actual.params), inner.solve(actual.result))
        self._match(declared.result, actual.result, why, strict)

    def _has_unsolved(self, t: Type) -> bool:
        match t:
            case TypeVar(name=name):
                return name in self._type_vars and name not in self.types
            case TupleType(fields=types) | AdtType(args=types):
                return any(map(self._has_unsolved, types))
            case FuncType(params=params, result=result):
                return any(map(self._has_unsolved, (*params, result)))
            case RefType(content=content):
                return self._has_unsolved(content)
            case _:
                return False

    def _match_int(self, declared: Int, actual: Int, why: str, ctx: Context) -> None:
        atom = declared.atom
        if isinstance(atom, Sym) and atom in self._bindable and atom not in self.ints:
            self.ints[atom] = actual
        elif declared.value is not None or not self._bindable:
            ctx.equal(declared, actual, why)
        else:
            self._later.append((declared, actual, why, ctx))

    def finish(self) -> None:
        """Relate what had to wait for other symbols; check the bounds of what was solved.

        Raises:
            CompileError: `type.dim-undetermined` where the arguments do not decide a dim.
        """
        waiting = self._later
        while waiting:
            again = [item for item in waiting if not self._resolve(*item)]
            if len(again) == len(waiting):
                declared, actual, why, ctx = again[0]
                raise ctx.fail(
                    f"found {actual} for {declared}, which does not determine its dims ({why})",
                    id="type.dim-undetermined",
                    hint="give the dim alone in another parameter, as int[n] or in a tensor",
                )
            waiting = again
        self._later = []
        for s, d in self._bindable.items():
            if s in self.ints:
                self._check_bounds(d, self.ints[s])
                if s not in self._inner and not self._inner.isdisjoint(symbols(self.ints[s])):
                    raise self.ctx.fail(
                        f"found elements of differing sizes where {s} needs one size",
                        id="type.dim-undetermined",
                        hint="declare the elements of a `some` type",
                    )

    def _resolve(self, declared: Int, actual: Int, why: str, ctx: Context) -> bool:
        declared = substitute(declared, self.ints)
        unsolved = [s for s in symbols(declared) if s in self._bindable and s not in self.ints]
        if not unsolved:
            ctx.equal(declared, actual, why)
            return True
        if len(unsolved) > 1:
            return False
        c = arith.coefficient(declared, unsolved[0])
        if c is None or not c.value:
            return False
        rest = declared - c * from_atom(unsolved[0])
        self.ints[unsolved[0]] = floordiv(actual - rest, c)
        ctx.equal(substitute(declared, self.ints), actual, why)
        return True

    def _check_bounds(self, d: DimParam, value: Int) -> None:
        if value == from_atom(d.sym):
            return
        name = d.sym.name
        known = self._known.get(value.atom) if isinstance(value.atom, Sym) else None
        if known is not None and known.high == (None if d.high is None else substitute(d.high, self.ints)):
            d = replace(d, high=None)  # the bound that it was opened with
        # The size of an element has no name where a check could stand.
        ctx = self.ctx if self._inner.isdisjoint(symbols(value)) else self.ctx.strict()
        if d.low not in (0, LEAST_INT):
            ctx.at_least(value, d.low, f"the least value of {name}")
        if d.high is not None:
            high = substitute(d.high, self.ints)
            ctx.at_least(high - value, 0, f"the greatest value of {name}")
        if d.multiple_of != 1:
            rest = arith.mod(value, arith.lit(d.multiple_of))
            ctx.equal(rest, arith.lit(0), f"multiples of {d.multiple_of} for {name}")

    def solve(self, t: Type) -> Type:
        """Return a type with everything solved so far put in."""
        return substitute_type(t, self.ints, self.types)

    def _different(self, declared: Type, actual: Type, why: str) -> Exception:
        return self.ctx.fail(
            f"found {type_text(actual)}, needed {type_text(self.solve(declared))} ({why})", id="type.mismatch"
        )


def assume_dims(facts: Facts, dims: Iterable[DimParam]) -> Facts:
    """Return the facts with the bounds of opened dims; bounds that are symbols are left out."""
    for d in dims:
        facts = facts.assume_range(d.sym, dim_range(d, facts))
    return facts


def dim_range(d: DimParam, facts: Facts) -> Range:
    """Return what the declaration of a dim says of its value."""
    low = None if d.low == LEAST_INT else d.low
    high = None if d.high is None else facts.range_of(d.high).high
    return Range(low, high, d.multiple_of, 0)


def _accepts_unknown(declared: Type, actual: Type) -> bool:
    """Whether a shape with unknown values meets a declaration that asks nothing of them."""
    return (
        isinstance(declared, ShapeType)
        and isinstance(actual, ShapeType)
        and len(declared.values) == len(actual.values)
        and all(d is None for d, a in zip(declared.values, actual.values, strict=True) if a is None)
    )


def conform(declared: Type, actual: Type, ctx: Context, why: str) -> None:
    """Require that a value of type `actual` may stand where `declared` is declared."""
    if declared is actual or declared == actual:
        return
    matching = Matching(ctx)
    matching.match(declared, actual, why)
    matching.finish()


def conforms(declared: Type, actual: Type) -> bool:
    """Whether a value of type `actual` may provably stand where `declared` is declared."""
    try:
        conform(declared, actual, StrictContext(), "")
    except CompileError:
        return False
    return True


def join(a: Type, b: Type, ctx: TypeContext, why: str) -> Type:
    """Return the least general type that both may stand for.

    `Tensor[n + 1]` and `Tensor[n]` give `some k. Tensor[k]`.

    Raises:
        CompileError: `type.branches-differ` where there is none.
    """
    if a is b or same_type(a, b):
        return a
    open_a, _ = open_exists(a)
    open_b, _ = open_exists(b)
    joining = _Join(ctx, why)
    return pack(joining.join(open_a, open_b), joining.dims.values())


class _Join:
    """Anti-unification of dims: equal pairs that differ become one fresh symbol."""

    def __init__(self, ctx: TypeContext, why: str) -> None:
        self.ctx = ctx
        self.why = why
        self.dims: dict[tuple[Int, Int], DimParam] = {}

    def join(self, a: Type, b: Type) -> Type:
        match a, b:
            case (UnknownType(), _) | (_, UnknownType()):
                return UNKNOWN
            case TensorType(), TensorType() if a.dtype == b.dtype and len(a.shape) == len(b.shape):
                pairs = zip(a.shape, b.shape, strict=True)
                return TensorType(tuple(self._int(x, y, 0) for x, y in pairs), a.dtype)
            case IntType(value=Int() as x), IntType(value=Int() as y):
                return IntType(self._int(x, y, LEAST_INT))
            case ShapeType(values=xs), ShapeType(values=ys) if len(xs) == len(ys):
                pairs = zip(xs, ys, strict=True)
                return ShapeType(
                    tuple(None if x is None or y is None else self._int(x, y, LEAST_INT) for x, y in pairs)
                )
            case TupleType(fields=xs), TupleType(fields=ys) if len(xs) == len(ys):
                return TupleType(tuple(self.join(x, y) for x, y in zip(xs, ys, strict=True)))
            case AdtType(), AdtType() if a.name == b.name:
                pairs = zip(a.args, b.args, strict=True)
                return AdtType(a.name, tuple(join(x, y, self.ctx, self.why) for x, y in pairs))
            case _:
                if same_type(a, b):
                    return a
                raise self.ctx.fail(
                    f"found {type_text(a)} and {type_text(b)}, needed one type ({self.why})",
                    id="type.branches-differ",
                )

    def _int(self, x: Int, y: Int, low: int) -> Int:
        if x == y or self.ctx.known_equal(x, y):
            return x
        found = self.dims.get((x, y))
        if found is None:
            found = self._fresh(x, y, low)
            self.dims[x, y] = found
        elif low == 0 and found.low == LEAST_INT:
            found = DimParam(found.sym, 0, found.high, found.multiple_of, found.typical)
            self.dims[x, y] = found
        return from_atom(found.sym)

    def _fresh(self, x: Int, y: Int, low: int) -> DimParam:
        sym = self.ctx.fresh_dim(_name(x, y))
        if low == 0 and x.value is not None and y.value is not None:
            return DimParam(sym, min(x.value, y.value), arith.lit(max(x.value, y.value)))
        return DimParam(sym, low)


def _name(x: Int, y: Int) -> str:
    for e in (x, y):
        found = symbols(e)
        if found:
            return found[0].name
    return "k"


def instantiate(
    function: FuncType, args: tuple[Type, ...], ctx: Context
) -> tuple[Type, tuple[DimParam, ...]]:
    """Return the result type of a call, and the symbols opened for arguments of `some` type.

    Raises:
        CompileError: `type.arity`, or what `conform` raises.
    """
    if len(args) != len(function.params):
        raise ctx.fail(f"found {len(args)} arguments, needed {len(function.params)}", id="type.arity")
    if not function.dims and not function.type_vars and function.params == args:
        return function.result, ()
    params, result, dims = function.params, function.result, function.dims
    if dims:  # renamed: the arguments of a recursive call mention the very same symbols
        dims = rename_dims(dims)
        ints = {d.sym: from_atom(f.sym) for d, f in zip(function.dims, dims, strict=True)}
        params = tuple(substitute_type(p, ints) for p in params)
        result = substitute_type(result, ints)
    matching = Matching(ctx)
    matching.bind(dims, function.type_vars)
    numbered = list(enumerate(zip(params, args, strict=True), 1))
    # Functions last: theirs must agree with the dims that the other arguments decide.
    numbered.sort(key=lambda item: isinstance(item[1][0], FuncType))
    for i, (declared, actual) in numbered:
        matching.match(declared, actual, f"argument {i}")
    matching.finish()
    for v in function.type_vars:
        if v.name not in matching.types:
            raise ctx.fail(
                f"found arguments that do not determine the type argument '{v.name}",
                id="type.undetermined-argument",
                hint="give it: Nil[Tensor[4, f32]]()",
            )
    return matching.solve(result), tuple(matching.opened)
