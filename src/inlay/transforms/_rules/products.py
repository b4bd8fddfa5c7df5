"""Products of one row with a transposed matrix: the matrix is read as it lies, and the row is a column.

A decoder multiplies the query of one token with its keys, which are transposed for that: a copy of all keys
for one row. The product with sides changed reads them where they are.
"""

from __future__ import annotations

from inlay.ir import make
from inlay.ir.expr import Expr
from inlay.ir.types import TensorType
from inlay.ops.layout import PermAttrs
from inlay.transforms._rules.rule_match import Rule, RuleMatch, attrs_of


def _row_by_transposed(matched: RuleMatch) -> Expr | None:
    """`row @ transpose(matrix)` is `matrix @ column`, where nobody else needs the transpose."""
    row, right = (x.type for x in matched.args)
    if not isinstance(row, TensorType) or not isinstance(right, TensorType) or matched.type is None:
        return None
    if not row.dtype.is_float or len(row.shape) < 2 or len(right.shape) < 2 or row.shape[-2] != 1:
        return None
    transpose = matched.only_producer(matched.args[1], "transpose")
    if transpose is None:
        return None
    perm = attrs_of(transpose, PermAttrs).perm
    if perm[-2] != len(perm) - 1 or right.shape[-1] == 1:  # its last axis is summed over
        return None
    lying = matched.bind("transpose", transpose.args, PermAttrs((*perm[:-2], perm[-1], perm[-2])))
    span = matched.call.span
    shape = make.shape_const((*row.shape[:-2], row.shape[-1], row.shape[-2]), span)
    column = matched.bind("reshape", (matched.args[0], shape))
    product = matched.bind("matmul", (lying, column))
    return matched.make("reshape", (product, make.shape_const(matched.type.shape, span)))


RULES: dict[str, tuple[Rule, ...]] = {"matmul": (_row_by_transposed,)}
