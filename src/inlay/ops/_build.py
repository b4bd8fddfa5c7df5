"""What compute rules, loops and references have in common: broadcasting loads, widening, nests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from inlay.arith.dtype import BF16, BOOL, F16, F32, F64, DType, from_numpy
from inlay.arith.expr import Int, fresh, lit, to_int
from inlay.loop import te
from inlay.loop.buffer import Buffer
from inlay.loop.scalar import IntrinsicOp, Load
from inlay.loop.stmt import For, LoopKind, Seq, Stmt, Store
from inlay.ops._define import LoopsRule

Array: TypeAlias = np.ndarray
"""What references of operators compute with."""
Ints: TypeAlias = tuple[Int, ...]
"""A shape operand as a compute rule sees it."""


def widened(dtype: DType) -> DType:
    """Return the format that computations on a format take place in."""
    return F32 if dtype in (F16, BF16) else dtype


def widen(x: np.ndarray) -> np.ndarray:
    """Return an array in the format that computations on it take place in."""
    return x.astype(np.float32) if from_numpy(x.dtype) in (F16, BF16) else x


def aligned(x: te.Tensor, indices: Sequence[Int]) -> tuple[Int, ...]:
    """Return the indices into a tensor that is broadcast against a result of higher rank or equal.

    The tensor is aligned at its last dims; dims that are the number 1 are read at 0.
    """
    tail = indices[len(indices) - x.ndim :]
    return tuple(lit(0) if d == 1 else i for d, i in zip(x.shape, tail, strict=True))


def element(x: te.Tensor, indices: Sequence[Int]) -> te.ScalarValue:
    """Load the element of a broadcast tensor, in its own format."""
    return x[aligned(x, indices)]


def wide_element(x: te.Tensor, indices: Sequence[Int]) -> te.ScalarValue:
    """Load the element of a broadcast tensor, in the format that computations take place in."""
    return element(x, indices).cast(widened(x.dtype))


def pointwise(
    shape: Sequence[Int], inputs: Sequence[te.Tensor], body: Callable[..., te.ScalarValue], name: str
) -> te.Tensor:
    """Return `body` of the broadcast, widened elements of the inputs, at each index of `shape`."""
    return te.compute(shape, lambda *i: body(*(wide_element(x, i) for x in inputs)), name=name)


def call(op: IntrinsicOp) -> Callable[[te.ScalarValue], te.ScalarValue]:
    """Return the function of one value that an intrinsic computes."""
    return lambda x: te.intrinsic(op, x)


def lowest(dtype: DType) -> float | int | bool:
    """Return what no element is below: the identity of the maximum."""
    if dtype.is_float:
        return -np.inf
    return int(np.iinfo(dtype.numpy).min) if dtype.is_integer else False


def highest(dtype: DType) -> float | int | bool:
    """Return what no element is above: the identity of the minimum."""
    if dtype.is_float:
        return np.inf
    return int(np.iinfo(dtype.numpy).max) if dtype.is_integer else True


def saturate(
    x: te.ScalarValue, dtype: DType, low: int | None = None, high: int | None = None
) -> te.ScalarValue:
    """Convert a float to an integer: truncated, clamped to the range, NaN to 0.

    The range ends need not be representable in the float format (2**31 - 1 in f32), so the value is
    clamped to what converts safely and the ends are chosen by comparison.
    """
    assert x.dtype.is_float, "saturate converts floats"
    bounds = np.iinfo(dtype.numpy)
    low = int(bounds.min) if low is None else low
    high = int(bounds.max) if high is None else high
    last = np.float64 if x.dtype is F64 else np.float32
    top = last(high)
    if int(top) > high:
        top = np.nextafter(top, last(0))
    clamped = te.maximum(te.minimum(x, float(top)), float(low))
    is_nan = te.intrinsic(IntrinsicOp.IS_NAN, x, dtype=BOOL)
    value = te.select(is_nan, 0.0, clamped).cast(dtype)
    if int(top) == high:
        return value
    return te.select(x > float(top), te.const(high, dtype), value)


def saturate_array(
    x: np.ndarray, dtype: DType, low: int | None = None, high: int | None = None
) -> np.ndarray:
    """Do to an array what `saturate` does to a value."""
    bounds = np.iinfo(dtype.numpy)
    low = int(bounds.min) if low is None else low
    high = int(bounds.max) if high is None else high
    top = x.dtype.type(high)
    safe = np.nextafter(top, x.dtype.type(0)) if int(top) > high else top
    clamped = np.where(np.isnan(x), x.dtype.type(0), np.clip(x, x.dtype.type(low), safe))
    value = np.trunc(clamped).astype(dtype.numpy)
    return np.where(x > safe, dtype.numpy.type(high), value) if int(top) > high else value


def serial_loops(shape: Sequence[Int]) -> tuple[list[For], tuple[Int, ...]]:
    """Return serial loops over a shape with empty bodies, and the index they run through."""
    syms = [fresh(f"i{d}") for d in range(len(shape))]
    made = [For(s, lit(0), n, LoopKind.SERIAL, Seq(())) for s, n in zip(syms, shape, strict=True)]
    return made, tuple(map(to_int, syms))


def nest(loops: Sequence[For], body: Stmt) -> Stmt:
    for loop in reversed(loops):
        body = For(loop.var, loop.lo, loop.extent, loop.kind, body)
    return body


def copied(update: LoopsRule) -> LoopsRule:
    """Return the loops of an operator that copies operand 0 and then updates the copy."""

    def loops(a: object, operands: Sequence[Any], outputs: Sequence[Buffer]) -> Stmt:
        return Seq((copy_buffer(operands[0], outputs[0]), update(a, operands, outputs)))

    return loops


def copy_buffer(source: Buffer, target: Buffer) -> Stmt:
    loops, at = serial_loops(source.shape)
    return nest(loops, Store(target, at, Load(source, at)))
