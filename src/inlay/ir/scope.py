"""A scope of lets under construction: names, branches, functions.

`emit` makes a call, binds it and returns the variable; what is not determined by the inputs gets a
symbol there, so `b.emit(TO_CONTROL, (t,))` is an `int[c]` whose `c` can be a dim from then on.
Branches and bodies are callbacks that get a scope of their own and return one value or several.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Self

from inlay.arith.bounds import Range
from inlay.arith.expr import Sym
from inlay.arith.solve import Facts
from inlay.base.span import NO_SPAN, Span
from inlay.ir import make
from inlay.ir.conform import dim_range
from inlay.ir.context import Known
from inlay.ir.dims import substitute_type
from inlay.ir.existentials import open_exists
from inlay.ir.expr import Call, Const, ConstructorRef, Expr, Function, GlobalVar, OpRef, Pattern, Var
from inlay.ir.module import Adt
from inlay.ir.op import Op
from inlay.ir.place import Place
from inlay.ir.types import AdtType, DimParam, FuncType, TupleType, Type

Values = Expr | Sequence[Expr]
ATOMS: tuple[type, ...] = (Var, Const, GlobalVar, OpRef, ConstructorRef)


class LetBuilder:
    """Lets under construction.

    Args:
        parent: the scope around it; use `scope()`.
    """

    def __init__(self, parent: LetBuilder | None = None) -> None:
        self._bindings: list[tuple[Var, Expr]] = []
        self._params: list[Var] = []
        if parent is None:
            self._ranges: dict[Sym, Range] = {}
            self._definitions: dict[object, object] = {}
        else:  # symbols and variables are unique, so all scopes share one table
            self._ranges = parent._ranges
            self._definitions = parent._definitions
        self.known = Known(Facts(MappingProxyType(self._ranges)), self._definitions.get)
        self.span: Span = NO_SPAN if parent is None else parent.span
        """The span of what is built next, where no other is given."""

    def scope(self) -> Self:
        """Return a new scope inside this one: a branch or a body."""
        return type(self)(self)

    # ------------------------------------------------------------------ names

    def declare(self, dims: Sequence[DimParam]) -> None:
        """Take note of what is known of symbols."""
        for d in dims:
            self._ranges[d.sym] = dim_range(d, self.known.facts)

    def param(self, name: str, type: Type, span: Span | None = None) -> Var:
        """Return a new parameter of the function this scope is the body of."""
        v = Var(name, type, span or self.span)
        self._params.append(v)
        return v

    def bind(
        self, value: Expr, name: str = "t", *, span: Span | None = None, declared: Type | None = None
    ) -> Expr:
        """Return a variable for the value, with names for what is unknown in its type.

        Variables and constants stand for themselves.

        Args:
            value: what is bound.
            name: of the variable.
            span: where the variable stands.
            declared: a type that says less than that of the value: `let v: some k. Tensor[k] = ...`.
        """
        if isinstance(value, ATOMS):
            return value
        type, dims = open_exists(value.type if declared is None else declared, name)
        self.declare(dims)
        v = Var(name, type, span or value.span or self.span, value.place)
        self._bindings.append((v, value))
        self._definitions[v] = value
        return v

    def bind_recursive(self, name: Var, function: Function) -> None:
        """Bind a function to the variable that its own body calls."""
        self._bindings.append((name, function))

    # ------------------------------------------------------------------ values

    def emit(
        self,
        callee: Op | Expr,
        args: Sequence[Expr],
        attrs: object = None,
        *,
        name: str = "",
        span: Span | None = None,
        place: Place | None = None,
    ) -> Expr:
        """Make a call, bind it, and return its variable. Operands that are no atoms are bound."""
        span = span or self.span
        atoms = [a if isinstance(a, ATOMS) else self.bind(a) for a in args]
        made = make.call(callee, atoms, attrs, span=span, place=place, known=self.known)
        assert isinstance(made, Call), "operands of open type need no let"
        checked = tuple([self._bind_checks(a) for a in made.args])
        if any(a is not b for a, b in zip(checked, made.args, strict=True)):
            made = Call(made.callee, checked, made.type, made.span, made.place)
        return self.bind(made, name or _hint(callee), span=span)

    def _bind_checks(self, e: Expr) -> Expr:
        """Bind the checks that `make.call` wrapped around an operand."""
        chain: list[Call] = []
        while isinstance(e, Call):
            chain.append(e)
            e = e.args[0]
        for c in reversed(chain):
            inner = Call(c.callee, (e, *c.args[1:]), c.type, c.span, c.place)
            e = self.bind(inner, e.name if isinstance(e, Var) else "checked")
        return e

    def tuple(self, fields: Sequence[Expr], *, name: str = "t") -> Expr:
        """Bind a tuple."""
        return self.bind(make.tuple_([self.bind(f) for f in fields], span=self.span), name)

    def project(self, value: Expr, index: int, *, name: str = "t") -> Expr:
        """Bind a field of a tuple."""
        return self.bind(make.project(self.bind(value), index, span=self.span), name)

    def unpack(self, value: Expr, names: Sequence[str] = ()) -> tuple[Expr, ...]:
        """Bind all fields of a tuple."""
        value = self.bind(value)
        assert isinstance(value.type, TupleType), "unpack takes a tuple"
        return tuple(
            self.project(value, i, name=names[i] if i < len(names) else "t")
            for i in range(len(value.type.fields))
        )

    # ------------------------------------------------------------------ ends

    def finish(self, result: Values) -> Expr:
        """Return the lets of this scope around a result; several values make a tuple."""
        body = result if not isinstance(result, Sequence) else self.tuple(result, name="result")
        if not isinstance(body, ATOMS) and self._bindings:
            body = self.bind(body, "result")
        if self._bindings and body is self._bindings[-1][0]:
            body = self._bindings.pop()[1]  # the last value needs no name
        return make.lets(self._bindings, body)

    def function(
        self,
        result: Values,
        *,
        result_type: Type | None = None,
        dims: Sequence[DimParam | Sym] | None = None,
        outer: Sequence[Sym] = (),
        span: Span | None = None,
    ) -> Function:
        """Return the function whose parameters and body are in this scope; see `make.function`."""
        body = self.finish(result)
        return make.function(
            self._params, body, result_type, dims, outer=outer, span=span or self.span, known=self.known
        )

    # ------------------------------------------------------------------ branches

    def if_(
        self,
        condition: Expr,
        then: Callable[[Self], Values],
        otherwise: Callable[[Self], Values],
        *,
        name: str = "branch",
    ) -> Expr:
        """Bind a branch; several values make a tuple (see `unpack`)."""
        arms: list[tuple[Self, Values]] = []
        for fill in (then, otherwise):
            inner = self.scope()
            arms.append((inner, fill(inner)))
        return self.join(condition, arms[0], arms[1], name=name)

    def join(
        self,
        condition: Expr,
        then: tuple[Self, Values],
        otherwise: tuple[Self, Values],
        *,
        name: str = "branch",
    ) -> Expr:
        """Bind a branch whose arms are scopes that were filled already, with their values."""
        condition = self.bind(condition, "condition")
        arms = [inner.finish(values) for inner, values in (then, otherwise)]
        made = make.if_(condition, arms[0], arms[1], span=self.span, known=self.known)
        return self.bind(made, name)

    def match(
        self, scrutinee: Expr, adt: Adt, arms: Mapping[str, Callable[..., Values]], *, name: str = "matched"
    ) -> Expr:
        """Bind a match with one arm for each constructor.

        Args:
            scrutinee: a value of the data type.
            adt: its definition.
            arms: by constructor, a function of the scope and one variable for each field.
            name: of the result.
        """
        scrutinee = self.bind(scrutinee)
        t = scrutinee.type
        assert isinstance(t, AdtType), "match takes a value of a data type"
        types = {p.name: a for p, a in zip(adt.params, t.args, strict=True)}
        made: list[tuple[Pattern, Expr]] = []
        for c in adt.constructors:
            inner = self.scope()
            fields: list[Var] = []
            for i, declared in enumerate(c.fields):
                opened, dims = open_exists(substitute_type(declared, {}, types))
                self.declare(dims)
                fields.append(Var(f"{c.name.lower()}_{i}", opened, self.span))
            body = inner.finish(arms[c.name](inner, *fields))
            made.append((make.pattern(adt, c.name, fields), body))
        return self.bind(make.match(scrutinee, made, span=self.span, known=self.known), name)

    def recursive(
        self, name: str, type: FuncType, body: Callable[[Self, Var, tuple[Var, ...]], Values]
    ) -> Var:
        """Bind a local function that may call itself.

        Args:
            name: of the function.
            type: its whole type; symbols it does not bind belong to the scope around it.
            body: gets the scope, the function and the parameters.
        """
        own = Var(name, type, self.span)
        inner = self.scope()
        self.declare(type.dims)
        params: list[Var] = []
        for i, t in enumerate(type.params):
            opened, dims = open_exists(t)
            self.declare(dims)
            params.append(Var(f"p{i}", opened, self.span))
        made = make.function(
            params,
            inner.finish(body(inner, own, tuple(params))),
            type.result,
            type.dims,
            param_types=type.params,
            type_vars=type.type_vars,
            span=self.span,
            known=self.known,
        )
        self.bind_recursive(own, made)
        return own


def _hint(callee: Op | Expr) -> str:
    match callee:
        case Op(name=name):
            return name.rsplit(".", 1)[-1]
        case OpRef(op=op):
            return op.name.rsplit(".", 1)[-1]
        case GlobalVar(name=name) | ConstructorRef(name=name):
            return name.lower()
        case _:
            return "t"
