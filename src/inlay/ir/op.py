"""Operators as the IR sees them: name, attributes, type rule, effects, alias facts.

Everything else about an operator (compute rule, reference meaning, samples) is added by
`ops._define.OpDef`; the IR must not know it. Expressions hold the `Op` itself, so nothing is looked
up by name except by parsers.

**Type rules.** `rule(ctx, attrs, args)` gets the attribute record and the argument types and returns
the result type. It asks `ctx` where it must relate dims, so that one rule serves inference, checking
and run-time shapes: under inference `ctx.equal(a, b)` may solve for unknown dims; when types are
complete it proves the relation or records a run-time check. A rule never reads values, only types:
a shape operand's value is in its type.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from inlay.arith.expr import Int, Sym
from inlay.ir.types import Type


class Effect(StrEnum):
    """What running an operator does besides computing its result."""

    PURE = "pure"
    ALLOCATES = "allocates"
    WRITES = "writes"
    """Writes into an operand (explicit-storage stage only) or another resource; keeps its order."""
    FAILS = "fails"
    """May stop the program with an error (checks); must not be dropped or moved above another."""


class TypeContext(Protocol):
    """What a type rule may ask of whoever runs it."""

    def equal(self, a: Int, b: Int, why: str) -> Int:
        """Require `a == b` and return the simpler of the two.

        Proved, solved for an unknown, or recorded as a run-time check with `why` in its message
        (`"rows of lhs and columns of rhs"`). Known to be false: a `type.dim-mismatch` error.
        """
        ...

    def known_equal(self, a: Int, b: Int) -> bool:
        """Whether `a == b` is proved; solves nothing and records nothing."""
        ...

    def at_least(self, a: Int, low: int, why: str) -> None:
        """Require `a >= low` in the same way."""
        ...

    def fresh_dim(self, name: str) -> Sym:
        """Return a new symbol, for the dims of a `some` type."""
        ...

    def fail(self, message: str, *, id: str = "type.op-argument", hint: str = "") -> Exception:
        """Return the error to raise for arguments that can never be right."""
        ...


TypeRule = Callable[[TypeContext, object, tuple[Type, ...]], Type]


@dataclass(frozen=True, slots=True, eq=False)
class Op:
    """An operator.

    Attributes:
        name: the spelling in text form, lower snake case, dots for families (`nn.softmax`).
        attrs_type: a frozen dataclass; its fields are the attributes.
        type_rule: see the module docstring.
        arity: least and greatest number of arguments; None = no upper limit.
        effect: what else running it does.
        alias: index of the argument whose bytes the result may share as a view (reshape), if any.
        in_place: indices of arguments whose buffer the result may take over.
        data_dependent: the result type has `some` dims decided by the data.
    """

    name: str
    attrs_type: type
    type_rule: TypeRule
    arity: tuple[int, int | None]
    effect: Effect = Effect.PURE
    alias: int | None = None
    in_place: tuple[int, ...] = ()
    data_dependent: bool = False
    doc: str = ""

    def __repr__(self) -> str:
        return f"Op({self.name})"


@dataclass(frozen=True, slots=True)
class NoAttrs:
    """The attribute record of operators that have none."""


class OpTable(Protocol):
    """Finds operators by name; handed to parsers and importers by the layers above."""

    def find(self, name: str) -> Op | None:
        """Return the operator of that name, or None."""
        ...

    def names(self) -> tuple[str, ...]:
        """Return all names, sorted."""
        ...
