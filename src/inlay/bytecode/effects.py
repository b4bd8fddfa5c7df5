"""Effects of functions: what their code says, and what follows for those that name them.

A function has the effects of its own instructions and those of every function that it names, whether
it calls it or makes a closure of it. So what a type says is checked one function at a time (`of` each
instruction is in the effects of its function), in linear time and without a fixed point; who makes a
program finds the least that passes (`closed`). Functions that come as values are not named: what they
may do is in the value, and the machine looks there when a call begins (design 0034).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from inlay.bytecode.program import Effects

_NAMES_FUNCTION = frozenset({"CALL", "TAIL_CALL", "SPAWN", "CLOSURE"})
HAVE_EFFECTS = _NAMES_FUNCTION | {"INVOKE", "CELL_NEW"}
"""Instructions for which `of` may give something, or that name a function."""


def of(
    name: str, operand: int, function: Callable[[int], Effects], is_ordered: Callable[[int], bool]
) -> Effects:
    """Return the effects of an instruction in `HAVE_EFFECTS`, given those of functions and kernels."""
    match name:
        case "INVOKE":
            return Effects.ORDERED if is_ordered(operand) else Effects.NONE
        case "CELL_NEW":
            return Effects.CELLS
        case _:
            return function(operand)


def names_function(name: str) -> bool:
    """Return whether the first operand of an instruction is a function whose effects it has."""
    return name in _NAMES_FUNCTION


def closed(own: Sequence[Effects], named: Sequence[Sequence[int]]) -> list[Effects]:
    """Return the effects of functions, given those of their own code and whom each of them names.

    Cost: linear in the names.
    """
    namers: list[list[int]] = [[] for _ in own]
    for index, callees in enumerate(named):
        for callee in dict.fromkeys(callees):
            namers[callee].append(index)
    found = list(own)
    pending = [index for index, effects in enumerate(found) if effects]
    while pending:
        index = pending.pop()
        for namer in namers[index]:
            joined = found[namer] | found[index]
            if joined != found[namer]:
                found[namer] = joined
                pending.append(namer)
    return found
