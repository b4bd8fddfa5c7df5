"""Reads the text form of the tensor IR. The grammar is in docs/language/tensor_ir.md.

Nodes are made by `ir.make` as they are read, so a program that says the types of its parameters is
typed when it is read, and relations that cannot be proved become checks. What has no type gets
`UNKNOWN`, and `analysis.infer_types` finds it.

Signatures of global functions are read first, so that functions may call each other. All
independent errors are reported: after an error in a statement reading goes on with the next one,
and an unknown name stands for a value of unknown type.

Graph bindings (`%1 = e;`) name a node; every use of the name is that very node.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any
from typing import TypeVar as GenericVar

import numpy as np

from inlay.arith import dtype as dtypes
from inlay.arith import expr as arith
from inlay.arith.bounds import Range
from inlay.arith.dtype import DType
from inlay.arith.expr import Int, Sym, from_atom, lit
from inlay.arith.solve import Facts
from inlay.base.diagnostics import Collector, CompileError, error, error_of
from inlay.base.lexer import TokenKind, TokenStream
from inlay.base.registry import nearest
from inlay.base.span import Source, Span
from inlay.ir import make, walk
from inlay.ir.attrs import parse_attrs
from inlay.ir.conform import dim_range
from inlay.ir.context import Known
from inlay.ir.dims import LEAST_INT, open_exists, pack
from inlay.ir.expr import (
    Arm,
    Call,
    Const,
    Expr,
    Function,
    Pattern,
    PatternConstructor,
    PatternTuple,
    PatternVar,
    PatternWildcard,
    Var,
)
from inlay.ir.kernel import Kernel
from inlay.ir.module import Adt, Constructor, EntryNames, Module
from inlay.ir.op import Op, OpTable
from inlay.ir.place import Origin, Place
from inlay.ir.types import (
    BOOL_CONTROL,
    INT_CONTROL,
    STORAGE,
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

T = GenericVar("T")
_DEEPEST = 64
"""How deep brackets may nest; the printer stays far below with graph bindings."""


def parse_module(
    text: str,
    ops: OpTable,
    *,
    name: str = "<text>",
    kernels: Mapping[str, Kernel] | None = None,
    resources: Mapping[str, np.ndarray] | None = None,
    known: Module | None = None,
) -> Module:
    """Read a module.

    Args:
        text: the program.
        ops: the operators it may use.
        name: of the text, for errors.
        kernels: kernels by digest of their bodies, which have no text form of their own here.
        resources: large constants by digest, besides those in the text.
        known: a module whose data types and functions may be used (`prelude.prelude()`); they do
            not become part of the result.

    Raises:
        CompileError: with all independent errors: `parse.*`, `name.*`, `type.*`.
    """
    tokens = TokenStream(Source(name, text))
    parser = _Parser(tokens, ops, kernels or {}, resources or {})
    if known is not None:
        parser.adopt(known)
    return parser.module()


def parse_expr(
    text: str, ops: OpTable, *, module: Module | None = None, name: str = "<text>"
) -> Expr:
    """Read one closed expression: statements and a result, or a function."""
    tokens = TokenStream(Source(name, text))
    parser = _Parser(tokens, ops, {}, {})
    if module is not None:
        parser.adopt(module)
    result = parser.whole_body()
    parser.raise_findings()
    return result


def parse_type(text: str, dims: Mapping[str, Sym] | None = None) -> Type:
    """Read a type; free symbols are given by name."""
    parser = _Parser(TokenStream(Source("<type>", text)), _NoOps(), {}, {})
    parser.syms.update(dims or {})
    result = parser.type()
    parser.raise_findings()
    return result


class _NoOps:
    def find(self, name: str) -> None:  # noqa: ARG002
        return None

    def names(self) -> tuple[str, ...]:
        return ()


@dataclass(slots=True)
class _Signature:
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
        result = UNKNOWN if self.result is None else self.result
        return FuncType(self.declared, result, self.dims, self.type_vars)


class _Parser:
    def __init__(
        self,
        tokens: TokenStream,
        ops: OpTable,
        kernels: Mapping[str, Kernel],
        resources: Mapping[str, np.ndarray],
    ) -> None:
        self.t = tokens
        self.ops = ops
        self.findings = Collector()
        self.vars: dict[str, Expr] = {}
        self.syms: dict[str, Sym] = {}
        self._trail: list[tuple[dict[str, Any], str, Any]] = []
        self.globals: dict[str, Type] = {}
        self.adts: dict[str, Adt] = {}
        self.constructors: dict[str, list[Adt]] = {}
        self.kernels: dict[str, Kernel] = {}
        self._defined: set[str] = set()
        self._adopted: set[str] = set()
        self._kernel_bodies = kernels
        self._resources: dict[str, np.ndarray | str] = dict(resources)
        self._pending_resources = True
        self._depth = 0
        ranges: dict[Sym, Range] = {}
        definitions: dict[object, object] = {}
        self._ranges, self._definitions = ranges, definitions
        self.known = Known(Facts(MappingProxyType(ranges)), definitions.get)

    def adopt(self, module: Module) -> None:
        """Make the names of a module known; the text may define them anew."""
        self.globals.update((n, f.type) for n, f in module.functions.items())
        self.globals.update((n, k.type) for n, k in module.kernels.items())
        for adt in module.adts.values():
            self._add_adt(adt)
        self._adopted.update(module.adts)

    def raise_findings(self) -> None:
        """Raise what was found, in the order of the text."""
        found = sorted(self.findings.diagnostics, key=lambda d: d.span.start)
        if self.findings.has_fatal:
            raise error_of(found)

    # ------------------------------------------------------------------ module

    def module(self) -> Module:
        bodies: list[tuple[str, _Signature, int]] = []
        entries: dict[str, EntryNames] = {}
        entry = ["main"]
        self._scan_declarations()
        while not self.t.is_end:
            with self._recovering(self._skip_item):
                self._item(bodies, entries, entry)
        functions: dict[str, Function] = {}
        for name, signature, mark in bodies:
            self.t.reset(mark)
            with self._recovering(lambda: None):
                functions[name] = self._function(signature)
        for name, span in self._entry_spans:
            if name not in functions and name not in self.globals:
                self._unknown("function", name, span, self.globals)
        self.raise_findings()
        adts = {n: a for n, a in self.adts.items() if n not in self._adopted}
        return Module(functions, adts, self.kernels, entries, entry[0])

    def _scan_declarations(self) -> None:
        """Read data types first, and the resources: both may stand anywhere."""
        self._entry_spans: list[tuple[str, Span]] = []
        start = self.t.mark()
        heads = self.t.outside_braces(frozenset({"data", "resources"}))
        for mark in heads:  # first the names, so that types may refer to each other
            self.t.reset(mark)
            if self.t.accept("data") and self.t.kind is TokenKind.NAME:
                span = self.t.span
                name = self.t.name()
                if name in self._adopted:
                    self._forget_adt(name)
                elif name in self.adts:
                    self.findings.error(
                        "name.duplicate", f"found a second data type {name}", span=span
                    )
                self.adts[name] = Adt(name, (), ())
        for mark in heads:
            self.t.reset(mark)
            with self._recovering(lambda: None):
                if self.t.accept("data"):
                    self._data()
                else:
                    self.t.advance()
                    self._resource_section()
        self.t.reset(start)

    def _item(
        self,
        bodies: list[tuple[str, _Signature, int]],
        entries: dict[str, EntryNames],
        entry: list[str],
    ) -> None:
        t = self.t
        if t.at("data", "resources"):
            self._skip_to_brace()
            self.t.skip_braces()
        elif t.accept("fn"):
            span = t.span
            name = t.name("the name of a function")
            if name in self._defined:
                self.findings.error("name.duplicate", f"found a second {name}", span=span)
            self._defined.add(name)
            outer = self._enter()
            signature = self._signature()
            self._leave(outer)
            self.globals[name] = signature.type
            bodies.append((name, signature, t.mark()))
            self.t.skip_braces()
        elif t.accept("entry"):
            self._entry(entries, entry)
        elif t.accept("kernel"):
            self._kernel()
        else:
            raise t.failure("'fn', 'data', 'kernel', 'entry' or 'resources'")

    def _entry(self, entries: dict[str, EntryNames], entry: list[str]) -> None:
        t = self.t
        self._entry_spans.append((t.text, t.span))
        name = t.name("the name of a function")
        if not t.at("("):
            entry[0] = name
        else:
            t.advance()
            inputs = tuple(t.sequence(t.string, ")"))
            t.expect("->")
            t.expect("(")
            entries[name] = EntryNames(inputs, tuple(t.sequence(t.string, ")")))
        t.expect(";")

    def _kernel(self) -> None:
        t = self.t
        name = t.name("the name of a kernel")
        t.expect(":")
        type_ = self.type()
        t.expect("=")
        t.string("the kind of the body")
        span = t.span
        digest = t.string("the digest of the body")
        t.expect(";")
        found = self._kernel_bodies.get(digest)
        if found is None:
            self.findings.error(
                "name.unknown",
                f"found kernel {name} with a body {digest} that was not given",
                span=span,
                hint="pass the kernels beside the text",
            )
        else:
            self.kernels[name] = replace(found, name=name)
        self.globals[name] = type_

    def _data(self) -> None:
        t = self.t
        name = t.name("the name of a data type")
        params: list[TypeVar] = []
        if t.accept("<"):
            params = t.sequence(self._type_var, ">")
        t.expect("{")
        built: list[Constructor] = []

        def constructor() -> None:
            c = t.name("a constructor")
            fields = tuple(t.sequence(self.type, ")")) if t.accept("(") else ()
            built.append(Constructor(c, len(built), fields))

        self.adts[name] = Adt(name, tuple(params), ())
        t.sequence(constructor, "}")
        self._add_adt(Adt(name, tuple(params), tuple(built)))

    def _add_adt(self, adt: Adt) -> None:
        self.adts[adt.name] = adt
        for c in adt.constructors:
            self.constructors.setdefault(c.name, []).append(adt)

    def _forget_adt(self, name: str) -> None:
        self._adopted.discard(name)
        del self.adts[name]
        for constructor, owners in list(self.constructors.items()):
            kept = [a for a in owners if a.name != name]
            self.constructors[constructor] = kept

    def _resource_section(self) -> None:
        t = self.t
        t.expect("{")
        while not t.accept("}"):
            digest = t.string("a digest")
            t.expect(":")
            self._resources.setdefault(digest, t.string("the content in base64"))
            t.expect(";")

    # ------------------------------------------------------------------ scopes

    def _enter(self) -> int:
        """Begin a scope; what is bound in it is undone by `_leave`."""
        return len(self._trail)

    def _leave(self, scope: int) -> None:
        trail = self._trail
        while len(trail) > scope:
            table, name, before = trail.pop()
            if before is None:
                del table[name]
            else:
                table[name] = before

    def _bind(self, table: dict[str, T], name: str, value: T) -> None:
        self._trail.append((table, name, table.get(name)))
        table[name] = value

    # ------------------------------------------------------------------ recovery

    def _recovering(self, skip: Callable[[], None]) -> _Recovery:
        return _Recovery(self, skip)

    def _skip_item(self) -> None:
        """Go on at the next item: a keyword of items outside of all braces."""
        t = self.t
        depth = 0
        moved = False
        while not t.is_end:
            if depth <= 0 and moved and t.at("fn", "data", "kernel", "entry", "resources"):
                return
            depth += t.at("{") - t.at("}")
            moved = True
            t.advance()

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

    def _skip_brackets(self) -> None:
        depth = 0
        while not self.t.is_end and (depth or self.t.at("[")):
            depth += self.t.at("[") - self.t.at("]")
            self.t.advance()

    def _skip_to_brace(self) -> None:
        while not self.t.is_end and not self.t.at("{"):
            self.t.advance()

    def _unknown(self, kind: str, name: str, span: Span, known: Iterable[str]) -> None:
        near = nearest(name, known)
        hint = f"perhaps {' or '.join(near)}" if near else ""
        self.findings.error("name.unknown", f"found no {kind} {name}", span=span, hint=hint)

    # ------------------------------------------------------------------ functions

    def _signature(self) -> _Signature:
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
        return _Signature(
            tuple(params), tuple(declared), result, dims, type_vars, primitive, place,
            t.since(start),
            [(v.name, v) for v in params],
            [(name, s) for table, name, _ in self._trail[scope:]
             if table is self.syms and (s := self.syms.get(name)) is not None],
        )  # fmt: skip

    def _function(self, s: _Signature) -> Function:
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

    def _binder(self) -> tuple[tuple[TypeVar, ...], tuple[DimParam, ...]]:
        type_vars: list[TypeVar] = []
        dims: list[DimParam] = []

        def one() -> None:
            if self.t.at("'"):
                type_vars.append(self._type_var())
            else:
                dims.append(self._dim_param())

        self.t.sequence(one, ">")
        return tuple(type_vars), tuple(dims)

    def _type_var(self) -> TypeVar:
        self.t.expect("'")
        return TypeVar(self.t.name("the name of a type variable"))

    def _dim_param(self) -> DimParam:
        """Read `n`, `int k`, `n <= e`, `n >= 3`, `n in 1..e`, each with `step 8`, `typical 128`."""
        t = self.t
        low = LEAST_INT if t.at("int") and t.ahead_kind() is TokenKind.NAME and t.advance() else 0
        sym = arith.fresh(t.name("the name of a dim"))
        self._bind(self.syms, sym.name, sym)
        high: Int | None = None
        if t.accept("<="):
            high = self.int()
        elif t.accept(">="):
            low = t.integer()
        elif t.accept("in"):
            low = t.integer()
            t.expect("..")
            high = self.int()
        step = t.integer() if t.accept("step") else 1
        typical = t.integer() if t.accept("typical") else None
        found = DimParam(sym, low, high, step, typical)
        self._declare((found,))
        return found

    def _declare(self, dims: tuple[DimParam, ...]) -> None:
        for d in dims:
            self._ranges[d.sym] = dim_range(d, self.known.facts)

    # ------------------------------------------------------------------ types

    def _annotation(self) -> tuple[Type, Type]:
        """Read `: T`; return the declared type and that of the variable.

        `some k. T` declares itself and gives the variable `T`, with `k` in scope from here.
        """
        t = self.t
        if not t.accept(":"):
            return UNKNOWN, UNKNOWN
        if not t.at("some"):
            own = self.type()
            return own, own
        dims = self._some_dims()
        own = self.type()
        return pack(own, dims), own

    def _some_dims(self) -> tuple[DimParam, ...]:
        t = self.t
        t.expect("some")
        dims = [self._dim_param()]
        while t.accept(","):
            dims.append(self._dim_param())
        t.expect(".")
        return tuple(dims)

    def type(self) -> Type:
        """Read a type."""
        t = self.t
        with self._deeper():
            match t.text:
                case "Tensor":
                    t.advance()
                    return self._tensor_type()
                case "int":
                    t.advance()
                    if not t.accept("["):
                        return INT_CONTROL
                    value = self.int()
                    t.expect("]")
                    return IntType(value)
                case "bool":
                    t.advance()
                    return BOOL_CONTROL
                case "shape":
                    t.advance()
                    t.expect("[")
                    return ShapeType(tuple(t.sequence(self._int_or_unknown, "]")))
                case "Ref":
                    t.advance()
                    t.expect("[")
                    content = self.type()
                    t.expect("]")
                    return RefType(content)
                case "Storage":
                    t.advance()
                    return STORAGE
                case "?":
                    t.advance()
                    return UNKNOWN
                case "'":
                    return self._type_var()
                case "(":
                    return self._tuple_type()
                case "fn":
                    t.advance()
                    return self._function_type()
                case "some":
                    return self._inner_scope(self._exists_type)
                case _:
                    return self._adt_type()

    def _inner_scope(self, read: Callable[[], Type]) -> Type:
        outer = self._enter()
        try:
            return read()
        finally:
            self._leave(outer)

    def _exists_type(self) -> Type:
        dims = self._some_dims()
        return ExistsType(dims, self.type())

    def _function_type(self) -> Type:
        def read() -> Type:
            type_vars, dims = self._binder() if self.t.accept("<") else ((), ())
            self.t.expect("(")
            params = tuple(self.t.sequence(self.type, ")"))
            self.t.expect("->")
            return FuncType(params, self.type(), dims, type_vars)

        return self._inner_scope(read)

    def _tuple_type(self) -> Type:
        t = self.t
        t.expect("(")
        fields: list[Type] = []
        comma = False
        while not t.accept(")"):
            fields.append(self.type())
            comma = t.accept(",")
            if not comma:
                t.expect_either(",", ")")
                break
        return fields[0] if len(fields) == 1 and not comma else TupleType(tuple(fields))

    def _adt_type(self) -> Type:
        t = self.t
        span = t.span
        name = t.name("a type")
        adt = self.adts.get(name)
        if adt is None:
            self._unknown("type", name, span, ["Tensor", "Ref", "Storage", *self.adts])
            self._skip_brackets()
            return UNKNOWN
        args = tuple(t.sequence(self.type, "]")) if t.accept("[") else ()
        if adt.constructors and len(adt.params) != len(args):
            self.findings.error(
                "type.arity",
                f"{name}: found {len(args)} type arguments, needed {len(adt.params)}",
                span=span,
            )
            return UNKNOWN
        return AdtType(name, args)

    def _tensor_type(self) -> Type:
        t = self.t
        t.expect("[")
        dims: list[Int] = []
        while True:
            if t.text in dtypes.BY_NAME and t.ahead() == "]":
                dtype = dtypes.BY_NAME[t.advance()]
                t.expect("]")
                return TensorType(tuple(dims), dtype)
            dims.append(self.int())
            if not t.accept(","):
                raise t.failure("',' and an element type")

    def _int_or_unknown(self) -> Int | None:
        return None if self.t.accept("_") else self.int()

    # ------------------------------------------------------------------ integers

    def int(self) -> Int:
        """Read a symbolic integer: `2*n + 1`, `(n + 15) / 16`, `min(n, m)`."""
        t = self.t
        total = self._int_product()
        while t.at("+", "-"):
            if t.advance() == "+":
                total = total + self._int_product()
            else:
                total = total - self._int_product()
        return total

    def _int_product(self) -> Int:
        t = self.t
        total = self._int_atom()
        while t.at("*", "/", "%"):
            sign = t.advance()
            right = self._int_atom()
            if sign == "*":
                total = total * right
            elif right.value == 0:
                raise error("parse.bad-number", "found a division by zero", span=t.span)
            else:
                total = total // right if sign == "/" else total % right
        return total

    def _int_atom(self) -> Int:
        t = self.t
        with self._deeper():
            if t.accept("-"):
                return -self._int_atom()
            if t.accept("("):
                inner = self.int()
                t.expect(")")
                return inner
            if t.kind is TokenKind.INTEGER:
                return lit(t.integer())
            span = t.span
            name = t.name("an integer or a dim")
            if name in ("min", "max", "ceildiv") and t.accept("("):
                args = t.sequence(self.int, ")")
                match name, args:
                    case "min", [_, *_]:
                        return arith.minimum(*args)
                    case "max", [_, *_]:
                        return arith.maximum(*args)
                    case "ceildiv", [a, b]:
                        return arith.ceildiv(a, b)
                    case _:
                        raise t.failure("the operands of " + name)
            sym = self.syms.get(name)
            if sym is None:
                self._unknown("dim", name, span, self.syms)
                sym = arith.fresh(name)
                self._bind(self.syms, name, sym)
            return from_atom(sym)

    # ------------------------------------------------------------------ blocks

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

    def _let_function(
        self, name: str, own: Type, span: Span, place: Place | None
    ) -> tuple[Var, Expr]:
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

    # ------------------------------------------------------------------ expressions

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
            case "ref" | "read" | "write" if t.ahead() == "(" and t.text not in self.vars:
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
        known = [*self.vars, *self.ops.names(), *self.constructors]
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

    def _constructor(self, name: str) -> tuple[Adt | None, str]:
        found = self.constructors.get(name, [])
        if len(found) == 1:
            return found[0], name
        adt, _, constructor = name.rpartition(".")
        if adt in self.adts and any(c.name == constructor for c in self.adts[adt].constructors):
            return self.adts[adt], constructor
        return (found[0], name) if found else (None, name)

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
        needed = 2 if word == "write" else 1
        if len(args) != needed:
            raise error(
                "type.arity", f"{word}: found {len(args)} arguments, needed {needed}", span=span
            )
        match word:
            case "ref":
                return self._made(lambda: make.ref_create(args[0], span=span))
            case "read":
                return self._made(lambda: make.ref_read(args[0], span=span))
            case _:
                return self._made(
                    lambda: make.ref_write(args[0], args[1], span=span, known=self.known)
                )

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

    def _pattern(self, type_: Type) -> Pattern:
        """Read a pattern for values of a type; variables without annotation get it, opened."""
        t = self.t
        with self._deeper():
            if t.accept("_"):
                return PatternWildcard()
            if isinstance(type_, ExistsType):
                type_, dims = open_exists(type_)
                self._declare(dims)
            if t.at("("):
                return self._tuple_pattern(type_)
            start = t.mark()
            span = t.span
            name = t.name("a pattern")
            adt, constructor = self._constructor(name)
            if adt is not None and (t.at("(") or not t.at(":", "@")):
                return self._constructor_pattern(adt, constructor, type_, span)
            place = self._place()
            declared, own = self._annotation()
            if isinstance(declared, UnknownType):
                own, dims = open_exists(type_, name)
                self._declare(dims)
            v = Var(name, own, t.since(start), place)
            self._bind(self.vars, name, v)
            return PatternVar(v)

    def _constructor_pattern(self, adt: Adt, name: str, type_: Type, span: Span) -> Pattern:
        c = make.find_constructor(adt, name)
        if isinstance(type_, AdtType) and type_.name == adt.name:
            reference = make.constructor_ref(adt, name, type_.args).type
            assert isinstance(reference, FuncType)
            types = reference.params
        else:
            types = (UNKNOWN,) * len(c.fields)
        fields: list[Pattern] = []
        if self.t.accept("("):
            while not self.t.accept(")"):
                at = len(fields)
                fields.append(self._pattern(types[at] if at < len(types) else UNKNOWN))
                if not self.t.accept(","):
                    self.t.expect_either(",", ")")
                    break
        if len(fields) != len(c.fields):
            raise error(
                "type.arity",
                f"pattern {name}: found {len(fields)} fields, needed {len(c.fields)}",
                span=span,
            )
        return PatternConstructor(adt.name, name, c.tag, tuple(fields))

    def _tuple_pattern(self, type_: Type) -> Pattern:
        t = self.t
        types = type_.fields if isinstance(type_, TupleType) else ()
        fields: list[Pattern] = []
        t.expect("(")
        while not t.accept(")"):
            at = len(fields)
            fields.append(self._pattern(types[at] if at < len(types) else UNKNOWN))
            if not t.accept(","):
                t.expect_either(",", ")")
                break
        return PatternTuple(tuple(fields))

    # ------------------------------------------------------------------ constants and places

    def _control_const(self) -> Expr:
        t = self.t
        start = t.mark()
        word = t.advance()
        t.expect("(")
        if word == "int":
            value = self.int()
            t.expect(")")
            return make.int_const(value, t.since(start))
        values = t.sequence(self.int, ")")
        return make.shape_const(values, t.since(start))

    def _tensor_const(self) -> Const:
        t = self.t
        start = t.mark()
        dtype = dtypes.BY_NAME[t.advance()]
        shape: list[int] = []
        if t.accept("["):
            shape = t.sequence(lambda: t.integer("a number of elements"), "]")
        t.expect("(")
        if t.accept("#"):
            span = t.span
            digest = t.string("a digest")
            t.expect(")")
            array = self._resource(digest, dtype, shape, span)
        else:
            values = t.sequence(lambda: self._element(dtype), ")")
            array = _array(values, dtype, shape, t.since(start))
        return make.const(array, dtype, t.since(start))

    def _element(self, dtype: DType) -> object:
        t = self.t
        if dtype == dtypes.STRING:
            return t.string()
        if dtype == dtypes.BOOL and t.at("true", "false"):
            return t.advance() == "true"
        span = t.span
        value = t.number("an element")
        if dtype.is_float:
            return value
        low, high = (0, 1) if dtype == dtypes.BOOL else _integer_range(dtype)
        if not isinstance(value, int) or not low <= value <= high:
            raise error("parse.bad-number", f"found {value}, which is no {dtype} value", span=span)
        return value

    def _resource(self, digest: str, dtype: DType, shape: list[int], span: Span) -> np.ndarray:
        found = self._resources.get(digest)
        if found is None:
            raise error(
                "name.unknown",
                f"found no resource {digest}",
                span=span,
                hint="give the resources beside the text",
            )
        if isinstance(found, str):
            raw = np.frombuffer(base64.b64decode(found), dtype=dtype.numpy)
            if raw.size != math.prod(shape):
                raise error(
                    "parse.bad-number",
                    f"found {raw.size} elements in the resource, needed {math.prod(shape)}",
                    span=span,
                )
            found = self._resources[digest] = raw
        return found.reshape(shape)

    def _place(self) -> Place | None:
        return self._place_words() if self.t.accept("@") else None

    def _place_words(self) -> Place:
        t = self.t
        device = t.name("the name of a device")
        origin = Origin.USER if t.accept("!") else Origin.PLANNED
        memories = (
            tuple(t.sequence(lambda: t.name("the name of a memory"), "]"))
            if t.accept("[")
            else None
        )
        fields: tuple[Place | None, ...] = ()
        if t.accept("("):
            fields = tuple(t.sequence(lambda: None if t.accept("_") else self._place_words(), ")"))
        return Place(device, memories, origin, fields)

    def _deeper(self) -> _Depth:
        return _Depth(self)


class _Depth:
    """Counts nested brackets, so that deep text is an error and not a full stack."""

    def __init__(self, parser: _Parser) -> None:
        self._parser = parser

    def __enter__(self) -> None:
        self._parser._depth += 1
        if self._parser._depth > _DEEPEST:
            raise error(
                "parse.nesting",
                f"found more than {_DEEPEST} nested brackets",
                span=self._parser.t.span,
                hint="name inner values with let",
            )

    def __exit__(self, *_: object) -> None:
        self._parser._depth -= 1


class _Recovery:
    """Turns an error of a part into a finding, and skips to where reading can go on."""

    def __init__(self, parser: _Parser, skip: Callable[[], None]) -> None:
        self._parser = parser
        self._skip = skip
        self._depth = parser._depth
        self.failed = False

    def __enter__(self) -> _Recovery:
        return self

    def __exit__(self, _kind: object, failure: object, _trace: object) -> bool:
        if not isinstance(failure, CompileError):
            return False
        self.failed = True
        self._parser.findings.absorb(failure)
        self._parser._depth = self._depth
        self._skip()
        return True


def _integer_range(dtype: DType) -> tuple[int, int]:
    if dtype.is_signed:
        return -(1 << (dtype.bits - 1)), (1 << (dtype.bits - 1)) - 1
    return 0, (1 << dtype.bits) - 1


def _array(values: list[object], dtype: DType, shape: list[int], span: Span) -> np.ndarray:
    if len(values) != math.prod(shape):
        raise error(
            "parse.bad-number",
            f"found {len(values)} elements, needed {math.prod(shape)}",
            span=span,
        )
    with np.errstate(over="ignore"):
        return np.array(values, dtype=dtype.numpy).reshape(shape)
