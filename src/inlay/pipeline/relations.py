"""What the checks of a program demand of the sizes of its inputs, as data beside the program.

A relation that the compiler could not prove is checked when the program runs. Many of these relate
dims of inputs alone: the padded width is at least that of the window, a size divides another. Who has
to choose sizes, as a command that runs a model on random inputs, solves them first. They are advice:
checks of sizes that only the running program knows are not among them, and checks inside branches
may not be reached.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from inlay.analysis.blocks import nested
from inlay.arith.expr import FloorDiv, Int, Max, Min, Mod, Sym, symbols
from inlay.bytecode.formula import Arg, Formula
from inlay.bytecode.of_integers import formula
from inlay.ir.core_ops import CHECK_AT_LEAST, CHECK_EQUAL, CHECK_SHAPE, CheckAttrs, LeastAttrs
from inlay.ir.expr import Call, Const, Expr, Function, If, Let, Match, OpRef
from inlay.ir.module import Module
from inlay.ir.types import ShapeType, TensorType

_MOST_STEPS = 400
"""Of one formula: sizes nest, and a formula has no names for what it repeats."""

_MOST_STEPS_IN_ALL = 20_000
"""Of all formulas of an entry."""


def relations_text(module: Module) -> str:
    """Return the relations of all entries as JSON, which is the property `RELATIONS`."""
    found = {name: _of_entry(module.functions[name]) for name in _entries(module)}
    return json.dumps(found, sort_keys=True, separators=(",", ":"))


def _entries(module: Module) -> tuple[str, ...]:
    names = dict.fromkeys((*module.entries, module.entry))
    return tuple(name for name in names if name in module.functions)


def _of_entry(function: Function) -> list[Mapping[str, Any]]:
    """Return the relations of a function between its own dims, each once.

    A value that must be 0, or at least `least`, is a formula in postfix form; a list of one name in
    it is a dim.
    """
    names: dict[str, list[Sym]] = {}
    for d in function.dims:
        names.setdefault(d.sym.name, []).append(d.sym)
    dims = {same[0]: i for i, same in enumerate(names.values()) if len(same) == 1}
    labels = list(names)
    sizes: dict[Int, int] = {}
    found: dict[tuple[Int, int | None], Mapping[str, Any]] = {}
    total = 0
    for value, least, why, where, always in _demands(function.body):
        mentioned = symbols(value)
        if (value, least) in found or not mentioned or any(s not in dims for s in mentioned):
            continue
        total += _steps(value, sizes)
        if _steps(value, sizes) > _MOST_STEPS or total > _MOST_STEPS_IN_ALL:
            continue
        steps = formula(value, dims)
        assert steps is not None, "all its symbols are dims of the function"
        found[value, least] = {
            "value": _plain(steps, labels),
            "least": least,
            "why": why,
            "where": where,
            "always": always,
        }
    return list(found.values())


def _plain(steps: Formula, labels: list[str]) -> list[object]:
    return [[labels[s.index]] if isinstance(s, Arg) else s for s in steps]


def _demands(body: Expr) -> Iterator[tuple[Int, int | None, str, str, bool]]:
    """Return what checks demand: a value that is 0 or at least a number, and whether always."""
    pending = [(body, True)]
    while pending:
        block, always = pending.pop()
        while True:
            value = block.value if isinstance(block, Let) else block
            for demand in _of_check(value):
                yield (*demand, value.span.name, always)
            inside = always and not isinstance(value, If | Match)
            pending += [(inner, inside) for inner in nested(value)]
            if not isinstance(block, Let):
                break
            block = block.body


def _of_check(value: Expr) -> Iterator[tuple[Int, int | None, str]]:
    match value:
        case Call(
            callee=OpRef(op=op, attrs=CheckAttrs(why=why)),
            args=(_, Const(held=Int() as a), Const(held=Int() as b)),
        ) if op is CHECK_EQUAL:
            yield a - b, None, why
        case Call(
            callee=OpRef(op=op, attrs=LeastAttrs(low=low, why=why)), args=(_, Const(held=Int() as a))
        ) if op is CHECK_AT_LEAST:
            yield a, low, why
        case Call(callee=OpRef(op=op, attrs=CheckAttrs(why=why)), args=(x, shape)) if op is CHECK_SHAPE:
            if isinstance(x.type, TensorType) and isinstance(shape.type, ShapeType):
                for d, s in zip(x.type.shape, shape.type.values, strict=True):
                    if s is not None and d != s:
                        yield d - s, None, why
        case _:
            pass


def _steps(e: Int, known: dict[Int, int]) -> int:
    """Return how long the formula of an integer is; parts that it repeats are counted once each."""
    found = known.get(e)
    if found is None:
        found = 0
        for monomial, _ in e.terms:
            found += 3
            for atom in monomial:
                match atom:
                    case Sym():
                        found += 2
                    case FloorDiv(numerator=a, denominator=b) | Mod(numerator=a, denominator=b):
                        found += 2 + _steps(a, known) + _steps(b, known)
                    case Min(args=args) | Max(args=args):
                        found += sum(2 + _steps(a, known) for a in args)
        known[e] = found
    return found
