"""Text to loop functions: recursive descent over the grammar of docs/language/loop_ir.md.

A scalar's dtype follows from its parts (literals carry theirs), so nothing is inferred. Whether the
result is well formed is the business of `verify`; here only names and syntax are checked.
"""

from __future__ import annotations

from inlay.arith import dtype as dt
from inlay.arith.dtype import DType
from inlay.arith.expr import Int, Sym, fresh, from_atom, lit, maximum, minimum
from inlay.base.diagnostics import InlayError, error
from inlay.base.lexer import TokenKind, TokenStream, parse_float, parse_integer
from inlay.base.span import Source
from inlay.loop.buffer import Buffer, Scope
from inlay.loop.func import LoopFunction, Stage
from inlay.loop.printer import DOT, DOT_SATURATING, INFIX
from inlay.loop.scalar import (
    COMPARISONS,
    Binary,
    BinaryOp,
    Bind,
    Cast,
    Dot,
    Index,
    Intrinsic,
    IntrinsicOp,
    Lit,
    Load,
    Name,
    Scalar,
    Select,
    Unary,
    UnaryOp,
)
from inlay.loop.stmt import (
    Alloc,
    Assert,
    Block,
    BlockIter,
    For,
    If,
    IterKind,
    Let,
    LoopKind,
    Stmt,
    Store,
    While,
)
from inlay.loop.walk import seq

_SIGNS = {sign: op for op, sign in INFIX.items()}
_UNARY = {str(op): op for op in UnaryOp}
_BINARY = {str(op): op for op in BinaryOp if op not in INFIX}
_INTRINSICS = {str(op): op for op in IntrinsicOp}
_BOOL_INTRINSICS = (IntrinsicOp.IS_NAN, IntrinsicOp.IS_INF)


def parse_function(text: str, name: str = "<loop>") -> LoopFunction:
    """Read one function.

    Raises:
        CompileError: `parse.expected` and the other ids of the lexer.
    """
    tokens = TokenStream(Source(name, text))
    function = _Parser(tokens).function()
    if not tokens.is_end:
        raise tokens.failure("the end of the text")
    return function


class _Parser:
    """Reads with one token of look-ahead; `_symbols` and `_buffers` are the names in scope."""

    def __init__(self, tokens: TokenStream) -> None:
        self._t = tokens
        self._symbols: dict[str, Sym] = {}
        self._dtypes: dict[Sym, DType] = {}
        self._buffers: dict[str, Buffer] = {}

    # ---------------------------------------------------------------- functions and buffers

    def function(self) -> LoopFunction:
        t = self._t
        stage = Stage(self._word(*Stage))
        t.expect("func")
        name = t.name("the function's name")
        self._declare_dims()
        t.expect("(")
        reads = t.sequence(self._buffer, ")")
        t.expect("->")
        t.expect("(")
        writes = t.sequence(self._buffer, ")")
        dims: list[Sym] = []
        if t.accept("over"):
            t.expect("(")
            dims = t.sequence(self._symbol, ")")
        workspaces: list[Buffer] = []
        if t.accept("uses"):
            t.expect("(")
            workspaces = t.sequence(self._buffer, ")")
        body = self._braces()
        return LoopFunction(name, (*reads, *writes), len(reads), tuple(dims), body, stage, tuple(workspaces))

    def _declare_dims(self) -> None:
        """Read the dims ahead of the parameters, whose shapes mention them."""
        t = self._t
        start = t.mark()
        while not t.is_end and not t.at("over", "uses", "{"):
            t.advance()
        if t.accept("over"):
            t.expect("(")
            for dim in t.sequence(lambda: t.name("a dim"), ")"):
                self._bind(dim)
        t.reset(start)

    def _buffer(self) -> Buffer:
        t = self._t
        name = t.name("a buffer's name")
        t.expect(":")
        dtype = self._dtype()
        t.expect("[")
        shape = tuple(t.sequence(self._int, "]"))
        scope, strides = Scope.PARAM, None
        if t.accept("@"):
            scope = Scope(t.name("a scope: the name of a memory, or workspace, stack, register"))
        if t.accept("strides"):
            t.expect("[")
            strides = tuple(t.sequence(self._int, "]"))
        first = self._int() if t.accept("first") else lit(0)
        buffer = Buffer(name, shape, dtype, scope, strides, per_part=t.accept("per_part"), first=first)
        self._buffers[name] = buffer
        return buffer

    def _dtype(self) -> DType:
        if self._t.text not in dt.BY_NAME:
            raise self._t.failure("a dtype")
        return dt.BY_NAME[self._t.advance()]

    def _word(self, *words: str) -> str:
        if not self._t.at(*words):
            raise self._t.failure(" or ".join(f"'{w}'" for w in words))
        return self._t.advance()

    def _bind(self, name: str) -> Sym:
        sym = fresh(name)
        self._symbols[name] = sym
        return sym

    def _symbol(self) -> Sym:
        t = self._t
        found = self._symbols.get(t.text)
        if found is None:
            raise t.failure("a variable in scope")
        t.advance()
        return found

    # ---------------------------------------------------------------- statements

    def _braces(self) -> Stmt:
        self._t.expect("{")
        symbols, buffers = dict(self._symbols), dict(self._buffers)
        stmts = self._rest()
        self._t.expect("}")
        self._symbols, self._buffers = symbols, buffers
        return stmts

    def _rest(self) -> Stmt:
        """Read statements up to a closing brace, which stays.

        A let or an allocation takes all that follows as its body; the openers are kept in a list
        and closed at the end, so that a long run of lets needs no deep recursion.
        """
        t = self._t
        done: list[tuple[list[Stmt], Sym | Buffer, Scalar | None]] = []
        stmts: list[Stmt] = []
        while not t.at("}") and not t.is_end:
            if t.accept("let"):
                name = t.name("a name to bind")
                t.expect("=")
                value = self._scalar()
                sym = self._bind(name)
                self._dtypes[sym] = value.dtype
                done.append((stmts, sym, value))
                stmts = []
            elif t.accept("alloc"):
                done.append((stmts, self._buffer(), None))
                stmts = []
            else:
                stmts.append(self._stmt())
        body = seq(*stmts)
        for before, opener, value in reversed(done):
            if isinstance(opener, Buffer):
                scoped: Stmt = Alloc(opener, body)
            else:
                assert value is not None, "a let has a value"
                scoped = Let(opener, value, body)
            body = seq(*before, scoped)
        return body

    def _stmt(self) -> Stmt:
        t = self._t
        match t.text:
            case "for":
                return self._for()
            case "block":
                return self._block()
            case "if":
                return self._if()
            case "while":
                t.advance()
                condition = self._scalar()
                return While(condition, self._braces())
            case "assert":
                t.advance()
                condition = self._scalar()
                t.expect(",")
                return Assert(condition, t.string("a message"))
            case "{":
                return self._braces()
            case _:
                buffer = self._loaded_buffer("a statement")
                indices = self._indices()
                t.expect("=")
                return Store(buffer, indices, self._scalar())

    def _for(self) -> For:
        t = self._t
        t.expect("for")
        name = t.name("a loop variable")
        t.expect("in")
        lo = self._int()
        t.expect("..")
        extent = self._int() - lo
        kind = LoopKind(t.advance()) if t.at(*LoopKind) else LoopKind.SERIAL
        note: list[tuple[str, str]] = []
        if t.accept("("):
            note = t.sequence(self._note, ")")
        outer = dict(self._symbols)
        var = self._bind(name)
        body = self._braces()
        self._symbols = outer
        return For(var, lo, extent, kind, body, tuple(note))

    def _note(self) -> tuple[str, str]:
        key = self._t.name("a key")
        self._t.expect("=")
        return key, self._t.string("a value")

    def _if(self) -> If:
        self._t.expect("if")
        condition = self._scalar()
        then = self._braces()
        otherwise = self._braces() if self._t.accept("else") else None
        return If(condition, then, otherwise)

    def _block(self) -> Block:
        t = self._t
        t.expect("block")
        name = t.name("the block's name")
        t.expect("(")
        heads = t.sequence(self._iter_head, ")")
        predicate = self._scalar() if t.accept("where") else None
        # Iters are visible in the body only, bindings and predicate see the loops outside.
        outer = dict(self._symbols)
        iters = tuple(BlockIter(self._bind(n), extent, kind) for n, kind, extent, _ in heads)
        t.expect("{")
        init = self._braces() if t.accept("init") else None
        body = self._rest()
        t.expect("}")
        self._symbols = outer
        return Block(name, iters, tuple(b for *_, b in heads), body, init, predicate)

    def _iter_head(self) -> tuple[str, IterKind, Int, Int]:
        t = self._t
        name = t.name("an iter")
        t.expect(":")
        kind = IterKind(self._word(*IterKind))
        extent = self._int()
        t.expect("=")
        return name, kind, extent, self._int()

    # ---------------------------------------------------------------- integers

    def _indices(self) -> tuple[Int, ...]:
        self._t.expect("[")
        return tuple(self._t.sequence(self._int, "]"))

    def _int(self) -> Int:
        t = self._t
        total = -self._product() if t.accept("-") else self._product()
        while t.at("+", "-"):
            total = total + self._product() if t.advance() == "+" else total - self._product()
        return total

    def _product(self) -> Int:
        t = self._t
        total = self._int_atom()
        while True:
            if t.accept("*"):
                total = total * self._int_atom()
            elif t.at("%", "/"):
                sign, span = t.advance(), t.span
                right = self._int_atom()
                if right.value == 0:
                    raise error("parse.bad-number", "found a division by zero", span=span)
                total = total % right if sign == "%" else total // right
            else:
                return total

    def _int_atom(self) -> Int:
        t = self._t
        if t.kind is TokenKind.INTEGER:
            return lit(parse_integer(t.advance()))
        if t.accept("-"):
            return -self._int_atom()
        if t.accept("("):
            inner = self._int()
            t.expect(")")
            return inner
        if t.at("min", "max") and t.ahead() == "(":
            least = t.advance() == "min"
            t.expect("(")
            args = t.sequence(self._int, ")")
            return minimum(*args) if least else maximum(*args)
        return from_atom(self._symbol())

    # ---------------------------------------------------------------- scalars

    def _scalar(self) -> Scalar:
        lhs = self._operand()
        op = _SIGNS.get(self._t.text)
        if op is None:
            return lhs
        self._t.advance()
        return _binary(op, lhs, self._operand())

    def _operand(self) -> Scalar:
        t = self._t
        if t.kind in (TokenKind.INTEGER, TokenKind.FLOAT) or t.at("-", "inf", "nan"):
            return self._literal()
        if t.accept("("):
            inner = self._scalar()
            t.expect(")")
            return inner
        if t.at("["):
            t.advance()
            value = self._int()
            t.expect("]")
            return Index(value, self._dtype() if t.accept(":") else dt.I64)
        if t.at("true", "false"):
            return Lit(t.advance() == "true", dt.BOOL)
        follows = t.ahead()
        if follows == "[":
            buffer = self._loaded_buffer("a buffer in scope")
            return Load(buffer, self._indices())
        if follows == "(" or (follows == ":" and t.at("bitcast")):
            return self._application()
        sym = self._symbol()
        if sym not in self._dtypes:
            raise t.failure("a scalar; a loop variable as a scalar is written in brackets")
        return Name(sym, self._dtypes[sym])

    def _loaded_buffer(self, what: str) -> Buffer:
        found = self._buffers.get(self._t.text)
        if found is None or self._t.ahead() != "[":
            raise self._t.failure(what)
        self._t.advance()
        return found

    def _literal(self) -> Lit:
        t = self._t
        negative = t.accept("-")
        value: int | float
        if t.kind is TokenKind.INTEGER:
            value = parse_integer(t.advance())
        elif t.kind is TokenKind.FLOAT or t.at("inf", "nan"):
            value = parse_float(t.advance())
        else:
            raise t.failure("a number")
        t.expect(":")
        dtype = self._dtype()
        value = -value if negative else value
        if dtype.is_float:
            try:
                return Lit(float(value), dtype)
            except OverflowError:
                raise error("parse.bad-number", "found an integer that no f64 holds") from None
        return Lit(value, dtype)

    def _application(self) -> Scalar:
        t = self._t
        name = t.text
        if name in dt.BY_NAME:
            return Cast(self._arguments(1)[0], dt.BY_NAME[name])
        if name in _UNARY:
            operand = self._arguments(1)[0]
            return Unary(_UNARY[name], operand, operand.dtype)
        if name in _BINARY:
            lhs, rhs = self._arguments(2)
            return _binary(_BINARY[name], lhs, rhs)
        if name == "select":
            condition, then, otherwise = self._arguments(3)
            return Select(condition, then, otherwise, then.dtype)
        if name == "bind":
            return self._bind_scalar()
        if name in (DOT, DOT_SATURATING):
            return self._dot(saturates=name == DOT_SATURATING)
        if name in _INTRINSICS:
            return self._intrinsic(_INTRINSICS[name])
        raise t.failure("a function of scalars")

    def _intrinsic(self, op: IntrinsicOp) -> Scalar:
        t = self._t
        result: DType | None = dt.BOOL if op in _BOOL_INTRINSICS else None
        if op is IntrinsicOp.BITCAST:
            t.advance()
            t.expect(":")
            result = self._dtype()
            t.expect("(")
            args = t.sequence(self._scalar, ")")
        else:
            args = self._arguments(None)
        if not args:
            raise t.failure("an argument")
        return Intrinsic(op, tuple(args), result or args[0].dtype)

    def _bind_scalar(self) -> Scalar:
        t = self._t
        t.advance()
        t.expect("(")
        name = t.name("a name to bind")
        t.expect("=")
        value = self._scalar()
        t.expect(",")
        outer = dict(self._symbols)
        sym = self._bind(name)
        self._dtypes[sym] = value.dtype
        body = self._scalar()
        t.expect(")")
        self._symbols = outer
        return Bind(sym, value, body)

    def _dot(self, *, saturates: bool) -> Scalar:
        t = self._t
        t.advance()
        t.expect("(")
        name = t.name("a name for the number of a product")
        t.expect("<")
        if t.kind is not TokenKind.INTEGER:
            raise t.failure("how many products there are")
        width = parse_integer(t.advance())
        t.expect(",")
        acc = self._scalar()
        t.expect(",")
        outer = dict(self._symbols)
        sym = self._bind(name)
        a = self._scalar()
        t.expect(",")
        b = self._scalar()
        t.expect(")")
        self._symbols = outer
        return Dot(sym, width, acc, a, b, saturates)

    def _arguments(self, count: int | None) -> list[Scalar]:
        t = self._t
        t.advance()
        t.expect("(")
        start = t.mark()
        args = t.sequence(self._scalar, ")")
        if count is not None and len(args) != count:
            t.reset(start)
            raise self._wrong_count(count, len(args))
        return args

    def _wrong_count(self, needed: int, found: int) -> InlayError:
        return self._t.failure(f"{needed} argument(s), not {found}")


def _binary(op: BinaryOp, lhs: Scalar, rhs: Scalar) -> Binary:
    return Binary(op, lhs, rhs, dt.BOOL if op in COMPARISONS else lhs.dtype)
