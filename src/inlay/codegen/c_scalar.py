"""Scalar expressions of the loop IR as C expressions.

An expression is a graph, and the text of a graph in which everything is shared would be as long as
its paths are many. So what is used twice in a statement, or has become long, gets a name in front
of it. Two rules keep the meaning:

* The sides of a `select` are evaluated only where they are chosen: a load may be out of bounds on
  the other side. A choice whose sides need names becomes an `if` with the names inside.
* What both sides need, or what cannot fail, is named in front of the choice, so that a chain of
  choices stays as long as it was.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import assert_never

from inlay.arith.dtype import BOOL, I64
from inlay.arith.expr import Int, Sym
from inlay.base.diagnostics import InternalError
from inlay.codegen.c_dialect import INDENT, Dialect
from inlay.codegen.c_helpers import Helpers, register_type
from inlay.codegen.c_names import Names
from inlay.codegen.c_ops import Operations
from inlay.codegen.c_text import CHOICE, NOT_EQUAL, IndexText, Text, call, cast, infix, is_narrow, number
from inlay.loop.buffer import Buffer
from inlay.loop.dots import plain_sum
from inlay.loop.scalar import (
    Binary,
    Bind,
    Cast,
    Dot,
    Index,
    Intrinsic,
    Lit,
    Load,
    Name,
    Reduce,
    Scalar,
    Select,
    Unary,
)
from inlay.loop.walk import may_fault, operands, scalars_below

LONG = 100
"""Characters beyond which an expression gets a name."""

_LEAVES = (Lit, Index, Name, Load)


class ScalarText:
    """Writes the scalars of one phase.

    Attributes:
        lines: where names that an expression needs are defined; the present block.
        names: of the function.
        lets: what stands for symbols bound by `Let` that are not i64.
    """

    def __init__(
        self,
        dialect: Dialect,
        helpers: Helpers,
        names: Names,
        index: IndexText,
        element: Callable[[Buffer, tuple[Int, ...]], str],
        is_local: Callable[[Buffer], bool],
    ) -> None:
        self.lines: list[str] = []
        self.names = names
        self.lets: dict[Sym, Text] = {}
        self._ops = Operations(dialect, helpers)
        self._helpers = helpers
        self._index = index
        self._element = element
        self._is_local = is_local
        self._known: list[dict[Scalar, Text]] = []
        self._shared: frozenset[Scalar] = frozenset()
        self._root: list[str] = self.lines
        self._block = self._depth = 0
        self._needs: dict[Scalar, frozenset[Scalar]] = {}

    def value(self, s: Scalar) -> Text:
        """Return an expression of one statement; its names go to `lines` first."""
        self._known, self._root, self._needs = [{}], self.lines, {}
        self._block, self._depth = 0, self.names.depth
        self._shared = _used_twice(s)
        return self._value(s, top=True)

    def stored(self, s: Scalar, *, local: bool) -> str:
        """Return the text of what is written for a value of one statement."""
        text = self.value(s)
        if not is_narrow(s.dtype) or local:
            return text.text
        helper = self._helpers.use(f"f32_to_{s.dtype.name}")
        return f"{helper}({text.raw or text.text})"

    def _value(self, s: Scalar, *, top: bool = False) -> Text:
        if isinstance(s, _LEAVES):
            return self._leaf(s)
        for known in reversed(self._known):
            if s in known:
                return known[s]
        shared = s in self._shared
        if shared and len(self._known) > 1 and not may_fault(s):
            with self._in_front():
                return self._value(s)
        out = self._node(s)
        if shared or (len(out.text) > LONG and not top):
            out = self._named(s, out)
        return out

    def _named(self, s: Scalar, value: Text) -> Text:
        name = self.names.fresh("t", self._block)
        self.lines.append(f"const {register_type(s.dtype)} {name} = {value.text};")
        out = self._known[-1][s] = Text(name)
        return out

    @contextmanager
    def _in_front(self) -> Generator[None]:
        """Write names in front of the statement, whatever choices are open."""
        outside = self._known, self.lines, self._block
        self._known, self.lines, self._block = self._known[:1], self._root, self._depth
        try:
            yield
        finally:
            self._known, self.lines, self._block = outside

    # ------------------------------------------------------------------ leaves

    def _leaf(self, s: Lit | Index | Name | Load) -> Text:
        match s:
            case Lit(value=value, dtype=dtype):
                return number(value, dtype)
            case Index(value=e, dtype=dtype):
                text = self._index.text(e)
                return text if dtype == I64 else cast(register_type(dtype), text)
            case Name(sym=sym):
                return self._name(sym)
            case Load(buffer=buffer, indices=indices):
                return self._load(buffer, indices)

    def _name(self, sym: Sym) -> Text:
        found = self.lets.get(sym)
        return found if found is not None else self._index.text(_int(sym))

    def _load(self, buffer: Buffer, indices: tuple[Int, ...]) -> Text:
        element = Text(self._element(buffer, indices))
        if self._is_local(buffer):
            return element
        if is_narrow(buffer.dtype):
            return call(self._helpers.use(f"{buffer.dtype.name}_to_f32"), element)
        if buffer.dtype == BOOL:
            return infix(element, NOT_EQUAL, Text("0"))
        return element

    # ------------------------------------------------------------------ operations

    def _node(self, s: Unary | Binary | Select | Cast | Intrinsic | Bind | Dot | Reduce) -> Text:
        match s:
            case Binary(op=op, lhs=a, rhs=b):
                return self._ops.binary(op, self._value(a), self._value(b), a.dtype)
            case Unary(op=op, operand=a):
                return self._ops.unary(op, self._value(a), a.dtype)
            case Select():
                return self._select(s)
            case Cast(operand=a, dtype=dtype):
                return self._ops.cast(self._value(a), a.dtype, dtype)
            case Intrinsic(op=op, args=args, dtype=dtype):
                return self._ops.intrinsic(op, [self._value(a) for a in args], args[0].dtype, dtype)
            case Dot():
                return self._value(plain_sum(s))
            case Bind() | Reduce():
                raise InternalError(f"{type(s).__name__} in a lowered function", where="codegen.c")
            case _:
                assert_never(s)

    # ------------------------------------------------------------------ choice

    def _select(self, s: Select) -> Text:
        condition = self._value(s.condition)
        if condition.text in ("true", "false"):
            return self._value(s.then if condition.text == "true" else s.otherwise)
        for x in self._needed_by_both(s):
            self._value(x)
        name = self.names.fresh("t", self._block)
        then, then_lines = self._side(s.then)
        otherwise, other_lines = self._side(s.otherwise)
        if not then_lines and not other_lines:
            self.names.release(name)
            sides = f"{then.at(CHOICE + 1)} : {otherwise.at(CHOICE)}"
            return Text(f"{condition.at(CHOICE + 1)} ? {sides}", CHOICE)
        self.lines += [
            f"{register_type(s.dtype)} {name};",
            f"if ({condition.text}) {{",
            *(INDENT + line for line in then_lines),
            f"{INDENT}{name} = {then.text};",
            "} else {",
            *(INDENT + line for line in other_lines),
            f"{INDENT}{name} = {otherwise.text};",
            "}",
        ]
        return Text(name)

    def _side(self, s: Scalar) -> tuple[Text, list[str]]:
        outside = self.lines
        self.lines = []
        self._known.append({})
        self.names.open()
        try:
            return self._value(s, top=True), self.lines
        finally:
            self.names.close()
            self._known.pop()
            self.lines = outside

    def _needed_by_both(self, s: Select) -> list[Scalar]:
        both = self._needed(s.then) & self._needed(s.otherwise)
        return [x for x in scalars_below(s) if x in both] if both else []

    def _needed(self, s: Scalar) -> frozenset[Scalar]:
        """Return what is used twice and evaluated wherever an expression is."""
        if isinstance(s, _LEAVES):
            return frozenset()
        found = self._needs.get(s)
        if found is None:
            if isinstance(s, Select):
                sides = self._needed(s.then) & self._needed(s.otherwise)
                found = self._needed(s.condition) | sides
            else:
                found = frozenset[Scalar]().union(*(self._needed(x) for x in operands(s)))
            if s in self._shared:
                found |= {s}
            self._needs[s] = found
        return found


def _used_twice(s: Scalar) -> frozenset[Scalar]:
    uses = Counter(y for x in scalars_below(s) for y in operands(x))
    return frozenset(x for x, n in uses.items() if n > 1 and not isinstance(x, _LEAVES))


def _int(sym: Sym) -> Int:
    return Int((((sym,), 1),))
