"""Lets what a loop carries grow where it is: concatenation to its end becomes `extend`.

    loop(int(i + 1), concat{axis=0}(past, x))      becomes
    loop(int(i + 1), extend{axis=0}(past, x))

`concat` is a kernel that copies all its operands into a new tensor: over n turns that is quadratic in
n. `extend` is an instruction that adds to its first operand in place where nobody else sees it and its
storage has room, and that takes twice as much room where it has not: linear in n. It needs dims of 1
before the axis, because only then does what is added come behind what is there.

Only what a loop carries is rewritten: the result comes round as the operand. Elsewhere a concatenation
has one turn, and its result a place in the plan of its function.
"""

from __future__ import annotations

from collections.abc import Mapping

from inlay.analysis.blocks import definitions, values
from inlay.analysis.loops import loops_of
from inlay.ir.core_ops import CHECK_AT_LEAST, CHECK_EQUAL, CHECK_SHAPE
from inlay.ir.expr import Call, Expr, Function, OpRef, Var
from inlay.ir.module import Module
from inlay.ir.types import TensorType
from inlay.ops.layout import EXTEND, AxisAttrs
from inlay.passes.contract import Pass, PassContext, Property
from inlay.transforms._blocks import Block, rewrite_function

_CHECKS = (CHECK_SHAPE, CHECK_EQUAL, CHECK_AT_LEAST)


def run(module: Module, context: PassContext) -> Module:
    """Rewrite what loops carry. Cost: linear."""
    del context
    return module.with_functions({n: _rewrite(f) for n, f in module.functions.items()})


def _rewrite(function: Function) -> Function:
    growing = _growing(function)
    if not growing:
        return function

    def step(block: Block, value: Expr) -> Expr | None:
        if block.variable not in growing:
            return None
        assert isinstance(value, Call), "what grows is the result of a concatenation"
        assert isinstance(value.callee, OpRef), "what grows is the result of a concatenation"
        grown, *rest = value.args
        for other in rest[:-1]:
            grown = block.call(EXTEND, (grown, other), value.callee.attrs)
        return block.make(EXTEND, (grown, rest[-1]), value.callee.attrs)

    return rewrite_function(function, step)


def _growing(function: Function) -> set[Var]:
    """Return the variables of concatenations whose result comes round as their first operand."""
    known = definitions(function.body)
    found: set[Var] = set()
    for loop in loops_of(function):
        for value in values(loop.function.body):
            if isinstance(value, Call) and value.callee is loop.var:
                for param, arg in zip(loop.function.params, value.args, strict=True):
                    made = _unchecked(arg, known)
                    if isinstance(made, Var) and _grows(param, known.get(made), known):
                        found.add(made)
    return found


def _grows(param: Var, value: Expr | None, known: Mapping[Var, Expr]) -> bool:
    if not (isinstance(value, Call) and isinstance(value.callee, OpRef)):
        return False
    attrs, t = value.callee.attrs, value.args[0].type
    if value.callee.op.name != "concat" or len(value.args) < 2 or not isinstance(t, TensorType):
        return False
    assert isinstance(attrs, AxisAttrs), "concat has an axis"
    before = t.shape[: attrs.axis % len(t.shape)]
    return all(d == 1 for d in before) and _unchecked(value.args[0], known) is param


def _unchecked(e: Expr, known: Mapping[Var, Expr]) -> Expr:
    """Return the variable that an operand is, with checks on the way taken off."""
    while isinstance(e, Var):
        made = known.get(e)
        if isinstance(made, Var):
            e = made
        elif (
            isinstance(made, Call)
            and isinstance(made.callee, OpRef)
            and made.callee.op in _CHECKS
        ):
            e = made.args[0]
        else:
            break
    return e


PASS = Pass(
    __name__,
    run,
    "let what loops carry grow where it is",
    requires=(Property.ANF,),
)
