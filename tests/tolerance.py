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

import ml_dtypes
import numpy as np

from inlay.arith.dtype import BF16, F16, F32, F64, DType, from_numpy

ULPS: dict[DType, float] = {F64: 16, F32: 16, F16: 2, BF16: 2}
ACCUMULATES: dict[DType, DType] = {F64: F64, F32: F32, F16: F32, BF16: F32}


def epsilon(dtype: DType) -> float:
    """Return the distance from 1 to the next number of a float format."""
    info = ml_dtypes.finfo(dtype.numpy) if dtype is BF16 else np.finfo(dtype.numpy)
    return float(info.eps)


def bound(dtype: DType, length: int = 1) -> float:
    """Return the relative error allowed for sums of so many terms."""
    return ULPS[dtype] * epsilon(dtype) + length * epsilon(ACCUMULATES[dtype])


def assert_close(actual: np.ndarray, expected: np.ndarray, *, length: int = 1, exact: bool = False) -> None:
    """Fail unless two arrays agree in dtype, shape and, within the bound, in every element."""
    assert actual.dtype == expected.dtype, f"dtype {actual.dtype}, expected {expected.dtype}"
    assert actual.shape == expected.shape, f"shape {actual.shape}, expected {expected.shape}"
    dtype = from_numpy(expected.dtype)
    if not dtype.is_float:
        np.testing.assert_array_equal(actual, expected)
        return
    a, e = actual.astype(np.float64), expected.astype(np.float64)
    if exact:
        np.testing.assert_array_equal(a, e)
        return
    finite = np.abs(e[np.isfinite(e)])
    tolerance = bound(dtype, length)
    # Whole-tensor magnitude matters for sums only; element by element the value itself does.
    scale = max(1.0, float(finite.max(initial=0))) if length > 1 else 1.0
    np.testing.assert_allclose(a, e, rtol=tolerance, atol=tolerance * scale)
