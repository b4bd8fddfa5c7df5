"""What the virtual machine does itself: checks, control values, rows; and tensors of zeros.

The operators are the IR's own (`ir/core_ops.py`); here they get their meaning. There is no control
arithmetic: a sum of ints is a constant `int(i + 1)` over dims in scope.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from inlay.arith.dtype import BF16, BOOL, F32, I32, I64
from inlay.base.diagnostics import InlayError, error
from inlay.ir import core_ops
from inlay.ir.core_ops import CheckAttrs, DTypeAttrs, LeastAttrs
from inlay.ir.op import NoAttrs, Op
from inlay.ir.types import TensorType
from inlay.loop import te
from inlay.ops._build import Array
from inlay.ops._define import Argument, FusionPattern, OpDef, Sample, no_samples
from inlay.ops._samples import ints


def _failed(why: str, found: object, needed: object) -> InlayError:
    return error("run.check-failed", f"{why or 'check'}: found {found}, needed {needed}")


def _check_shape(a: CheckAttrs, x: Array, shape: tuple[int, ...]) -> Array:
    if x.shape != shape:
        raise _failed(a.why, x.shape, shape)
    return x


def _check_equal(a: CheckAttrs, x: Argument, i: int, j: int) -> Argument:
    if i != j:
        raise _failed(a.why, i, j)
    return x


def _check_at_least(a: LeastAttrs, x: Argument, i: int) -> Argument:
    if i < a.low:
        raise _failed(a.why, i, f"at least {a.low}")
    return x


def _to_control(a: NoAttrs, x: Array) -> int | bool | tuple[int, ...]:
    if x.ndim:
        return tuple(int(v) for v in x)
    return bool(x) if x.dtype == np.bool_ else int(x)


def _to_tensor(a: NoAttrs, value: int | bool | tuple[int, ...]) -> Array:
    return np.array(value, np.bool_ if isinstance(value, bool) else np.int64)


def _less(a: NoAttrs, i: int, j: int) -> bool:
    return i < j


def _less_equal(a: NoAttrs, i: int, j: int) -> bool:
    return i <= j


def _equal(a: NoAttrs, i: int, j: int) -> bool:
    return i == j


def _and(a: NoAttrs, p: bool, q: bool) -> bool:
    return p and q


def _or(a: NoAttrs, p: bool, q: bool) -> bool:
    return p or q


def _not(a: NoAttrs, p: bool) -> bool:
    return not p


def _get_row(a: NoAttrs, x: Array, i: int) -> Array:
    return x[_row(x, i)]


def _push_row(a: NoAttrs, x: Array, row: Array) -> Array:
    return np.concatenate([x, row[None]])


def _zeros(a: DTypeAttrs, shape: tuple[int, ...]) -> Array:
    return np.zeros(shape, a.dtype.numpy)


def _row(x: Array, i: int) -> int:
    if not 0 <= i < x.shape[0]:
        raise error("run.out-of-range", f"found row {i}, needed one of {x.shape[0]}")
    return i


def _set_row(a: NoAttrs, x: Array, i: int, row: Array) -> Array:
    y = x.copy()
    y[_row(x, i)] = row
    return y


def _zeros_compute(a: DTypeAttrs, operands: Sequence[object], result: TensorType) -> te.Tensor:
    return te.compute(result.shape, lambda *i: te.const(0, result.dtype), name="zeros")


def _control(
    op: Op, reference: Callable[..., object], samples: Callable[[], Sequence[Sample]] = no_samples
) -> OpDef:
    return OpDef(op, FusionPattern.CONTROL, reference, samples=samples)


def _samples(*calls: tuple[Argument, ...], attrs: object = None) -> Callable[[], list[Sample]]:
    return lambda: [Sample(str(i), attrs or NoAttrs(), args) for i, args in enumerate(calls)]


def _zero_samples() -> list[Sample]:
    return [
        Sample(f"{d}", DTypeAttrs(d), (shape,), (tuple(f"n{i}" for i in range(len(shape))),))
        for d, shape in ((F32, (2, 3)), (BOOL, (4,)), (I64, ()), (BF16, (0, 2)), (I32, (1,)))
    ]


_INTS = ((1, 2), (2, 2), (3, 2), (-1, 0))
_X = np.arange(12, dtype=np.float32).reshape(3, 4)

DEFINITIONS: tuple[OpDef, ...] = (
    _control(core_ops.CHECK_SHAPE, _check_shape, _samples((_X, (3, 4)), attrs=CheckAttrs())),
    _control(core_ops.CHECK_EQUAL, _check_equal, _samples((_X, 3, 3), attrs=CheckAttrs())),
    _control(core_ops.CHECK_AT_LEAST, _check_at_least, _samples((_X, 3), attrs=LeastAttrs(2))),
    _control(core_ops.INT_LESS, _less, _samples(*_INTS)),
    _control(core_ops.INT_LESS_EQUAL, _less_equal, _samples(*_INTS)),
    _control(core_ops.INT_EQUAL, _equal, _samples(*_INTS)),
    _control(core_ops.BOOL_AND, _and, _samples((True, False), (True, True))),
    _control(core_ops.BOOL_OR, _or, _samples((True, False), (False, False))),
    _control(core_ops.BOOL_NOT, _not, _samples((True,), (False,))),
    _control(
        core_ops.TO_CONTROL, _to_control, _samples((np.asarray(7),), (np.asarray(True),), (ints(2, -1, 0),))
    ),
    _control(core_ops.TO_TENSOR, _to_tensor, _samples((7,), (True,), ((2, -1, 0),), ((),))),
    _control(core_ops.GET_ROW, _get_row, _samples((_X, 0), (_X, 2))),
    _control(core_ops.SET_ROW, _set_row, _samples((_X, 1, _X[2]))),
    _control(core_ops.PUSH_ROW, _push_row, _samples((_X, _X[1]), (_X[:0], _X[1]))),
    OpDef(core_ops.ZEROS, FusionPattern.LAYOUT, _zeros, _zeros_compute, samples=_zero_samples),
)
