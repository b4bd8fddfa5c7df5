"""Puts independent lines into the order in which they should begin.

    let a = neg(x);      // short            let b = matmul(x, w);
    let b = matmul(x, w);                    let c = matmul(b, w);
    let c = matmul(b, w);             ->     let a = neg(x);
    (a, c)                                   (a, c)

Devices run what they are given in the order of the program, so a line that much waits for should not
stand behind one that nothing waits for. Of the lines that can run, the one goes first from which the
longest path leads to the end, each line counted at the time of the device that is fastest for it (list
scheduling by critical path). Of equal ones the text decides and not where they stood, so two programs
that differ in the order of independent lines alone become one.

What has effects, and what calls or branches, stays where it is between the others: nothing moves across
it. What may fail (checks) keeps its order.

Source: Coffman and Graham, "Optimal scheduling for two-processor systems", 1972, and what followed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from inlay.analysis.blocks import operands, with_blocks
from inlay.base.graph import dependency_order
from inlay.ir import make
from inlay.ir.dims import free_symbols
from inlay.ir.existentials import opened_dims
from inlay.ir.expr import Call, Const, Expr, Function, Let, OpRef, Project, Tuple, Var
from inlay.ir.module import Module
from inlay.ir.op import Effect
from inlay.ir.type_printer import type_text
from inlay.ir.walk import spine

Cost = Callable[[Call], float]
"""Gives the least predicted nanoseconds of an operation."""


def in_order(module: Module, cost: Cost) -> Module:
    """Return the module with independent lines by their longest path to the end.

    Requires A-normal form. Cost: linear, but for sorting. The same module where nothing changes.
    """
    functions = {
        name: f if f.primitive is not None else _function(f, cost) for name, f in module.functions.items()
    }
    if all(f is module.functions[n] for n, f in functions.items()):
        return module
    return module.with_functions(functions)


def _function(function: Function, cost: Cost) -> Function:
    body = _block(function.body, cost)
    return function if body is function.body else replace(function, body=body)


def _block(block: Expr, cost: Cost) -> Expr:
    lets, tail = spine(block)
    ordered = [lets[i] for i in _order(lets, cost)]
    result = _inner(tail, cost)
    changed = result is not tail or any(a is not b for a, b in zip(lets, ordered, strict=True))
    values = [_inner(let.value, cost) for let in ordered]
    if not changed and all(v is let.value for v, let in zip(values, ordered, strict=True)):
        return block
    for let, value in zip(reversed(ordered), reversed(values), strict=True):
        result = make.let(let.var, value, result, span=let.span, place=let.place)
    return result


def _inner(value: Expr, cost: Cost) -> Expr:
    """Put the blocks inside a value in order."""
    return with_blocks(value, lambda block: _block(block, cost))


def _order(lets: Sequence[Let], cost: Cost) -> list[int]:
    """Return the indices of lines in their new order."""
    before = _before(lets)
    longest = [0.0] * len(lets)
    for i in reversed(range(len(lets))):
        value = lets[i].value
        if isinstance(value, Call) and isinstance(value.callee, OpRef):
            longest[i] += cost(value)
        for k in before[i]:
            longest[k] = max(longest[k], longest[i])
    found = dependency_order(before, list(zip((-x for x in longest), _words(lets), strict=True)))
    assert found is not None, "lines read what is above them"
    return found


def _before(lets: Sequence[Let]) -> list[dict[int, None]]:
    """Return what each line must follow: what it reads, and what stays where it is."""
    lines: list[dict[int, None]] = []
    places: dict[object, int] = {}
    fixed = failing = -1
    for i, let in enumerate(lets):
        before: dict[int, None] = {}
        if not _may_move(let.value):
            before.update((k, None) for k in range(max(fixed, 0), i))
            fixed = i
        else:
            reads = operands(let.value)
            types = (let.value.type, let.var.type, *(x.type for x in reads))
            symbols = (s for t in types for s in free_symbols(t))
            before.update((places[x], None) for x in (*reads, *symbols) if x in places)
            if fixed >= 0:
                before[fixed] = None
            if _fails(let.value):
                if failing >= 0:
                    before[failing] = None
                failing = i
        places[let.var] = i
        places.update((d.sym, i) for d in opened_dims(let.value.type, let.var.type))
        lines.append(before)
    return lines


def _fails(value: Expr) -> bool:
    return (
        isinstance(value, Call) and isinstance(value.callee, OpRef) and value.callee.op.effect is Effect.FAILS
    )


def _may_move(value: Expr) -> bool:
    """Whether a line does nothing but to compute its value, and no other block is in it."""
    match value:
        case Call(callee=OpRef(op=op)):
            return op.effect in (Effect.PURE, Effect.FAILS)
        case Tuple() | Project() | Const() | Var():
            return True
        case _:
            return False


def _words(lets: Sequence[Let]) -> list[str]:
    """Return what tells lines apart that are as urgent: what they compute, from what."""
    known: dict[Var, str] = {}
    found: list[str] = []
    for let in lets:
        value = let.value
        parts = [type(value).__name__, type_text(value.type)]
        if isinstance(value, Project):
            parts.append(str(value.index))
        parts += [_word(x, known) for x in operands(value)]
        known[let.var] = hashlib.blake2b("\0".join(parts).encode(), digest_size=8).hexdigest()
        found.append(known[let.var])
    return found


def _word(operand: Expr, known: Mapping[Var, str]) -> str:
    match operand:
        case Var(name=name):
            return known.get(operand, name)
        case OpRef(op=op, attrs=attrs):
            return f"{op.name} {attrs}"
        case _:
            return type_text(operand.type)
