"""What goes round a loop: the storages that its parameters may show, and the fields of its results.

    loop(int(0), x, a, b)                            h may show x, a, b; next and spare may show a, b
    let loop = fn(i, h, next, spare) {
      .. loop(int(i + 1), next, spare, next) ..

Parameters are followed through jumps until nothing is added. What a jump gives that is made in the turn,
or that is not seen to be a parameter or from outside, is left to the caller: it is not in the answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from inlay.analysis.blocks import definitions, nested, spine, values
from inlay.ir.expr import Call, Expr, Function, If, Match, OpRef, Var
from inlay.memory.aliases import NOTHING

Refers = frozenset[Var]
"""Variables of storages."""


def carried_by(
    callee: Var, loop: Function, given: Sequence[Refers], outside: Mapping[Var, Refers]
) -> list[Refers]:
    """Return what the parameters of a loop may refer to, from what it is entered with.

    Cost: linear in the loop, times its parameters.

    Args:
        callee: the variable of the loop.
        loop: its function.
        given: what the operands refer to with which it is entered.
        outside: what variables bound before the loop refer to.
    """
    known = definitions(loop.body)
    position = {p: i for i, p in enumerate(loop.params)}
    found = list(given)
    edges: set[tuple[int, int]] = set()
    for value in values(loop.body):
        if not isinstance(value, Call) or value.callee is not callee:
            continue
        for i, arg in enumerate(value.args):
            source = _viewed(arg, known)
            if isinstance(source, Var) and source in position:
                edges.add((position[source], i))
            elif isinstance(source, Var) and source not in known:
                found[i] |= outside.get(source, NOTHING)
    for _ in loop.params:
        before = list(found)
        for source, to in sorted(edges):
            found[to] |= found[source]
        if found == before:
            break
    return found


def results_of(callee: Var, loop: Function, fields: Mapping[Var, Sequence[Refers]]) -> list[Refers] | None:
    """Return what the fields of a loop's result refer to; None where that is not seen.

    Args:
        callee: the variable of the loop.
        loop: its function.
        fields: of tuples in the loop.
    """
    ends: list[Sequence[Refers]] = []
    pending = [loop.body]
    while pending:
        _, tail = spine(pending.pop())
        match tail:
            case If() | Match():
                pending.extend(nested(tail))
            case Call(callee=Var() as jump) if jump is callee:
                pass
            case Var() if tail in fields:
                ends.append(fields[tail])
            case _:
                return None
    if not ends or len({len(x) for x in ends}) != 1:
        return None
    return [NOTHING.union(*parts) for parts in zip(*ends, strict=True)]


def _viewed(arg: Expr, known: Mapping[Var, Expr]) -> Expr:
    """Return what a variable shows another view of."""
    while isinstance(arg, Var):
        match known.get(arg):
            case Var() as value:
                arg = value
            case Call(callee=OpRef(op=op), args=args) if op.alias is not None:
                arg = args[op.alias]
            case _:
                return arg
    return arg
