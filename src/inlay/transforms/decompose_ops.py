"""Replaces operators by the operators they are made of.

    let i = nonzero(x);      becomes      let is_set = not_equal(x, 0);
                                          let ones = cast(is_set);
                                          let count = reduce_sum(ones);
                                          let k: int[k] = to_control(count);
                                          let i = nonzero_fill(x, k);

An operator is replaced if its record says of what it is made: because no kernel can be made of it, or
because its parts join groups that the whole does not (a split is slices). Dims that only data decide
become the values of control integers on the way.
"""

from __future__ import annotations

from inlay.ir.builder import Builder
from inlay.ir.expr import Call, Expr, OpRef
from inlay.ir.module import Module
from inlay.ops.table import OperatorTable
from inlay.passes.contract import Pass, PassContext, Property
from inlay.transforms._blocks import BlockWriter, rewrite_module


def run(module: Module, context: PassContext) -> Module:
    """Decompose. Cost: linear."""
    operators = context.ops
    assert isinstance(operators, OperatorTable), "tensor passes run with the table of operators"

    def step(block: BlockWriter, value: Expr) -> Expr | None:
        if not isinstance(value, Call) or not isinstance(value.callee, OpRef):
            return None
        definition = operators.definition(value.callee.op)
        if definition.decompose is None:
            return None
        b = Builder()
        b.span = value.span
        result = definition.decompose(b, value.callee.attrs, value.args)
        if result is None:
            return None
        return block.splice(b.finish(result))

    return rewrite_module(module, step)


PASS = Pass(__name__, run, "replace operators by what they are made of", requires=(Property.ANF,))
