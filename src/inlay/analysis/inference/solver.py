"""Unknown types and dims, and what makes them known: unification with provenance.

**Metas.** An unknown type is a `TypeVar` whose name begins with `?`; an unknown dim is a symbol that
the solver made. Both are solved at most once, and the reason is kept: a span, and what asked there.
The explanation of a conflict follows these reasons back to both ends of the chain.

**Scopes.** Every symbol of the program is introduced where it is bound, and a clock ticks. A meta
may be solved only with symbols that are older than itself: younger ones are not in scope where it
stands. A type that mentions younger ones is packed (`some k. T`) on the way; a dim is left unsolved,
and the relation is checked when the program runs.

**Types are unified, dims are asked.** Two types must have one structure, or it is an error. Two
dims that differ may still be equal when the program runs: they are solved if one of them has a meta,
refuted if that can be proved, and else left to the check that `ir.make` inserts.

Sources: Damas, Milner, "Principal type-schemes for functional programs", 1982; Remy, "Extension of
ML type system with a sorted equational theory on types", 1992, for levels (our scopes).
"""

from __future__ import annotations

import itertools
import string
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass, replace
from types import MappingProxyType

from inlay.analysis.inference.words import labeled, text
from inlay.arith import expr as arith
from inlay.arith.bounds import Range
from inlay.arith.expr import Int, Sym, from_atom, lit
from inlay.arith.solve import Facts, solve_for
from inlay.base.diagnostics import CompileError, InlayError, Label, error
from inlay.base.span import Span
from inlay.ir.context import Context, StrictContext, simpler
from inlay.ir.dims import LEAST_INT, free_symbols, substitute_type
from inlay.ir.existentials import open_exists, pack
from inlay.ir.types import (
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

_MOST_LABELS = 6


@dataclass(frozen=True, slots=True)
class Reason:
    """Why something was required: where, and in words that follow "because of"."""

    span: Span
    text: str


@dataclass(slots=True)
class Meta:
    """An unknown.

    Attributes:
        scope: the clock when it was made; lowered when an older meta is solved with it.
        origin: where it stands, and for what: `the type of x`.
        low: least value, of a dim.
    """

    scope: int
    origin: Reason
    low: int = 0


def _letters(reserved: frozenset[str]) -> Iterator[str]:
    """Yield names for type variables: a, b, ..., z, a1, b1, ..."""
    for round_ in itertools.count():
        for letter in string.ascii_lowercase:
            name = f"{letter}{round_ or ''}"
            if name not in reserved:
                yield name


def is_meta(t: Type) -> bool:
    """Whether a type is an unknown of the solver."""
    return isinstance(t, TypeVar) and t.name[0] == "?"


class Solver:
    """The state of unification.

    Attributes:
        facts: what is known of rigid symbols; grows as they are introduced.
        on_solved: called with the name of each type meta that was solved.

    Args:
        reserved: names of type variables that the program declares.
    """

    def __init__(self, reserved: Iterable[str] = ()) -> None:
        self.on_solved: Callable[[str], None] = lambda _: None
        self._letters = _letters(frozenset(reserved))
        self._ranges: dict[Sym, Range] = {}
        self.facts = Facts(MappingProxyType(self._ranges))
        self._clock = 0
        self._introduced: dict[Sym, tuple[int, DimParam]] = {}
        self._type_metas: dict[str, Meta] = {}
        self._int_metas: dict[Sym, Meta] = {}
        self._types: dict[str, tuple[Type, Reason]] = {}
        self._ints: dict[Sym, tuple[Int, Reason]] = {}

    # ------------------------------------------------------------------ symbols and metas

    @property
    def clock(self) -> int:
        """The present time."""
        return self._clock

    def introduce(self, dims: Iterable[DimParam], since: int | None = None) -> None:
        """Bring rigid symbols into scope, now or as of an earlier time."""
        for d in dims:
            self._clock += 1
            self._introduced[d.sym] = (self._clock if since is None else since, d)
            if d.low or d.high is not None or d.multiple_of != 1:
                low = None if d.low == LEAST_INT else d.low
                high = None if d.high is None else self.facts.range_of(d.high).high
                self._ranges[d.sym] = Range(low, high, d.multiple_of, 0)

    def is_introduced(self, s: Sym) -> bool:
        """Whether a symbol has been bound; metas count as bound."""
        return s in self._introduced or s in self._int_metas

    def new_type(self, origin: Reason) -> TypeVar:
        """Return a new unknown type."""
        self._clock += 1
        name = f"?{len(self._type_metas)}"
        self._type_metas[name] = Meta(self._clock, origin)
        return TypeVar(name)

    def new_int(self, name: str, origin: Reason, low: int = 0) -> Int:
        """Return a new unknown dim, or any integer if `low` is `LEAST_INT`."""
        self._clock += 1
        s = arith.fresh(name)
        self._int_metas[s] = Meta(self._clock, origin, low)
        if low == LEAST_INT:
            self._ranges[s] = Range()
        return from_atom(s)

    def quantify(self, inputs: Type, since: int) -> tuple[tuple[DimParam, ...], tuple[TypeVar, ...]]:
        """Make the metas of a type that are younger than `since` rigid, to be bound by functions."""
        dims = tuple(
            DimParam(s, self._int_metas[s].low)
            for s in self.int_metas(inputs)
            if self._int_metas[s].scope > since
        )
        for d in dims:
            del self._int_metas[d.sym]
        self.introduce(dims, since)
        type_vars: list[TypeVar] = []
        for name in self.type_metas(inputs):
            meta = self._type_metas[name]
            if meta.scope > since:
                rigid = TypeVar(next(self._letters))
                type_vars.append(rigid)
                self._types[name] = (rigid, meta.origin)
        return dims, tuple(type_vars)

    def as_dim(self, s: Sym) -> DimParam:
        """Return an unsolved dim meta as the dim of a function that binds it."""
        return DimParam(s, self._int_metas[s].low)

    # ------------------------------------------------------------------ looking through solutions

    def find(self, t: Type) -> Type:
        """Return what a type is known to be, at its head."""
        while isinstance(t, TypeVar):
            solved = self._types.get(t.name)
            if solved is None:
                return t
            t = solved[0]
        return t

    def zonk(self, t: Type) -> Type:
        """Return a type with all solutions put in."""
        if not self._types and not self._ints:
            return t
        match t:
            case TensorType(shape=shape, dtype=dtype):
                dims = tuple([self.normal(d) for d in shape])
                same = all(a is b for a, b in zip(dims, shape, strict=True))
                return t if same else TensorType(dims, dtype)
            case IntType(value=value):
                return t if value is None else IntType(self.normal(value))
            case ShapeType(values=values):
                return ShapeType(tuple([None if v is None else self.normal(v) for v in values]))
            case TypeVar():
                found = self.find(t)
                return found if isinstance(found, TypeVar) else self.zonk(found)
            case TupleType(fields=fields):
                return TupleType(tuple(map(self.zonk, fields)))
            case AdtType(name=name, args=args):
                return AdtType(name, tuple(map(self.zonk, args))) if args else t
            case RefType(content=content):
                return RefType(self.zonk(content))
            case FuncType(params=params, result=result):
                return replace(t, params=tuple(map(self.zonk, params)), result=self.zonk(result))
            case ExistsType(dims=dims, body=body):
                return ExistsType(dims, self.zonk(body))
            case _:
                return t

    def normal(self, e: Int) -> Int:
        """Return an integer with all solutions put in."""
        ints = self._ints
        if not ints or e.value is not None:
            return e
        atom = e.atom
        if isinstance(atom, Sym):
            return e if atom not in ints else self._value(atom) or e
        if not any(s in ints for s in arith.symbols(e)):
            return e
        return arith.rebuild(e, self._value)

    def _value(self, s: Sym) -> Int | None:
        chain: list[Sym] = []
        result: Int | None = None
        while (solved := self._ints.get(s)) is not None:
            result = solved[0]
            chain.append(s)
            atom = result.atom
            if not isinstance(atom, Sym):
                result = self.normal(result)
                break
            s = atom
        for link in chain:  # so that the next walk along the chain is short
            assert result is not None
            self._ints[link] = (result, self._ints[link][1])
        return result

    def type_metas(self, t: Type) -> tuple[str, ...]:
        """Return the names of the unsolved type metas in a type, in order of appearance."""
        found: dict[str, None] = {}
        stack = [t]
        while stack:
            match self.find(stack.pop()):
                case TypeVar(name=name) if name[0] == "?":
                    found[name] = None
                case TupleType(fields=types) | AdtType(args=types):
                    stack.extend(reversed(types))
                case FuncType(params=params, result=result):
                    stack.extend((result, *reversed(params)))
                case RefType(content=inner) | ExistsType(body=inner):
                    stack.append(inner)
                case _:
                    pass
        return tuple(found)

    def int_metas(self, t: Type) -> tuple[Sym, ...]:
        """Return the unsolved dim metas in a type, in order of appearance."""
        if not self._int_metas:
            return ()
        if isinstance(t, TensorType) and all(d.value is not None for d in t.shape):
            return ()
        return tuple([s for s in free_symbols(self.zonk(t)) if s in self._int_metas])

    # ------------------------------------------------------------------ solving

    def solve_equal(self, a: Int, b: Int, reason: Reason) -> bool:
        """Make two integers equal by solving a meta in one of them; whether that was possible."""
        if not self._int_metas:
            return False
        a, b = self.normal(a), self.normal(b)
        left, right = self._metas_of(a), self._metas_of(b)
        difference = a - b
        for s in sorted(left ^ right, key=lambda s: -s.uid):  # not n == 2*n, which only 0 solves
            value = solve_for(difference, s)
            if value is not None and self._may_be(s, value):
                scope = self._int_metas[s].scope
                for other in arith.symbols(value):
                    if other in self._int_metas:
                        meta = self._int_metas[other]
                        meta.scope = min(meta.scope, scope)
                        meta.low = max(meta.low, self._int_metas[s].low)
                self._ints[s] = (value, reason)
                return True
        return False

    def _metas_of(self, e: Int) -> set[Sym]:
        return {s for s in arith.symbols(e) if s in self._int_metas}

    def default_ints(self, t: Type, keep: Container[Sym]) -> None:
        """Give 0 to dims that nothing determines and nobody will: of an empty list, for example."""
        for s in self.int_metas(t):
            if s not in keep:
                self._ints[s] = (lit(max(0, self._int_metas[s].low)), self._int_metas[s].origin)

    def own_types(self, t: Type, since: int) -> tuple[str, ...]:
        """Return the unsolved type metas of a type that are younger than a time."""
        return tuple([m for m in self.type_metas(t) if self._type_metas[m].scope > since])

    def own_ints(self, t: Type, since: int) -> tuple[Sym, ...]:
        """Return the unsolved dim metas of a type that are younger than a time."""
        return tuple([s for s in self.int_metas(t) if self._int_metas[s].scope > since])

    def _may_be(self, s: Sym, value: Int) -> bool:
        meta = self._int_metas[s]
        if value.value is not None:
            return value.value >= meta.low
        return all(
            other in self._int_metas or self._time(other) <= meta.scope for other in arith.symbols(value)
        )

    def _time(self, s: Sym) -> int:
        found = self._introduced.get(s)
        return self._clock + 1 if found is None else found[0]

    def bind(self, meta: TypeVar, t: Type, reason: Reason) -> None:
        """Solve a type meta.

        Raises:
            CompileError: `type.cyclic` where the type contains the meta.
        """
        t = self.zonk(t)
        if t == meta:
            return
        scope = self._type_metas[meta.name].scope
        for name in self.type_metas(t):
            if name == meta.name:
                raise error(
                    "type.cyclic",
                    f"found a type that contains itself: {text(meta)} = {text(t)}",
                    span=reason.span,
                    hint="wrap the value in a data type",
                )
            other = self._type_metas[name]
            other.scope = min(other.scope, scope)
        young: list[DimParam] = []
        for s in free_symbols(t):
            if s in self._int_metas:
                self._int_metas[s].scope = min(self._int_metas[s].scope, scope)
            elif s in self._introduced and self._introduced[s][0] > scope:
                young.append(self._introduced[s][1])
        self._types[meta.name] = (pack(t, young), reason)
        self.on_solved(meta.name)

    def unify(self, needed: Type, found: Type, reason: Reason) -> None:
        """Require two types to be one, up to dims that are checked when the program runs.

        Raises:
            CompileError: `type.mismatch`, `type.dim-mismatch`, `type.cyclic`.
        """
        needed, found = self.find(needed), self.find(found)
        if needed is found or isinstance(needed, UnknownType) or isinstance(found, UnknownType):
            return
        match needed, found:
            case TypeVar(), _ if is_meta(needed):
                self.bind(needed, found, reason)
            case _, TypeVar() if is_meta(found):
                self.bind(found, needed, reason)
            case ExistsType(), _:
                self.unify(self._witnessed(needed, reason), found, reason)
            case _, ExistsType():
                found, dims = open_exists(found)
                self.introduce(dims)
                self.unify(needed, found, reason)
            case (TensorType(shape=a, dtype=da), TensorType(shape=b, dtype=db)) if da == db and len(a) == len(
                b
            ):
                for x, y in zip(a, b, strict=True):
                    self._unify_ints(x, y, reason)
            case IntType(value=x), IntType(value=y):
                if x is not None and y is not None:
                    self._unify_ints(x, y, reason)
            case ShapeType(values=a), ShapeType(values=b) if len(a) == len(b):
                for x, y in zip(a, b, strict=True):
                    if x is not None and y is not None:
                        self._unify_ints(x, y, reason)
            case (TupleType(fields=a), TupleType(fields=b)) if len(a) == len(b):
                self._unify_all(a, b, reason)
            case AdtType(args=a), AdtType(args=b) if needed.name == found.name:
                self._unify_all(a, b, reason)
            case RefType(content=a), RefType(content=b):
                self.unify(a, b, reason)
            case FuncType(), FuncType() if len(needed.params) == len(found.params):
                found, _ = self.instance(found, reason)
                self._unify_all(found.params, needed.params, reason)
                self.unify(needed.result, found.result, reason)
            case _:
                if needed != found:
                    raise self._mismatch(needed, found, reason)

    def _unify_all(self, a: tuple[Type, ...], b: tuple[Type, ...], reason: Reason) -> None:
        for x, y in zip(a, b, strict=True):
            self.unify(x, y, reason)

    def _unify_ints(self, a: Int, b: Int, reason: Reason) -> None:
        a, b = self.normal(a), self.normal(b)
        shared = self._metas_of(a) & self._metas_of(b)
        if a != b and shared:
            s = min(shared, key=lambda s: s.uid)
            raise labeled(
                error(
                    "type.polymorphic-recursion",
                    f"found {b} for {a}, needed one value of {s}, as the parameter is not annotated",
                    span=reason.span,
                    hint=f"name a dim that each call chooses, fn<{s}>(...: Tensor[{s}, f32]), and "
                    "annotate the result",
                ),
                self.explain(a, b),
            )
        Infer(self, "", reason.span).equal(a, b, reason.text)

    def _witnessed(self, t: ExistsType, reason: Reason) -> Type:
        ints = {d.sym: self.new_int(d.sym.name, reason, d.low) for d in t.dims}
        return substitute_type(t.body, ints)

    def instance(self, f: FuncType, reason: Reason) -> tuple[FuncType, dict[Sym, Int]]:
        """Return a function type with metas for its dims and type variables, and those of dims."""
        if not f.dims and not f.type_vars:
            return f, {}
        f = self.zonk(f)  # type: ignore[assignment]
        ints = {d.sym: self.new_int(d.sym.name, reason, d.low) for d in f.dims}
        types = {v.name: self.new_type(reason) for v in f.type_vars}
        params = tuple([substitute_type(p, ints, types) for p in f.params])
        return FuncType(params, substitute_type(f.result, ints, types)), ints

    # ------------------------------------------------------------------ skeletons

    def skeleton(self, t: Type, name: str, span: Span, *, varying: bool) -> Type:
        """Return a type of the same rank and element types whose dims are unknown.

        It is what a call says about an unannotated parameter of a function that is polymorphic in
        its dims. With `varying`, as in functions that call themselves, an `int` has any value.
        """
        origin = Reason(span, f"the type of {name}")
        count = iter(range(1 << 30))

        def fresh(low: int) -> Int:
            return self.new_int(f"{name}{next(count)}", origin, low)

        def walk(t: Type, *, inside: bool) -> Type:
            match self.find(t):
                case TypeVar() as unknown if is_meta(unknown):
                    return self.new_type(origin)
                case TensorType(shape=shape, dtype=dtype):
                    return TensorType(tuple([fresh(0) for _ in shape]), dtype)
                case IntType():
                    return IntType(None if varying else fresh(LEAST_INT))
                case ShapeType(values=values):
                    return ShapeType(tuple([None if varying else fresh(LEAST_INT) for _ in values]))
                case TupleType(fields=fields):
                    return TupleType(tuple([walk(f, inside=inside) for f in fields]))
                case AdtType(name=name, args=args):
                    return AdtType(name, tuple([walk(a, inside=True) for a in args]))
                case RefType(content=content):
                    return RefType(walk(content, inside=True))
                case FuncType(params=params, result=result, dims=(), type_vars=()):
                    inner = tuple([walk(p, inside=True) for p in params])
                    return FuncType(inner, walk(result, inside=True))
                case ExistsType(body=body) if not inside:
                    return walk(body, inside=False)
                case other:
                    return other

        return walk(t, inside=False)

    # ------------------------------------------------------------------ explanations

    def explain(self, a: Int, b: Int) -> tuple[Label, ...]:
        """Return why two integers are what they are: both chains, nearest reason first."""
        labels: dict[Label, None] = {}
        for e in (a, b):
            seen: set[Sym] = set()
            pending = list(arith.symbols(e))
            while pending:
                s = pending.pop(0)
                if s in seen:
                    continue
                seen.add(s)
                if s in self._ints:
                    value, reason = self._ints[s]
                    message = f"{s} is {self.normal(from_atom(s))} because of {reason.text} here"
                    if reason.span:
                        labels[Label(reason.span, message)] = None
                    pending.extend(arith.symbols(value))
                elif s in self._int_metas and self._int_metas[s].origin.span:
                    origin = self._int_metas[s].origin
                    labels[Label(origin.span, f"{s} is in {origin.text}")] = None
        return tuple(labels)[:_MOST_LABELS]

    def explain_type(self, t: Type) -> tuple[Label, ...]:
        """Return why an unknown type, and what is in it, is what it is."""
        labels: list[Label] = []
        while isinstance(t, TypeVar) and t.name in self._types:
            origin = self._type_metas[t.name].origin
            t, reason = self._types[t.name]
            if reason.span:
                message = f"{origin.text} is {text(self.zonk(t))} because of {reason.text} here"
                labels.append(Label(reason.span, message))
        for s in free_symbols(t):
            if s in self._ints:
                labels += self.explain(from_atom(s), from_atom(s))
        return tuple(labels[:_MOST_LABELS])

    def _mismatch(self, needed: Type, found: Type, reason: Reason) -> InlayError:
        needed, found = self.zonk(needed), self.zonk(found)
        return error(
            "type.mismatch", f"found {text(found)}, needed {text(needed)} ({reason.text})", span=reason.span
        )


class Infer(Context):
    """The context of inference: what is asked of dims is solved where a meta allows it."""

    __slots__ = ("solver",)

    def __init__(self, solver: Solver, what: str, span: Span) -> None:
        super().__init__(what, span, solver.facts)
        self.solver = solver

    def equal(self, a: Int, b: Int, why: str) -> Int:
        """Solve, prove, record or refute `a == b`; return the simpler of the two."""
        x, y = self.solver.normal(arith.to_int(a)), self.solver.normal(arith.to_int(b))
        if x == y:
            return x
        reason = Reason(self.span, f"{why} of {self.what}" if self.what else why)
        if self.solver.solve_equal(x, y, reason):
            return simpler(self.solver.normal(x), self.solver.normal(y))
        try:
            return super().equal(x, y, why)
        except CompileError as failure:
            raise labeled(failure, self.solver.explain(a, b)) from None

    def known_equal(self, a: Int, b: Int) -> bool:
        """Whether `a == b` is proved; solves nothing."""
        return super().known_equal(self.solver.normal(a), self.solver.normal(b))

    def at_least(self, a: Int, low: int, why: str) -> None:
        """Refute `a >= low` if that is possible; whoever makes the node asks again."""
        super().at_least(self.solver.normal(arith.to_int(a)), low, why)

    def strict(self) -> Context:
        """Return a context that solves, and refuses what it can neither solve nor prove."""
        return _StrictInfer(self.solver, self.what, self.span)


class _StrictInfer(StrictContext):
    """As `Infer`, where no check can run."""

    __slots__ = ("solver",)

    def __init__(self, solver: Solver, what: str, span: Span) -> None:
        super().__init__(what, span, solver.facts)
        self.solver = solver

    def equal(self, a: Int, b: Int, why: str) -> Int:
        x, y = self.solver.normal(a), self.solver.normal(b)
        if x == y or self.solver.solve_equal(x, y, Reason(self.span, why)):
            return self.solver.normal(x)
        return super().equal(x, y, why)
