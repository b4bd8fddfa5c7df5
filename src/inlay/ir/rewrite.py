"""Rules and their drivers.

A rule is a pattern and a function from a match to what replaces its root, or None to decline. The
drivers visit operands before users, so a rule sees operands already rewritten, and look through let
variables at what they stand for now. What a rule builds gets a span that covers everything it
replaces, and the place of its root.

A rule that looks through a variable leaves its let alone: `eliminate_dead` drops what nobody uses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from inlay.base.diagnostics import InternalError
from inlay.ir import walk
from inlay.ir.expr import Call, Expr, Let, OpRef, Var
from inlay.ir.pattern import DataflowPattern, Found, OpPattern, OrPattern, WherePattern, match


@dataclass(frozen=True, slots=True)
class Rule:
    """A rewrite.

    Attributes:
        name: for reports: what it does, verb first.
        pattern: what it applies to.
        build: what replaces the root of a match; None declines.
    """

    name: str
    pattern: DataflowPattern
    build: Callable[[Found], Expr | None]


@dataclass(frozen=True, slots=True)
class Applied:
    """That a rule was applied, and where."""

    rule: str
    root: Expr


def apply(
    root: Expr, rules: Sequence[Rule], *, applied: list[Applied] | None = None, rounds: int = 100
) -> Expr:
    """Apply rules until none applies, first those that come first.

    A node is rewritten until no rule applies to it before its users are visited, so one visit of the
    program does nearly all the work; further ones follow while anything changes.

    Args:
        root: where to look.
        rules: in order of preference.
        applied: gets a record of each application.
        rounds: how often the program, or one node, may change.

    Raises:
        InternalError: the rules undo each other.
    """
    for _ in range(rounds):
        again = apply_once(root, rules, applied=applied, rounds=rounds)
        if again is root:
            return root
        root = again
    raise InternalError(f"rules {', '.join(r.name for r in rules)} never come to rest")


def apply_once(
    root: Expr, rules: Sequence[Rule], *, applied: list[Applied] | None = None, rounds: int = 100
) -> Expr:
    """Visit every node once, operands first; see `apply`."""
    values = {e.var: e.value for e in walk.postorder(root) if isinstance(e, Let)}
    memo: dict[int, Expr] = {}
    by_op = _index(rules)

    def definition(v: Var) -> Expr | None:
        old = values.get(v)
        return None if old is None else memo.get(id(old), old)

    def visit(e: Expr) -> Expr:
        for _ in range(rounds):
            for rule in by_op(e):
                found = match(rule.pattern, e, definition)
                made = rule.build(found) if isinstance(found, Found) else None
                if made is not None and made is not e:
                    if applied is not None:
                        applied.append(Applied(rule.name, e))
                    e = walk.inherit(made, _spanning(e, found))
                    break
            else:
                return e
        raise InternalError(f"rules {', '.join(r.name for r in by_op(e))} never come to rest")

    return walk.rewrite(root, visit, memo)


def _spanning(root: Expr, found: object) -> Expr:
    """Return the root with the span of everything the match covers."""
    assert isinstance(found, Found)
    span = found.span
    if type(root) in walk.LEAVES or not span or span == root.span:
        return root
    return walk.with_span(root, span)


def _index(rules: Iterable[Rule]) -> Callable[[Expr], Sequence[Rule]]:
    """Return which rules can apply to a node, by the operator at its root."""
    listed = [(rule, _root_ops(rule.pattern)) for rule in rules]
    general = [rule for rule, ops in listed if ops is None]
    names = {name for _, ops in listed if ops is not None for name in ops}
    by_name = {name: [rule for rule, ops in listed if ops is None or name in ops] for name in names}

    def find(e: Expr) -> Sequence[Rule]:
        if isinstance(e, Call) and isinstance(e.callee, OpRef):
            return by_name.get(e.callee.op.name, general)
        return () if isinstance(e, Var) else general

    return find


def _root_ops(p: DataflowPattern) -> frozenset[str] | None:
    """Return the operators a match can have at its root, None when it can be anything."""
    match p:
        case OpPattern(ops=ops):
            return frozenset(ops)
        case WherePattern(inner=inner):
            return _root_ops(inner)
        case OrPattern(alternatives=alternatives):
            found = [_root_ops(a) for a in alternatives]
            sets = [f for f in found if f is not None]
            return frozenset[str]().union(*sets) if len(sets) == len(found) else None
        case _:
            return None
