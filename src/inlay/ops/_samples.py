"""Values for samples: seeded, small, and with the cases that go wrong."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np

from inlay.arith.dtype import BOOL, STRING, DType

EDGE_FLOATS: tuple[float, ...] = (
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -0.5,
    1.5,
    2.5,
    -2.5,
    1e-6,
    -1e-6,
    3.0,
    -7.25,
    20.0,
    -20.0,
    88.0,
    -88.0,
    200.0,
    -200.0,
    6.0,
    -3.0,
    float("inf"),
    float("-inf"),
    float("nan"),
)


def noise(
    shape: Sequence[int], dtype: DType, *, low: float = -2.0, high: float = 2.0, seed: str = ""
) -> np.ndarray:
    """Return values spread evenly over a range (whole numbers for integers, both for bool)."""
    rng = np.random.default_rng(zlib.crc32(f"{seed}/{dtype}/{tuple(shape)}".encode()))
    if dtype is BOOL:
        return rng.integers(0, 2, tuple(shape)).astype(np.bool_)
    if dtype.is_integer:
        low = max(low, 0) if not dtype.is_signed else low
        return rng.integers(int(low), int(high) + 1, tuple(shape)).astype(dtype.numpy)
    return rng.uniform(low, high, tuple(shape)).astype(dtype.numpy)


def edges(dtype: DType, *, low: float = -np.inf, high: float = np.inf) -> np.ndarray:
    """Return the cases that go wrong, NaN included, of those in the range."""
    if dtype is BOOL:
        return np.array([True, False])
    if dtype is STRING:
        return np.array(["", "a", "b", "ab", "a", "\u00e4", "A"], object)
    if dtype.is_integer:
        info = np.iinfo(dtype.numpy)
        found = (0, 1, 2, 3, 7, info.min, info.min + 1, info.max, info.max - 1, -1, -2, -7)
        whole = [v for v in found if info.min <= v <= info.max and low <= v <= high]
        return np.array(whole, dtype.numpy)
    kept = [v for v in EDGE_FLOATS if np.isnan(v) or low <= v <= high]
    with np.errstate(over="ignore"):
        return np.array(kept).astype(dtype.numpy)


def pairs(dtype: DType) -> tuple[np.ndarray, np.ndarray]:
    """Return two arrays that pair each edge case with each, as `[k, 1]` and `[1, k]`."""
    values = edges(dtype)
    return values[:, None], values[None, :]


def ints(*values: int) -> np.ndarray:
    """Return a rank-1 array of i64."""
    return np.array(values, np.int64)
