"""Rows of tensors in straight code: what `get_row` and `set_row` of known numbers are without their effects.

    row k of x  =  reshape(slice{axes=[0]}(x, shape(k), shape(k + 1), shape(1)), shape(...))
    x of rows   =  concat{axis=0}(reshape(row, shape(1, ...)), ...)

Of a tensor of one row, which streaming models read in each call, the slice is left out.

`transforms/unroll_loops.py` writes rows in this form, and so do models whose loops were unrolled before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from inlay.ir.expr import Call, Const, Expr, OpRef, Var
from inlay.ir.op import Op
from inlay.ir.types import TensorType
from inlay.ops.joining import CONCAT, AxisAttrs
from inlay.ops.layout import RESHAPE
from inlay.ops.slicing import SLICE, AxesAttrs


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a tensor.

    Attributes:
        whole: the tensor.
        number: of the row.
        value: the row.
        calls: operations that take it out, or put it in.
    """

    whole: Expr
    number: int
    value: Expr
    calls: tuple[Call, ...]


def row_of(calls: Mapping[Var, Call], e: Expr) -> Row | None:
    """Return of which tensor a value is a row, if it is one."""
    outer = _made_by(calls, e, RESHAPE)
    inner = None if outer is None else _made_by(calls, outer.args[0], SLICE)
    if outer is not None and inner is None and _extent(outer.args[0]) == 1 and _is_row(e, outer.args[0]):
        return Row(outer.args[0], 0, e, (outer,))
    if outer is None or inner is None or not isinstance(inner.callee, OpRef):
        return None
    attrs, whole = inner.callee.attrs, inner.args[0]
    if not isinstance(attrs, AxesAttrs) or tuple(attrs.axes) != (0,) or not _is_row(e, whole):
        return None
    begin, end, step = (_number(a) for a in inner.args[1:])
    if begin is None or begin < 0 or end != begin + 1 or step != 1:
        return None
    return Row(whole, begin, e, (inner, outer))


def rows_of(calls: Mapping[Var, Call], e: Expr) -> list[Row]:
    """Return the rows that a tensor is made of, in order; none where it is made in another way."""
    join = _made_by(calls, e, CONCAT)
    attrs = join.callee.attrs if join is not None and isinstance(join.callee, OpRef) else None
    if join is None:
        parts: tuple[Expr, ...] = (e,)
    elif isinstance(attrs, AxisAttrs) and attrs.axis == 0:
        parts = join.args
    else:
        return []
    found: list[Row] = []
    for number, part in enumerate(parts):
        lines = _made_by(calls, part, RESHAPE)
        if lines is None or not _is_row(lines.args[0], part) or _extent(part) != 1:
            return []
        found.append(Row(e, number, lines.args[0], (lines,) if join is None else (lines, join)))
    return found


def _made_by(calls: Mapping[Var, Call], e: Expr, op: Op) -> Call | None:
    call = calls.get(e) if isinstance(e, Var) else None
    return call if call is not None and isinstance(call.callee, OpRef) and call.callee.op is op else None


def _is_row(row: Expr, whole: Expr) -> bool:
    """Whether a value has the shape of a row of another one."""
    a, b = row.type, whole.type
    return isinstance(a, TensorType) and isinstance(b, TensorType) and a.shape == b.shape[1:]


def _extent(e: Expr) -> int | None:
    return e.type.shape[0].value if isinstance(e.type, TensorType) and e.type.shape else None


def _number(e: Expr) -> int | None:
    value = e.value if isinstance(e, Const) else None
    return value[0].value if isinstance(value, tuple) and len(value) == 1 else None
