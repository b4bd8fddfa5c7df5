"""Products with a matrix that is prepared for nothing else: scaled, or transposed for a few rows.

A decoder multiplies the query of one token with its keys, which are transposed for that: a copy of all keys
for one row, or for the few of heads that share keys. With sides changed, the product reads them where they
are. Exporters of PyTorch scale queries and keys, each by the root of the scale of scores: that is a copy of
all keys too, and a factor of the queries does the same.
"""

from __future__ import annotations

from inlay.arith.expr import lit
from inlay.ir import make
from inlay.ir.expr import Expr
from inlay.ir.types import TensorType
from inlay.ops.layout import PermAttrs
from inlay.transforms._rules.rule_match import Rule, RuleMatch, array, attrs_of, scalar

FEW_ROWS = 8
"""Rows that are cheaper to multiply one by one with rows of a matrix than with a transposed copy of it."""
LONG = 64
"""From so many terms and columns on: short rows are not added by vectors, and few are copied in no time."""
SMALLEST = 2.0**-16
"""Least factor that changes sides: with one of 1 at most nothing overflows that did not before, and with
this only rows below 1e-33 leave the normal numbers."""


def _factor_of_matrix(matched: RuleMatch) -> Expr | None:
    """`rows @ (matrix * c)` is `(rows * c) @ matrix`, where nobody else needs the matrix times c.

    It is not for rows that are more than the columns of the matrix, unless they have a factor already.
    """
    rows, right = matched.args
    scaled = matched.only_producer(right, "mul")
    if scaled is None or not isinstance(rows.type, TensorType) or not isinstance(right.type, TensorType):
        return None
    if not rows.type.dtype.is_float or rows.type.dtype.bits < 32 or array(rows) is not None:
        return None
    for matrix, factor in (scaled.args, scaled.args[::-1]):
        number = scalar(factor)
        if number is None or not SMALLEST <= abs(number) <= 1 or matrix.type != right.type:
            continue
        if matched.producer(rows, "mul") is None and _is_tall(rows.type, right.type):
            return None
        lesser = matched.bind("mul", (rows, factor))
        return matched.make("matmul", (lesser, matrix)) if lesser.type == rows.type else None
    return None


def _is_tall(rows: TensorType, matrix: TensorType) -> bool:
    """Whether a product has more rows than columns, or may have so many."""
    if len(rows.shape) < 2 or len(matrix.shape) < 2:
        return False
    count, columns = rows.shape[-2].value, matrix.shape[-1].value
    return count is None or (columns is not None and count > columns)


def _rows_by_transposed(matched: RuleMatch) -> Expr | None:
    """`rows @ transpose(matrix)` is `matrix @ column` for each row, where nobody else needs the transpose.

    Several rows are an axis in front of the matrix, which is the same for all of them.
    """
    rows, right = (x.type for x in matched.args)
    if not isinstance(rows, TensorType) or not isinstance(right, TensorType) or matched.type is None:
        return None
    if not rows.dtype.is_float or len(rows.shape) < 2 or len(right.shape) < 2 or right.shape[-1] == 1:
        return None
    count = rows.shape[-2].value
    is_short = any(n.value is not None and n.value < LONG for n in right.shape[-2:])
    if count is None or count > FEW_ROWS or (count > 1 and is_short):
        return None
    transpose = matched.only_producer(matched.args[1], "transpose")
    if transpose is None or not isinstance(transpose.args[0].type, TensorType):
        return None
    perm = attrs_of(transpose, PermAttrs).perm
    last = len(perm) - 1
    if perm[-2] != last:  # its last axis is summed over
        return None
    span, matrix = matched.call.span, transpose.args[0]
    shape, order = transpose.args[0].type.shape, (*perm[:-2], perm[-1], last)
    if count > 1:
        matrix = matched.bind("reshape", (matrix, make.shape_const((*shape[:-1], lit(1), shape[-1]), span)))
        order = (*perm[:-2], last, perm[-1], last + 1)
    lying = matched.bind("transpose", (matrix,), PermAttrs(order))
    ends = (rows.shape[-1], lit(1)) if count == 1 else (lit(count), rows.shape[-1], lit(1))
    column = matched.bind("reshape", (matched.args[0], make.shape_const((*rows.shape[:-2], *ends), span)))
    product = matched.bind("matmul", (lying, column))
    return matched.make("reshape", (product, make.shape_const(matched.type.shape, span)))


RULES: dict[str, tuple[Rule, ...]] = {"matmul": (_factor_of_matrix, _rows_by_transposed)}
