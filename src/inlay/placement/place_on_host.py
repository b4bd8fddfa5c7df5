"""Places on the host what nobody placed: the plan for a board with one device.

Every operation that computes a value gets a place, so that what follows (grouping into kernels,
storage, reports) reads where things are off the program and asks nobody. A place that the user wrote
stays. Boards with several devices need a planner that chooses; this pass is what is left when there
is nothing to choose.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from inlay.base.options import option
from inlay.ir.expr import Arm, Call, Expr, Function, If, Let, Match, OpRef
from inlay.ir.module import Module
from inlay.ir.place import Place
from inlay.ir.walk import spine
from inlay.passes.contract import Pass, PassContext, Property


@dataclass(frozen=True, slots=True)
class HostOptions:
    """Options of this pass."""

    device: str = option("cpu", help="the device that runs what nobody placed")


def run(module: Module, context: PassContext) -> Module:
    """Place every operation. Cost: linear."""
    place = Place(context.options_for(HostOptions).device)
    return module.with_functions({n: _function(f, place) for n, f in module.functions.items()})


def _function(function: Function, place: Place) -> Function:
    body = _block(function.body, place)
    return function if body is function.body else replace(function, body=body)


def _block(block: Expr, place: Place) -> Expr:
    lets, tail = spine(block)
    result = _value(tail, place)
    changed = result is not tail
    for let in reversed(lets):
        value = _value(let.value, place)
        changed = changed or value is not let.value
        result = Let(let.var, value, result, let.type, let.span, let.place) if changed else let
    return result


def _value(value: Expr, place: Place) -> Expr:
    match value:
        case Call(callee=OpRef(), place=None):
            return Call(value.callee, value.args, value.type, value.span, place)
        case Function():
            return _function(value, place)
        case If(then=then, otherwise=otherwise):
            arms = _block(then, place), _block(otherwise, place)
            if arms == (then, otherwise):
                return value
            return replace(value, then=arms[0], otherwise=arms[1])
        case Match(arms=arms):
            placed = tuple(Arm(a.pattern, _block(a.body, place)) for a in arms)
            if all(new.body is old.body for new, old in zip(placed, arms, strict=True)):
                return value
            return replace(value, arms=placed)
        case _:
            return value


PASS = Pass(
    __name__,
    run,
    "place on the host what nobody placed",
    requires=(Property.ANF,),
    establishes=(Property.PLACED,),
    options=HostOptions,
)
