"""What the operators of `ir.core_ops` compute, on values of the evaluator.

Tensors are NumPy arrays (of rank 0 too), an int is a Python int, a bool a Python bool, a shape a
tuple of ints. Arrays are never changed: a result is a new array or a view.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from inlay.base.diagnostics import CompileError, error
from inlay.base.span import Span
from inlay.ir import core_ops
from inlay.ir.op import Op

Value = Any
Meaning = Callable[[Any, Span, tuple[Value, ...]], Value]


def failed(message: str, span: Span) -> CompileError:
    """Return the error of a check that does not hold."""
    return error("run.check-failed", message, span=span)


def _check_shape(attrs: core_ops.CheckAttrs, span: Span, args: tuple[Value, ...]) -> Value:
    x, shape = args
    if x.shape != tuple(shape):
        raise failed(f"found shape {x.shape}, needed {tuple(shape)} ({attrs.why})", span)
    return x


def _check_equal(attrs: core_ops.CheckAttrs, span: Span, args: tuple[Value, ...]) -> Value:
    x, a, b = args
    if a != b:
        raise failed(f"found {a} and {b}, needed equal numbers ({attrs.why})", span)
    return x


def _check_at_least(attrs: core_ops.LeastAttrs, span: Span, args: tuple[Value, ...]) -> Value:
    x, a = args
    if a < attrs.low:
        raise failed(f"found {a}, needed at least {attrs.low} ({attrs.why})", span)
    return x


def _to_control(_attrs: object, _span: Span, args: tuple[Value, ...]) -> Value:
    (x,) = args
    if x.ndim:
        return tuple(int(v) for v in x)
    return bool(x) if x.dtype == np.bool_ else int(x)


def _to_tensor(_attrs: object, _span: Span, args: tuple[Value, ...]) -> Value:
    (x,) = args
    return np.array(x, dtype=np.bool_ if isinstance(x, bool) else np.int64)


def _row_index(x: np.ndarray, i: int, span: Span) -> int:
    if not 0 <= i < x.shape[0]:
        raise failed(f"found row {i}, needed 0 to {x.shape[0] - 1}", span)
    return i


def _get_row(_attrs: object, span: Span, args: tuple[Value, ...]) -> Value:
    x, i = args
    return np.asarray(x[_row_index(x, i, span)])


def _set_row(_attrs: object, span: Span, args: tuple[Value, ...]) -> Value:
    x, i, row = args
    result = x.copy()
    result[_row_index(x, i, span)] = row
    return result


def _push_row(_attrs: object, _span: Span, args: tuple[Value, ...]) -> Value:
    x, row = args
    return np.concatenate([x, row[np.newaxis]], axis=0)


def _zeros(attrs: core_ops.DTypeAttrs, _span: Span, args: tuple[Value, ...]) -> Value:
    return np.zeros(args[0], attrs.dtype.numpy)


MEANINGS: dict[Op, Meaning] = {
    core_ops.CHECK_SHAPE: _check_shape,
    core_ops.CHECK_EQUAL: _check_equal,
    core_ops.CHECK_AT_LEAST: _check_at_least,
    core_ops.INT_LESS: lambda _attrs, _span, args: args[0] < args[1],
    core_ops.INT_LESS_EQUAL: lambda _attrs, _span, args: args[0] <= args[1],
    core_ops.INT_EQUAL: lambda _attrs, _span, args: args[0] == args[1],
    core_ops.BOOL_AND: lambda _attrs, _span, args: args[0] and args[1],
    core_ops.BOOL_OR: lambda _attrs, _span, args: args[0] or args[1],
    core_ops.BOOL_NOT: lambda _attrs, _span, args: not args[0],
    core_ops.TO_CONTROL: _to_control,
    core_ops.TO_TENSOR: _to_tensor,
    core_ops.GET_ROW: _get_row,
    core_ops.SET_ROW: _set_row,
    core_ops.PUSH_ROW: _push_row,
    core_ops.ZEROS: _zeros,
}
"""By operator; `span` is that of the call, for errors."""
