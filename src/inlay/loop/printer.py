"""Text form of loop functions and of their parts; `parser` reads it back.

The grammar is in docs/language/loop_ir.md. Square brackets always hold integer expressions: the
indices of a buffer, or, alone in a scalar, an integer used as a scalar (`[i*4 + j]`). Literals carry
their dtype, so that each scalar's dtype follows from its parts.

Names are for people and need not be unique in the IR; here they are made so, in order of
appearance, and kept off the words of the language.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import assert_never

from inlay.arith.dtype import I64
from inlay.arith.expr import Int, Sym, substitute, symbols, to_int
from inlay.loop.buffer import Buffer, Scope
from inlay.loop.func import LoopFunction
from inlay.loop.scalar import (
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
    Reduce,
    Scalar,
    Select,
    Unary,
)
from inlay.loop.stmt import Alloc, Assert, Block, For, If, Let, LoopKind, Seq, Stmt, Store, While

DOT, DOT_SATURATING = "dot", "dot_saturating"

INFIX: dict[BinaryOp, str] = {
    BinaryOp.ADD: "+",
    BinaryOp.SUB: "-",
    BinaryOp.MUL: "*",
    BinaryOp.DIV: "/",
    BinaryOp.AND: "&",
    BinaryOp.OR: "|",
    BinaryOp.EQ: "==",
    BinaryOp.NE: "!=",
    BinaryOp.LT: "<",
    BinaryOp.LE: "<=",
}
RESERVED = frozenset(
    """
    alloc assert bind block bool dot else false for func if in inf init let lowered max min nan
    over param parallel per_part reduce register schedulable select serial spatial stack
    strides true unroll uses vector where while workspace f16 bf16 f32 f64 i8 i16 i32 i64 u8
    u16 u32 u64 string
    """.split()
)


def print_function(f: LoopFunction) -> str:
    """Return the text of a function; `parser.parse_function` gives an equal function back."""
    return "\n".join(_Printer().function(f)) + "\n"


def print_stmt(s: Stmt) -> str:
    """Return the text of a statement on its own, for people and error messages."""
    return "\n".join(_Printer().stmt(s, ""))


def print_scalar(x: Scalar) -> str:
    """Return the text of a scalar on its own, for people and error messages."""
    return _Printer().scalar(x)


class _Names:
    """Unique names by object, first come first served."""

    def __init__(self) -> None:
        self._of: dict[Sym | Buffer, str] = {}
        self._taken: set[str] = set()
        self.renamed: dict[Sym, Int] = {}

    def of(self, item: Sym | Buffer) -> str:
        found = self._of.get(item)
        if found is None:
            base = item.name if item.name.isidentifier() else _identifier(item.name)
            found, count = base, 0
            while found in self._taken or found in RESERVED:
                count += 1
                found = f"{base}_{count}"
            self._taken.add(found)
            self._of[item] = found
            if isinstance(item, Sym) and found != item.name:
                self.renamed[item] = to_int(Sym(found, item.uid))
        return found


def _identifier(name: str) -> str:
    text = "".join(c if c.isalnum() or c == "_" else "_" for c in name)
    return text if text[:1].isalpha() or text[:1] == "_" else f"_{text}"


class _Printer:
    def __init__(self) -> None:
        self._names = _Names()

    def function(self, f: LoopFunction) -> Iterator[str]:
        for dim in f.dims:
            self._names.of(dim)
        reads = ", ".join(self.buffer(b) for b in f.params[: f.n_reads])
        writes = ", ".join(self.buffer(b) for b in f.params[f.n_reads :])
        head = f"{f.stage} func {f.name}({reads}) -> ({writes})"
        if f.dims:
            head += f" over ({', '.join(map(self._names.of, f.dims))})"
        if f.workspaces:
            head += f" uses ({', '.join(map(self.buffer, f.workspaces))})"
        yield head + " {"
        yield from self.stmt(f.body, "  ")
        yield "}"

    def buffer(self, b: Buffer) -> str:
        text = f"{self._names.of(b)}: {b.dtype}[{self.ints(b.shape)}]"
        if b.scope != Scope.PARAM:
            text += f" @{b.scope}"
        if b.strides is not None:
            text += f" strides [{self.ints(b.strides)}]"
        if b.first != 0:
            text += f" first {self.int(b.first)}"
        return text + " per_part" if b.per_part else text

    def int(self, e: Int) -> str:
        if e.value is None:
            for s in symbols(e):
                self._names.of(s)
            if self._names.renamed:
                e = substitute(e, self._names.renamed)
        # A double slash begins a comment in the text formats; integers have one division only.
        return str(e).replace("//", "/")

    def ints(self, es: tuple[Int, ...]) -> str:
        return ", ".join(map(self.int, es))

    # ---------------------------------------------------------------- statements

    def stmt(self, s: Stmt, pad: str) -> Iterator[str]:
        match s:
            case Store(buffer=buffer, indices=indices, value=value):
                yield f"{pad}{self._names.of(buffer)}[{self.ints(indices)}] = {self.scalar(value)}"
            case For(body=body):
                yield f"{pad}{self._for_head(s)} {{"
                yield from self.stmt(body, pad + "  ")
                yield pad + "}"
            case Seq(stmts=stmts):
                yield from self._sequence(stmts, pad)
            case Let(sym=sym, value=value, body=body):
                text = self.scalar(value)
                yield f"{pad}let {self._names.of(sym)} = {text}"
                yield from self.stmt(body, pad)
            case Alloc(buffer=buffer, body=body):
                yield f"{pad}alloc {self.buffer(buffer)}"
                yield from self.stmt(body, pad)
            case If(condition=condition, then=then, otherwise=otherwise):
                yield f"{pad}if {self.scalar(condition)} {{"
                yield from self.stmt(then, pad + "  ")
                if otherwise is not None:
                    yield pad + "} else {"
                    yield from self.stmt(otherwise, pad + "  ")
                yield pad + "}"
            case Block():
                yield from self._block(s, pad)
            case While(condition=condition, body=body):
                yield f"{pad}while {self.scalar(condition)} {{"
                yield from self.stmt(body, pad + "  ")
                yield pad + "}"
            case Assert(condition=condition, message=message):
                yield f"{pad}assert {self.scalar(condition)}, {_quoted(message)}"
            case _:
                assert_never(s)

    def _sequence(self, stmts: tuple[Stmt, ...], pad: str) -> Iterator[str]:
        for i, inner in enumerate(stmts):
            # A let or an allocation reaches to the closing brace, so one that ends earlier
            # brings its own.
            if isinstance(inner, (Let, Alloc, Seq)) and i + 1 < len(stmts):
                yield pad + "{"
                yield from self.stmt(inner, pad + "  ")
                yield pad + "}"
            else:
                yield from self.stmt(inner, pad)

    def _for_head(self, s: For) -> str:
        text = f"for {self._names.of(s.var)} in {self.int(s.lo)}..{self.int(s.lo + s.extent)}"
        if s.kind is not LoopKind.SERIAL:
            text += f" {s.kind}"
        if s.note:
            text += f" ({', '.join(f'{k}={_quoted(v)}' for k, v in s.note)})"
        return text

    def _block(self, s: Block, pad: str) -> Iterator[str]:
        iters = ", ".join(
            f"{self._names.of(i.sym)}: {i.kind} {self.int(i.extent)} = {self.int(b)}"
            for i, b in zip(s.iters, s.bindings, strict=True)
        )
        where = "" if s.predicate is None else f" where {self.scalar(s.predicate)}"
        yield f"{pad}block {s.name}({iters}){where} {{"
        if s.init is not None:
            yield f"{pad}  init {{"
            yield from self.stmt(s.init, pad + "    ")
            yield f"{pad}  }}"
        yield from self.stmt(s.body, pad + "  ")
        yield pad + "}"

    # ---------------------------------------------------------------- scalars

    def scalar(self, x: Scalar) -> str:
        """Return the text; an infix operation inside another gets parentheses."""
        match x:
            case Lit():
                return _literal(x)
            case Index(value=value, dtype=dtype):
                return f"[{self.int(value)}]" + ("" if dtype == I64 else f":{dtype}")
            case Name(sym=sym):
                return self._names.of(sym)
            case Load(buffer=buffer, indices=indices):
                return f"{self._names.of(buffer)}[{self.ints(indices)}]"
            case Binary(op=op, lhs=lhs, rhs=rhs):
                sign = INFIX.get(op)
                if sign is None:
                    return f"{op}({self.scalar(lhs)}, {self.scalar(rhs)})"
                return f"{self._operand(lhs)} {sign} {self._operand(rhs)}"
            case Unary(op=op, operand=operand):
                return f"{op}({self.scalar(operand)})"
            case Cast(operand=operand, dtype=dtype):
                return f"{dtype}({self.scalar(operand)})"
            case Select(condition=c, then=a, otherwise=b):
                return f"select({self.scalar(c)}, {self.scalar(a)}, {self.scalar(b)})"
            case Intrinsic(op=op, args=args, dtype=dtype):
                name = f"{op}:{dtype}" if op is IntrinsicOp.BITCAST else str(op)
                return f"{name}({', '.join(map(self.scalar, args))})"
            case Bind(sym=sym, value=value, body=body):
                text = self.scalar(value)
                return f"bind({self._names.of(sym)} = {text}, {self.scalar(body)})"
            case Dot(sym=sym, width=width):
                parts = ", ".join(map(self.scalar, (x.acc, x.a, x.b)))
                name = DOT_SATURATING if x.saturates else DOT
                return f"{name}({self._names.of(sym)} < {width}, {parts})"
            case Reduce(op=op, axes=axes, body=body, init=init):
                over = ", ".join(f"{self._names.of(a.sym)} < {self.int(a.extent)}" for a in axes)
                start = "" if init is None else f", init {self.scalar(init)}"
                return f"reduce {op}({over}; {self.scalar(body)}{start})"
            case _:
                assert_never(x)

    def _operand(self, x: Scalar) -> str:
        text = self.scalar(x)
        return f"({text})" if isinstance(x, Binary) and x.op in INFIX else text


def _literal(x: Lit) -> str:
    if isinstance(x.value, bool):
        return "true" if x.value else "false"
    if x.dtype.is_float:
        value = float(x.value)
        text = "nan" if math.isnan(value) else repr(value)
        return f"{text}:{x.dtype}"
    return f"{x.value}:{x.dtype}"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
