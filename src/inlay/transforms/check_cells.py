"""Refuses programs in which a cell could be seen between a `take` and its `put`.

It stands before whatever moves or copies operations: `analysis.linear_cells` says what is asked, and what
is found here stays true, because passes keep the order of effects.
"""

from __future__ import annotations

from inlay.analysis.linear_cells import check_cells
from inlay.ir.module import Module
from inlay.passes.contract import Pass, PassContext, Property


def run(module: Module, context: PassContext) -> Module:
    """Check all functions; the module stays as it is. Cost: linear.

    Raises:
        CompileError: `cell.empty`, `cell.full`, `cell.left-empty`, `cell.arms-differ`, `cell.reached`.
    """
    del context
    check_cells(module)
    return module


PASS = Pass(__name__, run, "check that each take of a cell has its put", requires=(Property.ANF,))
