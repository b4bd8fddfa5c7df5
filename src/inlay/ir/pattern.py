"""Patterns of dataflow: what a rewrite looks for, and what a device can take as one piece.

    p = op("add", op("matmul", any_("x"), constant("w")), constant("bias"))
    found = match(p, e, definitions)

A pattern describes a value and, through operands, how it came about. A variable stands for the value
a let gives it, where `definitions` knows one, so patterns work on A-normal form as on nested calls.
Looking through stops at operators with effects. Names bind; a name that stands twice must match one
and the same value.

A match that fails says why: the first difference on the way that got furthest, as data with a place,
because "why is this not on the accelerator" must have an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import assert_never

import numpy as np

from inlay.base.span import NO_SPAN, Span, cover
from inlay.ir.expr import Call, Const, Expr, OpRef, Project, Tuple, Var
from inlay.ir.op import Effect, Op
from inlay.ir.type_printer import type_text

Definitions = Callable[[Var], Expr | None]


@dataclass(frozen=True, slots=True)
class AnyPattern:
    """Any value."""

    name: str = ""


@dataclass(frozen=True, slots=True)
class ConstPattern:
    """A constant tensor."""

    name: str = ""


@dataclass(frozen=True, slots=True)
class OpPattern:
    """The result of one of several operators, with attributes that have these values.

    `args` is None for operands of any number and kind. With `commutes`, two operands may also stand
    the other way round.
    """

    ops: tuple[str, ...]
    args: tuple[DataflowPattern, ...] | None
    attrs: tuple[tuple[str, object], ...] = ()
    commutes: bool = False
    name: str = ""


@dataclass(frozen=True, slots=True)
class TuplePattern:
    """A tuple, field by field."""

    fields: tuple[DataflowPattern, ...]
    name: str = ""


@dataclass(frozen=True, slots=True)
class ProjectPattern:
    """A field of a tuple value."""

    value: DataflowPattern
    index: int
    name: str = ""


@dataclass(frozen=True, slots=True)
class OrPattern:
    """The first alternative that matches."""

    alternatives: tuple[DataflowPattern, ...]


@dataclass(frozen=True, slots=True)
class WherePattern:
    """A value that matches and of which a predicate holds; `why` says what it asks."""

    inner: DataflowPattern
    holds: Callable[[Expr], bool]
    why: str


DataflowPattern = (
    AnyPattern | ConstPattern | OpPattern | TuplePattern | ProjectPattern | OrPattern | WherePattern
)


def any_(name: str = "") -> AnyPattern:
    """Return the pattern of any value."""
    return AnyPattern(name)


def constant(name: str = "") -> ConstPattern:
    """Return the pattern of a constant tensor."""
    return ConstPattern(name)


def op(
    names: str | Iterable[str],
    *args: DataflowPattern,
    attrs: Mapping[str, object] | None = None,
    commutes: bool = False,
    name: str = "",
) -> OpPattern:
    """Return the pattern of an operator; without operands given, of any operands."""
    wanted = (names,) if isinstance(names, str) else tuple(names)
    fixed = tuple((attrs or {}).items())
    return OpPattern(wanted, args or None, fixed, commutes, name)


def either(*alternatives: DataflowPattern) -> OrPattern:
    """Return the pattern of several, tried in order."""
    return OrPattern(alternatives)


def where(inner: DataflowPattern, holds: Callable[[Expr], bool], why: str) -> WherePattern:
    """Return a pattern with a condition on the value."""
    return WherePattern(inner, holds, why)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a value does not match.

    Attributes:
        reason: one sentence, in the user's terms.
        span: the node that differs.
        depth: how many operators matched on the way to it.
    """

    reason: str
    span: Span = NO_SPAN
    depth: int = 0


@dataclass(frozen=True, slots=True)
class Found:
    """A match.

    Attributes:
        root: the node that was matched.
        names: the value of each name. A variable that was looked through is given as it stands.
        nodes: the operations inside the pattern, users before operands.
    """

    root: Expr
    names: Mapping[str, Expr]
    nodes: tuple[Expr, ...]

    def __getitem__(self, name: str) -> Expr:
        return self.names[name]

    def array(self, name: str) -> np.ndarray:
        """Return the array of a named constant."""
        value = self.names[name]
        assert isinstance(value, Const), f"{name} is no constant"
        assert isinstance(value.value, np.ndarray), f"{name} is no tensor"
        return value.value

    def attrs(self, name: str) -> object:
        """Return the attributes of the named operator call."""
        value = self.names[name]
        assert isinstance(value, Call), f"{name} is no call"
        assert isinstance(value.callee, OpRef), f"{name} is no call of an operator"
        return value.callee.attrs

    @property
    def span(self) -> Span:
        """The place all matched operations cover."""
        return cover(n.span for n in self.nodes)


def match(pattern: DataflowPattern, e: Expr, definitions: Definitions = lambda _: None) -> Found | Refusal:
    """Match a value.

    Args:
        pattern: what to look for.
        e: the value.
        definitions: the value a let gives a variable, None where there is none.
    """
    state = _State(definitions)
    names = state.match(pattern, e, {}, 0)
    if names is None:
        assert state.refusal is not None
        return state.refusal
    return Found(e, names, tuple(state.nodes))


@dataclass(slots=True)
class _State:
    definitions: Definitions
    nodes: list[Expr] = field(default_factory=list[Expr])
    refusal: Refusal | None = None

    def match(
        self, p: DataflowPattern, e: Expr, names: dict[str, Expr], depth: int
    ) -> dict[str, Expr] | None:
        """Return the names with those bound in `p`, None where it does not match."""
        while isinstance(e, Var) and isinstance(other := self.definitions(e), Var):
            e = other  # one value may have many names; the oldest is visible wherever they are
        match p:
            case AnyPattern(name=name):
                return self._name(name, e, names, depth)
            case ConstPattern(name=name):
                value = self._definition(e)
                if isinstance(value, Const) and isinstance(value.value, np.ndarray):
                    return self._name(name, value, names, depth)
                return self._refuse("needed a constant tensor", e, depth)
            case OpPattern():
                return self._op(p, e, names, depth)
            case TuplePattern(fields=fields, name=name):
                value = self._definition(e)
                if not isinstance(value, Tuple) or len(value.fields) != len(fields):
                    return self._refuse(f"needed a tuple of {len(fields)}", e, depth)
                return self._all(fields, value.fields, self._name(name, e, names, depth), depth)
            case ProjectPattern(value=inner, index=index, name=name):
                value = self._definition(e)
                if not isinstance(value, Project) or value.index != index:
                    return self._refuse(f"needed field {index} of a tuple", e, depth)
                bound = self._name(name, e, names, depth)
                return None if bound is None else self.match(inner, value.value, bound, depth)
            case OrPattern(alternatives=alternatives):
                for alternative in alternatives:
                    mark = len(self.nodes)
                    found = self.match(alternative, e, names, depth)
                    if found is not None:
                        return found
                    del self.nodes[mark:]
                return None
            case WherePattern(inner=inner, holds=holds, why=why):
                found = self.match(inner, e, names, depth)
                if found is not None and not holds(self._definition(e)):
                    return self._refuse(f"needed {why}", e, depth)
                return found
            case _:
                assert_never(p)

    def _op(self, p: OpPattern, e: Expr, names: dict[str, Expr], depth: int) -> dict[str, Expr] | None:
        value = self._definition(e)
        wanted = " or ".join(p.ops)
        if not isinstance(value, Call) or not isinstance(value.callee, OpRef):
            return self._refuse(f"found {_kind(value)}, needed {wanted}", e, depth)
        found = value.callee.op
        if found.name not in p.ops:
            return self._refuse(f"found {found.name}, needed {wanted}", value, depth)
        for attr, needed in p.attrs:
            actual = getattr(value.callee.attrs, attr)
            if actual != needed:
                reason = f"{found.name} has {attr}={actual}, needed {needed}"
                return self._refuse(reason, value, depth)
        bound = self._name(p.name, value, names, depth)
        if bound is None or p.args is None:
            if bound is not None:
                self.nodes.append(value)
            return bound
        if len(value.args) != len(p.args):
            reason = f"{found.name} has {len(value.args)} operands, needed {len(p.args)}"
            return self._refuse(reason, value, depth)
        orders = [value.args]
        if p.commutes and len(value.args) == 2:
            orders.append(value.args[::-1])
        for args in orders:
            mark = len(self.nodes)
            self.nodes.append(value)
            result = self._all(p.args, args, bound, depth + 1)
            if result is not None:
                return result
            del self.nodes[mark:]
        return None

    def _all(
        self,
        patterns: tuple[DataflowPattern, ...],
        values: tuple[Expr, ...],
        names: dict[str, Expr] | None,
        depth: int,
    ) -> dict[str, Expr] | None:
        for p, e in zip(patterns, values, strict=True):
            if names is None:
                return None
            names = self.match(p, e, names, depth)
        return names

    def _definition(self, e: Expr) -> Expr:
        """Return what a variable stands for, unless computing it has an effect."""
        while isinstance(e, Var):
            value = self.definitions(e)
            if value is None or not is_pure(value):
                return e
            e = value
        return e

    def _name(self, name: str, e: Expr, names: dict[str, Expr], depth: int) -> dict[str, Expr] | None:
        if not name:
            return names
        known = names.get(name)
        if known is None:
            return {**names, name: e}
        if self._definition(known) is self._definition(e):
            return names
        return self._refuse(f"needed one value for {name} and found two", e, depth)

    def _refuse(self, reason: str, e: Expr, depth: int) -> None:
        if self.refusal is None or depth >= self.refusal.depth:
            self.refusal = Refusal(reason, e.span, depth)


def is_pure(e: Expr) -> bool:
    """Whether computing the node itself has no effect."""
    return not isinstance(e, Call) or (isinstance(e.callee, OpRef) and e.callee.op.effect is Effect.PURE)


def is_call(e: Expr, op: Op) -> bool:
    """Whether the node is a call of an operator."""
    return isinstance(e, Call) and isinstance(e.callee, OpRef) and e.callee.op is op


def _kind(e: Expr) -> str:
    match e:
        case Var(name=name, type=t):
            return f"{name} of type {type_text(t)}"
        case Const():
            return "a constant"
        case Call():
            return "a call of a function"
        case _:
            return type(e).__name__.lower()
