"""Computes once what is computed twice: common subexpressions, in one block or in blocks around it.

Two operations are the same if they apply the same operator with equal attributes (or the same
constructor or pure function) to the same operands, on the same place. Operands are the same if they
are one variable or equal constants; large arrays are compared by identity, small ones by content.
Operands of commutative operators may be exchanged. An operation that reads or writes a cell is never
the same as another; a check is, since the first one has stopped the program or the second passes.

What differs in place is not merged: a value that two devices compute each for itself would have to be
copied from one to the other.
"""

from __future__ import annotations

from collections.abc import Hashable

from inlay.analysis.effects import Effects, EffectTable, effect_table
from inlay.ir.expr import Call, Expr, OpRef, Project, Tuple, Var
from inlay.ir.module import Module
from inlay.ops.table import OperatorTable
from inlay.passes.contract import Pass, PassContext, Property
from inlay.transforms._blocks import BlockWriter, rewrite_module
from inlay.transforms._same import callee_key, operand_key


def run(module: Module, context: PassContext) -> Module:
    """Share the results of equal operations. Cost: linear, times the depth of nested blocks."""
    table = effect_table(module)
    operators = context.ops
    assert isinstance(operators, OperatorTable), "tensor passes run with the table of operators"

    def step(block: BlockWriter, value: Expr) -> Expr | None:
        key = _key(value, table, operators)
        if key is None:
            return None
        found = block.note(key)
        if isinstance(found, Var):
            return found
        block.remember(key)
        return None

    return rewrite_module(module, step)


def _key(value: Expr, table: EffectTable, operators: OperatorTable) -> Hashable | None:
    """Return what is equal for equal operations, None for what is never equal to another."""
    match value:
        case Call(callee=callee, args=args):
            if table.of_call(callee) & ~Effects.FAILS:
                return None
            head = callee_key(callee)
            parts: Hashable = tuple([operand_key(a) for a in args])
            if isinstance(callee, OpRef) and operators.definition(callee.op).commutative:
                parts = frozenset(parts) if len(set(parts)) == 2 else parts
        case Tuple(fields=fields):
            head, parts = "tuple", tuple([operand_key(f) for f in fields])
        case Project(value=inner, index=index):
            head, parts = ("project", index), operand_key(inner)
        case _:
            return None
    key = (head, parts, value.place)
    try:
        hash(key)
    except TypeError:  # attributes that hold an array
        return None
    return key


PASS = Pass(__name__, run, "compute once what is computed twice", requires=(Property.ANF,))
