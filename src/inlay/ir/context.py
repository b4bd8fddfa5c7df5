"""The `TypeContext` that computes types of nodes as they are made.

It proves what type rules ask from normal forms and from what is known of the symbols in scope.
What is false is an error with the place of the call; what cannot be decided is recorded, and
`ir.make` turns each record into a check that the program runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from inlay.arith import expr as arith
from inlay.arith.expr import Int, Sym, lit
from inlay.arith.solve import NO_FACTS, Facts
from inlay.base.diagnostics import InlayError, error
from inlay.base.span import NO_SPAN, Span


@dataclass(frozen=True, slots=True)
class EqualCheck:
    """`left == right` is to be checked when the program runs."""

    left: Int
    right: Int
    why: str


@dataclass(frozen=True, slots=True)
class LeastCheck:
    """`value >= low` is to be checked when the program runs."""

    value: Int
    low: int
    why: str


Check = EqualCheck | LeastCheck


@dataclass(frozen=True, slots=True)
class Known:
    """What is known where a node is made.

    Attributes:
        facts: ranges and equalities of the symbols in scope.
        definition: the value a let gives a variable, None for other variables: a check whose result
            an argument names need not be made again.
    """

    facts: Facts = NO_FACTS
    definition: Callable[[object], object | None] = lambda _: None


NOTHING_KNOWN = Known()


class Context:
    """Implements `ir.op.TypeContext` for one node.

    Args:
        what: who asks, for messages: the name of an operator or function.
        span: where.
        facts: what is known of the symbols in scope.
    """

    __slots__ = ("checks", "facts", "span", "what")

    def __init__(self, what: str = "", span: Span = NO_SPAN, facts: Facts = NO_FACTS) -> None:
        self.what = what
        self.span = span
        self.facts = facts
        self.checks: list[Check] = []

    def equal(self, a: Int, b: Int, why: str) -> Int:
        """Prove, record or refute `a == b`; return the simpler of the two."""
        if a is b or a == b:
            return a
        a, b = arith.to_int(a), arith.to_int(b)
        answer = self.facts.equal(a, b)
        if answer is None:
            self.checks.append(EqualCheck(a, b, why))
        elif not answer:
            raise self.mismatch(a, b, why)
        return simpler(a, b)

    def known_equal(self, a: Int, b: Int) -> bool:
        """Whether `a == b` is proved."""
        return a == b or self.facts.equal(arith.to_int(a), arith.to_int(b)) is True

    def at_least(self, a: Int, low: int, why: str) -> None:
        """Prove, record or refute `a >= low`."""
        value = arith.to_int(a).value
        answer = self.facts.at_least(a, lit(low)) if value is None else value >= low
        if answer is None:
            self.checks.append(LeastCheck(a, low, why))
        elif not answer:
            raise error(
                "type.dim-too-small", f"{self._who()}found {a}, needed at least {low} ({why})", span=self.span
            )

    def fresh_dim(self, name: str) -> Sym:
        """Return a new symbol."""
        return arith.fresh(name)

    def strict(self) -> Context:
        """Return a context of the same place in which nothing can be checked at run time."""
        return StrictContext(self.what, self.span, self.facts)

    def fail(self, message: str, *, id: str = "type.op-argument", hint: str = "") -> InlayError:
        """Return the error to raise for arguments that can never be right."""
        return error(id, f"{self._who()}{message}", span=self.span, hint=hint)

    def mismatch(self, a: Int, b: Int, why: str) -> InlayError:
        """Return the error for dims that are known to differ."""
        return error(
            "type.dim-mismatch",
            f"{self._who()}found {a} and {b}, which are never equal, for {why}",
            span=self.span,
        )

    def _who(self) -> str:
        return f"{self.what}: " if self.what else ""


class StrictContext(Context):
    """A context for places where no check can run: what cannot be proved is an error."""

    __slots__ = ()

    def strict(self) -> Context:
        """Return this context."""
        return self

    def equal(self, a: Int, b: Int, why: str) -> Int:
        """Prove or refuse `a == b`."""
        if a == b or self.facts.equal(a, b) is True:
            return simpler(a, b)
        raise (
            self.mismatch(a, b, why)
            if self.facts.equal(a, b) is False
            else self.fail(
                f"found {a} and {b}, needed dims that are provably equal, for {why}",
                id="type.dim-unproved",
                hint="relate the dims with check_shape before this place",
            )
        )

    def at_least(self, a: Int, low: int, why: str) -> None:
        """Prove or refuse `a >= low`."""
        before = len(self.checks)
        Context.at_least(self, a, low, why)
        if len(self.checks) > before:
            raise self.fail(
                f"found {a}, needed a number provably at least {low} ({why})", id="type.dim-unproved"
            )


def simpler(a: Int, b: Int) -> Int:
    """Return the one of two equal integers that is better to know: numbers, then short ones."""
    return a if _weight(a) <= _weight(b) else b


def _weight(e: Int) -> tuple[object, ...]:
    atom = e.atom
    rank = 0 if e.value is not None else 1 if isinstance(atom, Sym) else 2
    return (rank, len(e.terms), e.key)
