"""How far two computations of one thing may differ: the only table of float tolerances.

A bound has two parts, both in units of the last place of a format:

* `ULPS`: what the functions themselves may be off. Functions such as `exp` are correct to a few
  units in every executor, and an activation composes several. Narrow formats compute in f32 and
  round once at the end, so that what differs is whether a value near the middle of two numbers goes
  up or down: one unit, two where a rounded value is used again.
* the length of a sum: each of n additions rounds once, in any order, so two orders differ by at most
  about n units of the running total; the format is the one that accumulates (f32 for narrow floats).

Both are relative to the greatest magnitude of the result, and at least to 1: near zeros of a function
and after cancellation the error is that of the terms, not of the result.

Integers, booleans and operators that only move elements agree exactly.
"""

from __future__ import annotations

import numpy as np

from inlay.arith.dtype import BF16, F16, F32, F64, DType, from_numpy

ULPS: dict[DType, float] = {F64: 16, F32: 16, F16: 2, BF16: 2}
ACCUMULATES: dict[DType, DType] = {F64: F64, F32: F32, F16: F32, BF16: F32}


def epsilon(dtype: DType) -> float:
    """Return the distance from 1 to the next number of a float format."""
    return 2.0**-7 if dtype is BF16 else float(np.finfo(dtype.numpy).eps)


def bound(dtype: DType, length: int = 1) -> float:
    """Return the relative error allowed for sums of so many terms."""
    return ULPS[dtype] * epsilon(dtype) + length * epsilon(ACCUMULATES[dtype])


def disagreement(actual: np.ndarray, expected: np.ndarray, length: int = 1) -> str:
    """Return how two results of one computation differ by more than is allowed; nothing where they do not.

    Args:
        actual: of one.
        expected: of the other, in the same format and shape.
        length: of the longest sum in it.
    """
    dtype = from_numpy(expected.dtype)
    if (actual.dtype, actual.shape) != (expected.dtype, expected.shape):
        return f"{actual.dtype}{list(actual.shape)}, not {expected.dtype}{list(expected.shape)}"
    if not dtype.is_float:
        differing = int((actual != expected).sum())
        return f"{differing} of {expected.size} integers differ" if differing else ""
    a, e = actual.astype(np.float64), expected.astype(np.float64)
    finite = np.abs(e[np.isfinite(e)])
    allowed = bound(dtype, length)
    close = np.isclose(
        a, e, rtol=allowed, atol=allowed * max(1.0, float(finite.max(initial=0))), equal_nan=True
    )
    if close.all():
        return ""
    at = tuple(int(i) for i in np.argwhere(~close)[0])
    return f"{int((~close).sum())} of {e.size} differ, first {a[at]:.6g} for {e[at]:.6g} at {list(at)}"
