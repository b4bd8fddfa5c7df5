"""The evaluator of constant expressions that pipelines hand to passes."""

from __future__ import annotations

import numpy as np

from inlay.interp.tensor import evaluate
from inlay.ir.expr import Expr, Function
from inlay.ir.module import Module
from inlay.ir.types import FuncType
from inlay.ops.table import OperatorTable
from inlay.passes.contract import Evaluator


def constant_evaluator(operators: OperatorTable) -> Evaluator:
    """Return a function that computes expressions without free variables, symbols or globals."""

    def run(expression: Expr) -> object:
        main = Function((), expression, FuncType((), expression.type), expression.span)
        value = evaluate(Module({"main": main}), (), operators)
        if isinstance(value, np.ndarray):
            # A view of an operand must not keep that alive, nor be written through it.
            value = np.array(value, order="C") if value.base is not None else value
            value.flags.writeable = False
        return value

    return run
