"""How far two arrays are apart: in steps of integers, in units of the last place of floats."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from inlay.arith.dtype import from_numpy


@dataclass(frozen=True, slots=True)
class Difference:
    """What differs between what was wanted and what was got.

    Attributes:
        elements: how many there are.
        differing: how many are not the same; a NaN is the same as any other.
        unit: `steps` of integers and booleans, `ulp` of floats: how many numbers of the format lie between.
        most: the largest of these distances; infinite between a number and a NaN.
        first: indices of the first one, in row-major order; None where there is none.
        want, got: its values.
    """

    elements: int
    differing: int
    unit: str
    most: float
    first: tuple[int, ...] | None = None
    want: Any = None
    got: Any = None


def difference(want: np.ndarray, got: np.ndarray) -> Difference:
    """Compare two arrays of one format and shape. Cost: linear."""
    assert want.dtype == got.dtype, "they have one format"
    assert want.shape == got.shape, "they have one shape"
    is_float = from_numpy(want.dtype).is_float
    unit = "ulp" if is_float else "steps"
    places, distances = want != got, _numbers(got) - _numbers(want)
    if is_float:
        nan, other = np.isnan(want), np.isnan(got)
        places &= ~(nan & other)
        distances = np.where(nan ^ other, np.inf, np.where(nan, 0, distances))
    count = int(places.sum())
    if count == 0:
        return Difference(want.size, 0, unit, 0.0)
    first = tuple(int(i) for i in np.argwhere(places)[0])
    most = float(np.abs(distances[places]).max())
    return Difference(want.size, count, unit, most, first, want[first].item(), got[first].item())


def _numbers(x: np.ndarray) -> np.ndarray:
    """Return numbers whose differences count how many of the format lie between, in an order-keeping way."""
    if not from_numpy(x.dtype).is_float:
        return x.astype(np.longdouble)
    bits = np.ascontiguousarray(x).view(f"i{x.dtype.itemsize}").astype(np.int64)
    sign = -(1 << (8 * x.dtype.itemsize - 1))
    return np.where(bits < 0, sign - bits, bits).astype(np.longdouble)
