"""Reads types, symbolic integers and places; what all parts of the parser share.

A parser is five classes in a row, a file each: `TypeParser` (names in scope, recovery from errors,
types), `ConstParser`, `PatternParser`, `ExprParser` (expressions, statements, functions) and
`ModuleParser`. They read one token stream with one set of scopes.

A scope is undone, not copied: each binding notes what the name meant before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import MappingProxyType
from typing import Any
from typing import TypeVar as GenericVar

from inlay.arith import dtype as dtypes
from inlay.arith import expr as arith
from inlay.arith.bounds import Range
from inlay.arith.expr import Int, Sym, from_atom, lit
from inlay.arith.solve import Facts
from inlay.base.diagnostics import Collector, CompileError, error, error_of
from inlay.base.lexer import TokenKind, TokenStream
from inlay.base.registry import did_you_mean, suggestion
from inlay.base.span import Span
from inlay.ir.conform import dim_range
from inlay.ir.context import Known
from inlay.ir.dims import LEAST_INT
from inlay.ir.existentials import pack
from inlay.ir.module import Adt
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
)

T = GenericVar("T")
_DEEPEST = 64
"""How deep brackets may nest; the printer stays far below with graph bindings."""


class TypeParser:
    """Reads types over the dims in scope.

    Attributes:
        t: the text.
        findings: errors so far.
        syms: dims in scope by name.
        adts: data types by name.
        depth: how many brackets are open.
        known: what is known of symbols, and the definitions of variables.
    """

    def __init__(self, tokens: TokenStream) -> None:
        self.t = tokens
        self.findings = Collector()
        self.syms: dict[str, Sym] = {}
        self.adts: dict[str, Adt] = {}
        self._trail: list[tuple[dict[str, Any], str, Any]] = []
        self.depth = 0
        self._ranges: dict[Sym, Range] = {}
        self._definitions: dict[object, object] = {}
        self.known = Known(Facts(MappingProxyType(self._ranges)), self._definitions.get)

    def raise_findings(self) -> None:
        """Raise what was found, in the order of the text."""
        found = sorted(self.findings.diagnostics, key=lambda d: d.span.start)
        if self.findings.has_fatal:
            raise error_of(found)

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

    def _recovering(self, skip: Callable[[], None]) -> _Recovery:
        return _Recovery(self, skip)

    def _skip_brackets(self) -> None:
        depth = 0
        while not self.t.is_end and (depth or self.t.at("[")):
            depth += self.t.at("[") - self.t.at("]")
            self.t.advance()

    def _unknown(self, kind: str, name: str, span: Span, known: Iterable[str]) -> None:
        hint = suggestion(name, known)
        self.findings.error("name.unknown", f"found no {kind} {name}", span=span, hint=hint)

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
        sym = arith.fresh(t.name("the name of a dim"), signed=low < 0)
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
                "type.arity", f"{name}: found {len(args)} type arguments, needed {len(adt.params)}", span=span
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
            if t.ahead() == "]" and dtypes.near(t.text):
                span, name = t.span, t.advance()
                t.expect("]")
                hint = did_you_mean(dtypes.near(name))
                self.findings.error("name.unknown", f"found no element type {name}", span=span, hint=hint)
                return UNKNOWN
            dims.append(self.int())
            if not t.accept(","):
                raise t.failure("',' and an element type")

    def _int_or_unknown(self) -> Int | None:
        return None if self.t.accept("_") else self.int()

    def int(self) -> Int:
        """Read a symbolic integer: `2*n + 1`, `(n + 15) / 16`, `min(n, m)`."""
        t = self.t
        start = t.mark()
        total = self._int_product()
        while t.at("+", "-"):
            if t.advance() == "+":
                total = total + self._int_product()
            else:
                total = total - self._int_product()
        for _, factor in total.terms:
            if not -(1 << 63) <= factor < 1 << 63:
                raise error(
                    "parse.bad-number",
                    f"found the number {factor}, needed one of 64 bits with a sign",
                    span=t.since(start),
                )
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

    def _place(self) -> Place | None:
        return self._place_words() if self.t.accept("@") else None

    def _place_words(self) -> Place:
        t = self.t
        name = t.name("the name of a device")
        device = "" if name == "_" else name
        origin = Origin.USER if t.accept("!") else Origin.PLANNED
        region = t.name("the name of a region") if t.accept("#") else ""
        memories = tuple(sorted(t.sequence(self._memory, "]"))) if t.accept("[") else None
        fields: tuple[Place | None, ...] = ()
        if t.accept("("):
            fields = tuple(t.sequence(self._part_place, ")"))
        return Place(device, memories, origin, fields, region)

    def _memory(self) -> str:
        """Read the name of a memory, which may have dots: `npu0.spad`."""
        name = self.t.name("the name of a memory")
        while self.t.accept("."):
            name += "." + self.t.name("the rest of the name of a memory")
        return name

    def _part_place(self) -> Place | None:
        place = self._place_words()
        return None if place == Place("") else place

    def _deeper(self) -> _Depth:
        return _Depth(self)


class _Depth:
    """Counts nested brackets, so that deep text is an error and not a full stack."""

    def __init__(self, parser: TypeParser) -> None:
        self._parser = parser

    def __enter__(self) -> None:
        self._parser.depth += 1
        if self._parser.depth > _DEEPEST:
            raise error(
                "parse.nesting",
                f"found more than {_DEEPEST} nested brackets",
                span=self._parser.t.span,
                hint="name inner values with let",
            )

    def __exit__(self, *_: object) -> None:
        self._parser.depth -= 1


class _Recovery:
    """Turns an error of a part into a finding, and skips to where reading can go on."""

    def __init__(self, parser: TypeParser, skip: Callable[[], None]) -> None:
        self._parser = parser
        self._skip = skip
        self._before = parser.depth
        self.failed = False

    def __enter__(self) -> _Recovery:
        return self

    def __exit__(self, _kind: object, failure: object, _trace: object) -> bool:
        if not isinstance(failure, CompileError):
            return False
        self.failed = True
        self._parser.findings.absorb(failure)
        self._parser.depth = self._before
        self._skip()
        return True
