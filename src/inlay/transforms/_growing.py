"""What grows: concatenations to the end of a value, and how they are written so that it stays where it is.

`extend` adds to its first operand in place. It needs dims of 1 before the axis; where others stand there, the
value is carried with that axis first, and read through a transpose.
"""

from __future__ import annotations

from collections.abc import Mapping

from inlay.ir import make
from inlay.ir.entry_state import has_axis_first
from inlay.ir.expr import Call, Expr, Function, Let, OpRef, Tuple, Var
from inlay.ir.op import Op
from inlay.ir.types import TensorType
from inlay.ir.walk import spine
from inlay.ops.joining import EXTEND, AxisAttrs
from inlay.ops.layout import PermAttrs

Written = list[tuple[Var, Expr, Let | None]]
"""Lets of a new block: variable, value, and the let of the old block whose span and place it has."""


def growth_axis(param: Var, arg: Expr, known: Mapping[Var, Expr]) -> int | None:
    """Return the axis along which a value is a variable and more behind it; None where it is not."""
    value = known.get(arg) if isinstance(arg, Var) else None
    if not (isinstance(value, Call) and isinstance(value.callee, OpRef)):
        return None
    attrs, t = value.callee.attrs, value.args[0].type
    if value.callee.op.name != "concat" or len(value.args) < 2 or value.args[0] is not param:
        return None
    assert isinstance(attrs, AxisAttrs), "concat has an axis"
    assert isinstance(t, TensorType), "concat is of tensors"
    return None if param in value.args[1:] else attrs.axis % len(t.shape)


def fields_of(function: Function, count: int) -> tuple[Expr, ...]:
    """Return what an entry with so many outputs gives, by output; none where that is not written there."""
    lets, tail = spine(function.body)
    if count == 1:
        return (tail,)
    if isinstance(tail, Var):
        tail = next((let.value for let in lets if let.var is tail), tail)
    return tail.fields if isinstance(tail, Tuple) and len(tail.fields) == count else ()


def carried_var(var: Var, axis: int) -> Var:
    """Return what is carried for a variable that grows along an axis: itself, or with that axis first."""
    t = var.type
    assert isinstance(t, TensorType), "only tensors grow"
    if not has_axis_first(t, axis):
        return var
    first = TensorType((t.shape[axis], *t.shape[:axis], *t.shape[axis + 1 :]), t.dtype)
    return Var(f"{var.name}.rows", first, var.span, var.place)


def axis_front(e: Expr, axis: int, transpose: Op, written: Written) -> Var:
    """Bind a tensor with an axis moved to the front."""
    assert isinstance(e.type, TensorType), "only tensors grow"
    perm = (axis, *(d for d in range(len(e.type.shape)) if d != axis))
    made = make.call(transpose, (e,), PermAttrs(perm), span=e.span, place=e.place)
    var = Var("rows", made.type, e.span, e.place)
    written.append((var, made, None))
    return var


def axis_back(e: Var, axis: int, origin: Expr, transpose: Op) -> Expr:
    """Return a tensor with its first axis moved back to where it was."""
    assert isinstance(e.type, TensorType), "only tensors grow"
    perm = (*range(1, axis + 1), 0, *range(axis + 1, len(e.type.shape)))
    return make.call(transpose, (e,), PermAttrs(perm), span=origin.span, place=origin.place)


def extended(let: Let, carried: Var, axis: int, transpose: Op, written: Written, *, is_moved: bool) -> Var:
    """Bind what a concatenation makes, by extending what is carried; return what is to be carried on.

    Args:
        let: of the concatenation.
        carried: what stands for its first operand.
        axis: of the concatenation.
        transpose: the operator.
        written: the block that is written.
        is_moved: whether what is carried has the axis first.
    """
    call = let.value
    assert isinstance(call, Call), "what grows is the result of a concatenation"
    grown: Expr = carried
    attrs = AxisAttrs(0 if is_moved else axis)
    for index, other in enumerate(call.args[1:]):
        more = axis_front(other, axis, transpose, written) if is_moved else other
        made = make.call(EXTEND, (grown, more), attrs, span=call.span, place=call.place)
        is_last = index == len(call.args) - 2 and not is_moved
        var = let.var if is_last else Var(let.var.name, made.type, call.span, call.place)
        written.append((var, made, None))
        grown = var
    assert isinstance(grown, Var), "something is added"
    if is_moved:
        written.append((let.var, axis_back(grown, axis, call, transpose), let))
    return grown


def block_of(written: Written, result: Expr) -> Expr:
    """Return the block that was written."""
    for var, value, old in reversed(written):
        if old is None:
            result = make.let(var, value, result)
        else:
            result = make.let(var, value, result, span=old.span, place=old.place)
    return result
