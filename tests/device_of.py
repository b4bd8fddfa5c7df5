"""Where any expression lives, read off the program alone.

A placed program says it on binders, operations and branches; everything else follows: a variable is
where its value is, a let where its body is, a field of a tuple literal where that field is.
"""

from __future__ import annotations

from inlay.ir.expr import (
    Const,
    ConstructorRef,
    Expr,
    Function,
    GlobalVar,
    Let,
    OpRef,
    Project,
    RefRead,
    RefTake,
    Tuple,
    Var,
)
from inlay.ir.module import Module
from inlay.ir.place import Place


def place_of(e: Expr, module: Module | None = None) -> Place | None:
    """Return the place of the value of an expression; see `ir.place` for values with parts.

    Args:
        e: an expression of a placed program.
        module: where its globals are; without it they have no place.

    Returns:
        None for what has no place of its own: constants that an operation reads, control values,
        operators.
    """
    while isinstance(e, Let):
        e = e.body
    match e:
        case Const() | OpRef() | ConstructorRef():
            return e.place
        case GlobalVar(name=name):
            found = None if module is None else module.functions.get(name)
            return e.place if found is None else function_place(found)
        case Function():
            return function_place(e)
        case Var():
            return e.place
        case Tuple(fields=fields) if e.place is None:
            return Place("", fields=tuple(place_of(f, module) for f in fields))
        case Project(value=value, index=index) if e.place is None:
            return part(place_of(value, module), index)
        case RefRead(ref=ref) | RefTake(ref=ref) if e.place is None:
            return part(place_of(ref, module), 0)
        case _:
            return e.place


def device_of(e: Expr, module: Module | None = None) -> str:
    """Return the device that the value of an expression is on, empty where it has none or several."""
    place = place_of(e, module)
    return "" if place is None else place.device


def function_place(function: Function) -> Place:
    """Return the places of the parameters and, last, of the result of a function."""
    return Place("", fields=(*(p.place for p in function.params), function.place))


def part(place: Place | None, index: int) -> Place | None:
    """Return the place of a part of a value: its own, or that of the whole."""
    if place is None or not place.fields:
        return place
    return place.fields[index] if index < len(place.fields) else None
