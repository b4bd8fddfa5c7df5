"""Writes down at each `on_device` whether it defines a value or is an operand.

`let v = on_device(e, d)` says that `v` is on `d`; `f(on_device(e, d))` says that `e` is, and nothing of
what `f` makes of it. Naming every intermediate value (A-normal form) would make the second look like
the first, so this pass comes before it. Values of lets, tails of bodies, branches and arms, and fields
of tuples are definitions.
"""

from __future__ import annotations

from dataclasses import replace

from inlay.ir.expr import Call, Expr, Function, If, Let, Match, OpRef, Tuple
from inlay.ir.make import op_ref
from inlay.ir.module import Module
from inlay.ir.walk import postorder, rewrite
from inlay.ops.device import OnDeviceAttrs, Position, annotation_of
from inlay.passes.contract import Pass, PassContext, Property


def run(module: Module, context: PassContext) -> Module:
    """Mark every annotation. Cost: linear."""
    del context
    functions = {n: _function(f) for n, f in module.functions.items()}
    if all(f is module.functions[n] for n, f in functions.items()):
        return module
    return module.with_functions(functions)


def _function(function: Function) -> Function:
    nodes = list(postorder(function))
    if not any((w := annotation_of(e)) and w.position is Position.AUTO for e in nodes):
        return function
    defining: set[int] = set()
    for e in nodes:
        defining.update(id(_tail(x)) for x in _definitions(e))
    marked = {
        id(e): Position.DEFINITION if id(e) in defining else Position.OPERAND
        for e in nodes
        if (w := annotation_of(e)) and w.position is Position.AUTO
    }
    # The callee is rewritten: operators have no type, so nothing else has to be typed again.
    callees = {id(e.callee): marked[id(e)] for e in nodes if id(e) in marked and isinstance(e, Call)}

    def mark(e: Expr) -> Expr:
        position = callees.get(id(e))
        if position is None or not isinstance(e, OpRef):
            return e
        assert isinstance(e.attrs, OnDeviceAttrs)
        return op_ref(e.op, replace(e.attrs, position=position), e.span)

    result = rewrite(function, mark)
    assert isinstance(result, Function)
    return result


def _definitions(e: Expr) -> tuple[Expr, ...]:
    match e:
        case Let(value=value):
            return (value,)
        case Function(body=body):
            return (body,)
        case If(then=then, otherwise=otherwise):
            return (then, otherwise)
        case Match(arms=arms):
            return tuple(arm.body for arm in arms)
        case Tuple(fields=fields):
            return fields
        case _:
            return ()


def _tail(e: Expr) -> Expr:
    while isinstance(e, Let):
        e = e.body
    return e


PASS = Pass(__name__, run, "say at each on_device whether it defines a value", requires=(Property.TYPED,))
