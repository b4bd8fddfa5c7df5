"""Loops as loops: what is carried, what is invariant, how many turns, what is stacked.

A loop of the tensor IR is a function bound by a let that is called once from outside and otherwise
in tail position of its own body (`local_functions` finds them). In its canonical form, which
`ir.builder` writes,

    let loop = fn<i, dims>(i: int[i], carried..., stacked...) {
      ... a condition ...
      if (condition) { ... loop(int(i + 1), next..., set_row(buffer, int(i), row)...) }
      else { (i, carried..., stacked...) }
    };
    loop(int(0), start..., zeros(shape(count, row...))...)

This module reads that form back, for reports and for whoever compiles loops in another way than as
calls. It proves what it says and leaves out the rest: a loop whose count is not seen has `bound` None,
a buffer that the body also reads is carried and not stacked.

Expects A-normal form. Cost: linear in the function, for all its loops together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from inlay.analysis.blocks import count_uses, definitions, nested, values
from inlay.analysis.local_functions import find_loops
from inlay.arith.expr import Int, symbols
from inlay.ir.core_ops import BOOL_AND, CHECK_AT_LEAST, CHECK_EQUAL, CHECK_SHAPE, INT_LESS, PUSH_ROW, SET_ROW
from inlay.ir.expr import Call, Const, Expr, Function, If, OpRef, Var
from inlay.ir.op import Op
from inlay.ir.types import IntType
from inlay.ir.walk import free_vars, spine

_CHECKS = frozenset({CHECK_SHAPE, CHECK_EQUAL, CHECK_AT_LEAST})


class Role(StrEnum):
    """What a loop does with a parameter."""

    COUNTER = "counter"
    """Goes up by one in every turn."""
    INVARIANT = "invariant"
    """Every turn hands on what it got."""
    CARRIED = "carried"
    """A turn makes the next one's."""
    FILLED = "filled"
    """One row of a buffer is written in every turn, and nothing of it is read before the end."""
    GROWN = "grown"
    """One row is appended in every turn, and nothing is read before the end."""


@dataclass(frozen=True, slots=True, eq=False)
class Loop:
    """A loop of a function.

    Attributes:
        var: the variable of the loop function.
        function: the loop function.
        call: the call from outside.
        roles: what it does with each parameter.
        start: the first value of the counter; None without counter.
        bound: the greatest number of turns, over dims in scope where the loop is bound; None where it
            is not known. Negative means none.
        exact: whether there are exactly `bound` turns, as nothing else ends the loop.
        captured: variables of the functions around that the loop reads; invariant too.
    """

    var: Var
    function: Function
    call: Call
    roles: tuple[Role, ...]
    start: Int | None
    bound: Int | None
    exact: bool
    captured: tuple[Var, ...]


def loops_of(root: Function) -> tuple[Loop, ...]:
    """Return the loops of a function, outer ones first; functions of one turn are not loops."""
    known = definitions(root.body)
    loops = find_loops(root)
    calls: dict[Var, list[Call]] = {}
    for value in values(root.body):
        if isinstance(value, Call) and isinstance(value.callee, Var) and value.callee in loops:
            calls.setdefault(value.callee, []).append(value)
    found: list[Loop] = []
    for v, f in known.items():
        if v in loops and isinstance(f, Function):
            inside = {id(c) for c in values(f.body) if isinstance(c, Call)}
            again = [c for c in calls.get(v, ()) if id(c) in inside]
            outer = [c for c in calls.get(v, ()) if id(c) not in inside]
            if again and len(outer) == 1:
                found.append(_loop(v, f, outer[0], again, known))
    return tuple(found)


def turns_of(loop: Loop, most: int) -> int | None:
    """Return how many turns a loop has, if that is a number from 1 to `most` and nothing else ends it."""
    turns = None if loop.bound is None or not loop.exact else loop.bound.value
    if turns is None or not 1 <= turns <= most:
        return None
    _, tail = spine(loop.function.body)
    again = spine(tail.then)[1] if isinstance(tail, If) else None
    return turns if isinstance(again, Call) and again.callee is loop.var else None


def _loop(v: Var, f: Function, outer: Call, again: list[Call], known: Mapping[Var, Expr]) -> Loop:
    uses = count_uses(f.body)
    counter = _counter(f, outer, again)
    roles: list[Role] = []
    for i, p in enumerate(f.params):
        steps = [c.args[i] for c in again]
        if i == counter:
            roles.append(Role.COUNTER)
        elif all(s is p for s in steps):
            roles.append(Role.INVARIANT)
        else:
            roles.append(_stacked(p, steps, f, v, uses.get(p, 0), known))
    start = None
    bound, exact = None, False
    if counter is not None:
        first = outer.args[counter]
        assert isinstance(first, Const)
        assert isinstance(first.value, Int)
        start = first.value
        limit, exact = _limit(f, v, f.params[counter], known)
        bound = None if limit is None else limit - start
    return Loop(
        v,
        f,
        outer,
        tuple(roles),
        start,
        bound,
        exact and bound is not None,
        tuple(x for x in free_vars(f) if x is not v),
    )


def _counter(f: Function, outer: Call, again: list[Call]) -> int | None:
    """Return the parameter that goes up by one and whose first value is known."""
    for i, p in enumerate(f.params):
        own = p.type.value if isinstance(p.type, IntType) else None
        first = outer.args[i]
        if own is None or own.atom is None or not _is_int(first):
            continue
        if all(isinstance(c.args[i], Const) and c.args[i].value == own + 1 for c in again):  # type: ignore[union-attr]
            return i
    return None


def _is_int(e: Expr) -> bool:
    return isinstance(e, Const) and isinstance(e.value, Int)


def _through_checks(e: Expr, known: Mapping[Var, Expr]) -> tuple[Op | None, tuple[Expr, ...]]:
    """Return the operator that made a value, and its operands; checks on the way do not count."""
    while True:
        while isinstance(e, Var) and e in known:
            e = known[e]
        if not (isinstance(e, Call) and isinstance(e.callee, OpRef)):
            return None, ()
        if e.callee.op not in _CHECKS:
            return e.callee.op, e.args
        e = e.args[0]


def _source(e: Expr, known: Mapping[Var, Expr]) -> Expr:
    """Return the variable that a value is, with checks on the way taken off."""
    while isinstance(e, Var) and e in known:
        made = known[e]
        if isinstance(made, Var):
            e = made
        elif isinstance(made, Call) and isinstance(made.callee, OpRef):
            if made.callee.op not in _CHECKS:
                break
            e = made.args[0]
        else:
            break
    return e


def _stacked(p: Var, steps: list[Expr], f: Function, v: Var, uses: int, known: Mapping[Var, Expr]) -> Role:
    """Whether a parameter is a buffer of rows: written in each turn, else only given back."""
    made = [_through_checks(s, known) for s in steps]
    ops = {op for op, _ in made}
    if len(ops) != 1 or not all(args and _source(args[0], known) is p for _, args in made):
        return Role.CARRIED
    if uses > len({id(s) for s in steps}) + _given_back(p, f, v):
        return Role.CARRIED
    match ops.pop():
        case op if op is SET_ROW:
            return Role.FILLED
        case op if op is PUSH_ROW:
            return Role.GROWN
        case _:
            return Role.CARRIED


def _given_back(p: Var, f: Function, v: Var) -> int:
    """Return how often a parameter is part of a result of the loop."""
    count = 0
    for block in _ends(f.body, v):
        lets, tail = spine(block)
        made = {let.var: let.value for let in lets}
        value = made.get(tail, tail) if isinstance(tail, Var) else tail
        fields = getattr(value, "fields", (value,))
        count += sum(1 for x in fields if x is p)
    return count


def _ends(body: Expr, v: Var) -> Iterator[Expr]:
    """Yield the innermost blocks that end the loop."""
    pending = [body]
    while pending:
        block = pending.pop()
        _, tail = spine(block)
        arms = nested(tail) if not isinstance(tail, Function) else ()
        if arms:
            pending.extend(reversed(arms))
        elif not (isinstance(tail, Call) and tail.callee is v):
            yield block


def _limit(f: Function, v: Var, counter: Var, known: Mapping[Var, Expr]) -> tuple[Int | None, bool]:
    """Return the value at which the counter ends the loop, and whether nothing else does."""
    _, tail = spine(f.body)
    if not isinstance(tail, If) or any(_calls(tail.otherwise, v)):
        return None, False
    straight = all(isinstance(e, Call) and e.callee is v for e in _tails(tail.then))
    conditions = [tail.condition]
    limit: Int | None = None
    only = True
    while conditions:
        op, args = _through_checks(conditions.pop(), known)
        if op is BOOL_AND:
            conditions.extend(args)
        elif op is INT_LESS and limit is None:
            limit = _less(args, counter, f)
            only = only and limit is not None
        else:
            only = False
    return limit, only and straight


def _less(args: tuple[Expr, ...], counter: Var, f: Function) -> Int | None:
    """Return the limit of `counter < limit`, if it is the same in all turns."""
    left, right = args
    own = counter.type.value if isinstance(counter.type, IntType) else None
    if left is not counter and not (isinstance(left, Const) and left.value == own):
        return None
    value = right.value if isinstance(right, Const) else None
    if isinstance(right, Var) and isinstance(right.type, IntType):
        value = right.type.value
    inner = {d.sym for d in f.dims}
    if not isinstance(value, Int) or any(s in inner for s in symbols(value)):
        return None
    return value


def _tails(block: Expr) -> Iterator[Expr]:
    """Yield what a block may end with."""
    pending = [block]
    while pending:
        _, tail = spine(pending.pop())
        arms = nested(tail) if not isinstance(tail, Function) else ()
        if arms:
            pending.extend(reversed(arms))
        else:
            yield tail


def _calls(block: Expr, v: Var) -> Iterator[bool]:
    return (isinstance(e, Call) and e.callee is v for e in values(block))
