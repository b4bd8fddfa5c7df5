"""Reads functions and expressions; see `parser` for what reading a program means."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from inlay.arith import dtype as dtypes
from inlay.arith.expr import Sym
from inlay.base.diagnostics import CompileError, error
from inlay.base.lexer import TokenKind, TokenStream
from inlay.base.span import Span
from inlay.ir import make, walk
from inlay.ir.attrs import parse_attrs
from inlay.ir.existentials import open_exists
from inlay.ir.expr import Arm, Call, Expr, Function, Var
from inlay.ir.op import Op, OpTable
from inlay.ir.pattern_parser import PatternParser
from inlay.ir.place import Place
from inlay.ir.types import UNKNOWN, DimParam, FuncType, Type, TypeVar, UnknownType


@dataclass(slots=True)
class Signature:
    """The head of a function, and what its names meant."""

    params: tuple[Var, ...]
    declared: tuple[Type, ...]
    result: Type | None
    dims: tuple[DimParam, ...]
    type_vars: tuple[TypeVar, ...]
    primitive: str | None
    place: Place | None
    span: Span
    names: list[tuple[str, Var]]
    syms: list[tuple[str, Sym]]

    @property
    def type(self) -> FuncType:
        """The type callers see; its result is unknown where none is declared."""
        result = UNKNOWN if self.result is None else self.result
        return FuncType(self.declared, result, self.dims, self.type_vars)


class ExprParser(PatternParser):
    """Reads expressions over the names in scope.

    Attributes:
        ops: the operators.
        globals: types of functions and kernels of the module.
    """

    def __init__(self, tokens: TokenStream, ops: OpTable, resources: Mapping[str, np.ndarray]) -> None:
        super().__init__(tokens, resources)
        self.ops = ops
        self.globals: dict[str, Type] = {}

    def _skip_statement(self) -> None:
        """Go on after the next `;` of this block, or before the brace that ends it."""
        t = self.t
        depth = 0
        while not t.is_end:
            if t.at("{", "(", "["):
                depth += 1
            elif t.at("}", ")", "]"):
                if depth == 0 and t.at("}"):
                    return
                depth = max(depth - 1, 0)
            elif t.at(";") and depth == 0:
                t.advance()
                return
            t.advance()

    def _signature(self) -> Signature:
        """Read from after `fn` (and a global's name) to before the body; names stay in scope."""
        t = self.t
        start = t.mark()
        scope = len(self._trail)
        primitive = t.string() if t.kind is TokenKind.STRING else None
        type_vars, dims = self._binder() if t.accept("<") else ((), ())
        params: list[Var] = []
        declared: list[Type] = []

        def param() -> None:
            at = t.mark()
            name = t.name("a parameter")
            place = self._place()
            whole, own = self._annotation()
            v = Var(name, own, t.since(at), place)
            params.append(v)
            declared.append(whole)
            self._bind(self.vars, name, v)

        t.expect("(")
        t.sequence(param, ")")
        result = self.type() if t.accept("->") else None
        place = self._place()
        return Signature(
            tuple(params),
            tuple(declared),
            result,
            dims,
            type_vars,
            primitive,
            place,
            t.since(start),
            [(v.name, v) for v in params],
            [
                (name, s)
                for table, name, _ in self._trail[scope:]
                if table is self.syms and (s := self.syms.get(name)) is not None
            ],
        )

    def _function(self, s: Signature) -> Function:
        """Read the body of a function whose signature was read."""
        outer = self._enter()
        for name, v in s.names:
            self._bind(self.vars, name, v)
        for name, sym in s.syms:
            self._bind(self.syms, name, sym)
        body = self.block()
        self._leave(outer)
        return make.function(
            s.params,
            body,
            s.result,
            s.dims,
            param_types=s.declared,
            type_vars=s.type_vars,
            span=s.span,
            place=s.place,
            primitive=s.primitive,
            known=self.known,
        )

    def whole_body(self) -> Expr:
        """Read statements and a result up to the end of the text."""
        if self.t.at("fn"):
            result = self.expr()
        else:
            result = self._statements(lambda: self.t.is_end)
        if not self.t.is_end:
            raise self.t.failure("the end of the text")
        return result

    def block(self) -> Expr:
        """Read `{ statements result }`."""
        outer = self._enter()
        with self._deeper():
            self.t.expect("{")
            result = self._statements(lambda: self.t.at("}"))
            self.t.expect("}")
        self._leave(outer)
        return result

    def _statements(self, at_end: Callable[[], bool]) -> Expr:
        t = self.t
        lets: list[tuple[Var, Expr, Place | None]] = []
        result: Expr | None = None
        while result is None:
            if at_end() or t.is_end:
                raise t.failure("a result: the last expression of a block has no ';'")
            with self._recovering(self._skip_statement) as attempt:
                result = self._statement(lets, at_end)
            if attempt.failed and at_end():
                result = Var("error", UNKNOWN)
        for v, value, place in reversed(lets):
            result = make.let(v, value, result, place=place)
        return result

    def _statement(
        self, lets: list[tuple[Var, Expr, Place | None]], at_end: Callable[[], bool]
    ) -> Expr | None:
        t = self.t
        if t.accept("let"):
            self._let(lets)
            return None
        if t.at("%") and t.ahead(2) == "=":
            t.advance()
            name = f"%{t.integer('a number')}"
            t.expect("=")
            self._bind(self.vars, name, self.expr())
            t.expect(";")
            return None
        value = self.expr()
        if t.accept(";"):  # a value that is computed for its effect
            lets.append((Var("_", open_exists(value.type)[0]), value, None))
            return None
        if not at_end():
            raise t.failure("';' or the end of the block")
        return value

    def _let(self, lets: list[tuple[Var, Expr, Place | None]]) -> None:
        t = self.t
        start = t.mark()
        name = t.name("the name of a variable")
        place = self._place()
        declared, own = self._annotation()
        span = t.since(start)
        try:
            t.expect("=")
            if t.at("fn") and isinstance(own, (FuncType, UnknownType)):
                v, value = self._let_function(name, own, span, place)
            else:
                value = self.expr()
                v = self._bound(name, declared, own, value, span, place)
                value = self._conforming(value, declared, span)
        except CompileError:
            self._bind(self.vars, name, Var(name, own, span, place))
            raise
        let_place = self._place() if t.accept("in") else None
        t.expect(";")
        self._bind(self.vars, name, v)
        self._definitions[v] = value
        lets.append((v, value, let_place))

    def _bound(
        self, name: str, declared: Type, own: Type, value: Expr, span: Span, place: Place | None
    ) -> Var:
        if isinstance(declared, UnknownType):
            own, dims = open_exists(value.type, name)
            self._declare(dims)
        return Var(name, own, span, place)

    def _conforming(self, value: Expr, declared: Type, span: Span) -> Expr:
        if isinstance(declared, UnknownType):
            return value
        return make.coerce(value, declared, "annotation", span=span, known=self.known)

    def _let_function(self, name: str, own: Type, span: Span, place: Place | None) -> tuple[Var, Expr]:
        """The function is in scope in its own body, with the type its signature says."""
        t = self.t
        start = t.mark()
        t.expect("fn")
        outer = self._enter()
        signature = self._signature()
        signature.span = t.since(start)
        self._leave(outer)
        v = Var(name, signature.type if isinstance(own, UnknownType) else own, span, place)
        signature.names.insert(0, (name, v))
        value = self._function(signature)
        no_type = signature.result is None and isinstance(own, UnknownType)
        if no_type and v not in walk.free_vars(value):
            v = Var(name, value.type, span, place)
        return v, value

    def expr(self) -> Expr:
        """Read an expression."""
        with self._deeper():
            start = self.t.mark()
            e = self._primary()
            while True:
                if self.t.at("("):
                    e = self._call(e, start)
                elif self.t.at(".") and self.t.ahead_kind() is TokenKind.INTEGER:
                    self.t.advance()
                    index = self.t.integer()
                    e = self._project(e, index, self.t.since(start))
                elif self.t.at("@"):
                    e = replace(e, place=self._place())
                else:
                    return e

    def _project(self, value: Expr, index: int, span: Span) -> Expr:
        return self._made(lambda: make.project(value, index, span=span))

    def _made(self, build: Callable[[], Expr]) -> Expr:
        """Make a node; a type error is reported and gives a value of unknown type."""
        try:
            return build()
        except CompileError as failure:
            self.findings.absorb(failure)
            return Var("error", UNKNOWN)

    def _call(self, callee: Expr, start: int) -> Expr:
        self.t.expect("(")
        args = self.t.sequence(self.expr, ")")
        span = self.t.since(start)
        return self._made(lambda: self._applied(callee, args, span))

    def _applied(self, callee: Expr, args: list[Expr], span: Span) -> Expr:
        """Make a call; one like `Nil()` has a type that inference finds."""
        try:
            return make.call(callee, args, span=span, known=self.known)
        except CompileError as failure:
            if failure.ids != ("type.undetermined-argument",):
                raise
            return Call(callee, tuple(args), UNKNOWN, span)

    def _primary(self) -> Expr:
        t = self.t
        start = t.mark()
        match t.text:
            case "if":
                return self._if()
            case "match":
                return self._match()
            case "fn":
                t.advance()
                outer = self._enter()
                signature = self._signature()
                self._leave(outer)
                return self._function(signature)
            case "(":
                return self._parenthesized()
            case "{":
                return self.block()
            case "@":
                t.advance()
                return self._global()
            case "%":
                return self._graph_name()
            case "true" | "false":
                return make.bool_const(t.advance() == "true", t.since(start))
            case "int" | "shape" if t.ahead() == "(":
                return self._control_const()
            case "ref" | "read" | "write" | "take" | "put" if t.ahead() == "(" and t.text not in self.vars:
                return self._cell_operation()
            case _ if t.text in dtypes.BY_NAME and t.ahead() in ("(", "["):
                return self._tensor_const()
            case _:
                return self._named()

    def _named(self) -> Expr:
        """A variable, an operator with its attributes, or a constructor."""
        t = self.t
        start = t.mark()
        span = t.span
        name = t.name("an expression")
        v = self.vars.get(name)
        if v is not None:
            return v
        op = self.ops.find(name)
        if op is not None:
            attrs = self._attrs(op, span)
            return make.op_ref(op, attrs, t.since(start))
        adt, constructor = self._constructor(name)
        if adt is not None:
            args = tuple(t.sequence(self.type, "]")) if t.accept("[") else None
            whole = t.since(start)
            return make.constructor_ref(adt, constructor, args, span=whole)
        functions = (f"@{function}" for function in self.globals)
        known = [*self.vars, *functions, *self.ops.names(), *self.constructors]
        self._unknown("variable or operator", name, span, known)
        if t.at("{"):
            self.t.skip_braces()
        return Var("error", UNKNOWN, span)

    def _attrs(self, op: Op, span: Span) -> object:
        t = self.t
        start = t.mark()
        try:
            if t.at("{"):
                return parse_attrs(t, op.attrs_type, op.name)
            return op.attrs_type()
        except TypeError:
            raise error("parse.bad-attribute", f"{op.name} needs attributes", span=span) from None
        except CompileError:
            t.reset(start)
            self.t.skip_braces()  # the statement around it is where reading goes on
            raise

    def _global(self) -> Expr:
        span = self.t.span
        name = self.t.name("the name of a function")
        type_ = self.globals.get(name)
        if type_ is None:
            self._unknown("function or kernel", name, span, self.globals)
            type_ = UNKNOWN
        return make.global_var(name, type_, span)

    def _graph_name(self) -> Expr:
        t = self.t
        span = t.span
        t.expect("%")
        name = f"%{t.integer('a number')}"
        found = self.vars.get(name)
        if found is None:
            self._unknown("graph binding", name, span, [v for v in self.vars if v[0] == "%"])
            return Var("error", UNKNOWN, span)
        return found

    def _parenthesized(self) -> Expr:
        t = self.t
        start = t.mark()
        t.expect("(")
        fields: list[Expr] = []
        comma = False
        while not t.accept(")"):
            fields.append(self.expr())
            comma = t.accept(",")
            if not comma:
                t.expect_either(",", ")")
                break
        if len(fields) == 1 and not comma:
            return fields[0]
        return make.tuple_(fields, span=t.since(start))

    def _cell_operation(self) -> Expr:
        t = self.t
        start = t.mark()
        word = t.advance()
        t.expect("(")
        args = t.sequence(self.expr, ")")
        span = t.since(start)
        needed = 2 if word in ("write", "put") else 1
        if len(args) != needed:
            raise error("type.arity", f"{word}: found {len(args)} arguments, needed {needed}", span=span)
        match word:
            case "ref":
                return self._made(lambda: make.ref_create(args[0], span=span))
            case "read":
                return self._made(lambda: make.ref_read(args[0], span=span))
            case "take":
                return self._made(lambda: make.ref_take(args[0], span=span))
            case "put":
                return self._made(lambda: make.ref_put(args[0], args[1], span=span, known=self.known))
            case _:
                return self._made(lambda: make.ref_write(args[0], args[1], span=span, known=self.known))

    def _if(self) -> Expr:
        t = self.t
        start = t.mark()
        heads: list[tuple[Expr, Expr]] = []
        while True:
            t.expect("if")
            t.expect("(")
            condition = self.expr()
            t.expect(")")
            heads.append((condition, self.block()))
            t.expect("else")
            if not t.at("if"):
                break
        result = self.block()
        span = t.since(start)
        for condition, then in reversed(heads):
            result = self._made(
                lambda c=condition, a=then, b=result: make.if_(c, a, b, span=span, known=self.known)
            )
        return result

    def _match(self) -> Expr:
        t = self.t
        start = t.mark()
        t.expect("match")
        scrutinee = self.expr()
        t.expect("{")

        def arm() -> Arm:
            outer = self._enter()
            pattern = self._pattern(scrutinee.type)
            t.expect("=>")
            body = self.block() if t.at("{") else self.expr()
            self._leave(outer)
            return Arm(pattern, body)

        arms = t.sequence(arm, "}")
        span = t.since(start)
        return self._made(lambda: make.match(scrutinee, arms, span=span, known=self.known))
