"""The evaluator of constant expressions that pipelines hand to passes."""

from __future__ import annotations

from typing import Any

import numpy as np

from inlay.interp.tensor import Meanings, Value, evaluate_expr
from inlay.ir.expr import Expr
from inlay.ir.op import Op
from inlay.ops.table import OperatorTable
from inlay.passes.contract import Evaluator


def operator_meanings(operators: OperatorTable) -> Meanings:
    """Return what the evaluator of the tensor IR asks for: the references of the operators."""

    def meaning(op: Op, attrs: Any, args: tuple[Value, ...]) -> Value:
        return operators.definition(op).evaluate(attrs, *args)

    return meaning


def constant_evaluator(operators: OperatorTable) -> Evaluator:
    """Return a function that computes expressions without free variables, symbols or globals."""
    meanings = operator_meanings(operators)

    def run(expression: Expr) -> object:
        value = evaluate_expr(expression, meanings)
        if isinstance(value, np.ndarray):
            # A view would keep its operand alive; and constants are read-only.
            value = np.array(value, order="C") if value.base is not None else value
            value.flags.writeable = False
        return value

    return run
