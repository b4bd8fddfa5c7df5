"""Replaces operators that have no code of their own by the operators they are made of.

    let i = nonzero(x);      becomes      let is_set = not_equal(x, 0);
                                          let ones = cast(is_set);
                                          let count = reduce_sum(ones);
                                          let k: int[k] = to_control(count);
                                          let i = nonzero_fill(x, k);

An operator is replaced if its record has neither a compute rule nor a loops rule: then no kernel can
be made of it. Dims that only data decide become the values of control integers on the way.
"""

from __future__ import annotations

from inlay.ir.builder import Builder
from inlay.ir.expr import Call, Expr, OpRef
from inlay.ir.module import Module
from inlay.ops.table import OperatorTable
from inlay.passes.contract import Pass, PassContext, Property
from inlay.transforms._blocks import Block, rewrite_module


def run(module: Module, context: PassContext) -> Module:
    """Decompose. Cost: linear."""
    operators = context.ops
    assert isinstance(operators, OperatorTable), "tensor passes run with the table of operators"

    def step(block: Block, value: Expr) -> Expr | None:
        if not isinstance(value, Call) or not isinstance(value.callee, OpRef):
            return None
        definition = operators.definition(value.callee.op)
        if definition.decompose is None or definition.compute or definition.loops:
            return None
        b = Builder()
        b.span = value.span
        result = definition.decompose(b, value.callee.attrs, value.args)
        return block.splice(b.finish(result))

    return rewrite_module(module, step)


PASS = Pass(
    __name__,
    run,
    "replace operators without code of their own by what they are made of",
    requires=(Property.ANF,),
)
