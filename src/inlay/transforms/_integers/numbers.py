"""Integers that stand for real tensors, and why something stays float."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from inlay.arith.dtype import I8, I16, U8, U16, DType
from inlay.ir.expr import Expr
from inlay.ir.types import TensorType

BYTES: tuple[DType, ...] = (I8, U8)
NARROW: tuple[DType, ...] = (I8, U8, I16, U16)
LEAST, GREATEST = -(1 << 31), (1 << 31) - 1
"""Ends of what accumulators hold."""


class StaysFloat(Exception):
    """Why an operation stays float.

    Attributes:
        reason: as a kebab word that reports group by.
        message: the same for people, one sentence without a capital.
        at: the value that would have to be integers; None for the operation itself.
    """

    def __init__(self, reason: str, message: str, at: Expr | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.at = at


@dataclass(frozen=True, slots=True, eq=False)
class Factor:
    """One number for a whole tensor, or one for each index of an axis.

    Attributes:
        values: of rank 0, or of rank 1.
        axis: counted from the end (-1 is the last), so that it stays behind broadcasting; 0 for one number.
    """

    values: np.ndarray
    axis: int = 0

    @property
    def is_one(self) -> bool:
        """Whether it is one number for all."""
        return self.values.ndim == 0

    def times(self, other: Factor) -> Factor:
        """Return the product.

        Raises:
            StaysFloat: where both go along different axes.
        """
        self._check_axes(other)
        return Factor(np.asarray(self.values * other.values), self.axis or other.axis)

    def over(self, other: Factor) -> Factor:
        """Return the quotient, rounded once: that of equal numbers is 1.

        Raises:
            StaysFloat: as `times`.
        """
        self._check_axes(other)
        return Factor(np.asarray(self.values / other.values), self.axis or other.axis)

    def _check_axes(self, other: Factor) -> None:
        sizes = {(f.axis, f.values.size) for f in (self, other) if not f.is_one}
        if len(sizes) > 1:
            raise StaysFloat("axes-of-scales", "scales go along different axes")

    def spread(self) -> np.ndarray:
        """Return it so that it broadcasts against the tensor."""
        return self.values if self.is_one else self.values.reshape(-1, *[1] * (-1 - self.axis))

    def equals(self, other: Factor) -> bool:
        """Whether both are the same numbers along the same axis."""
        return self.axis == other.axis and np.array_equal(self.values, other.values)


def one(value: float) -> Factor:
    """Return a number for a whole tensor."""
    return Factor(np.asarray(value, np.float64))


def factor_of(values: np.ndarray, rank: int) -> Factor | None:
    """Return an array as a factor of a tensor of this rank; None where it varies along several axes."""
    if values.size == 1:
        return Factor(np.asarray(values.reshape(()), np.float64)) if values.ndim <= rank else None
    long = [d for d, size in enumerate(values.shape) if size != 1]
    if len(long) != 1 or values.ndim > rank:
        return None
    return Factor(values.reshape(-1).astype(np.float64), long[0] - values.ndim)


@dataclass(frozen=True, slots=True, eq=False)
class Whole:
    """A real tensor as integers: `(atom - zero) * scale`.

    Attributes:
        atom: the integers.
        scale: positive.
        zero: one for all, or along the axis of the scale.
        low, high: ends of what the integers may be.
    """

    atom: Expr
    scale: Factor
    zero: Factor
    low: int
    high: int

    @property
    def dtype(self) -> DType:
        """The format of the integers."""
        return type_of(self.atom).dtype

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(type_of(self.atom).shape)

    def one_zero(self) -> int:
        """Return the one zero point.

        Raises:
            StaysFloat: where there are several.
        """
        if not self.zero.is_one:
            raise StaysFloat("several-zero-points", "it has several zero points", self.atom)
        return int(self.zero.values)

    def one_scale(self) -> float:
        """Return the one scale.

        Raises:
            StaysFloat: where there are several.
        """
        if not self.scale.is_one:
            raise StaysFloat("several-scales", "it has a scale for each channel", self.atom)
        return float(self.scale.values)

    def ends(self) -> tuple[int, int]:
        """Return the ends of the integers less their zero point."""
        zeros = self.zero.values
        return self.low - int(zeros.max()), self.high - int(zeros.min())

    def reach(self) -> int:
        """Return the greatest magnitude of the integers less their zero point."""
        low, high = self.ends()
        return max(-low, high, 0)


def type_of(e: Expr) -> TensorType:
    """Return the type of a tensor."""
    assert isinstance(e.type, TensorType), "only tensors stand for reals"
    return e.type


def ends_of(dtype: DType) -> tuple[int, int]:
    """Return the least and the greatest number of a format."""
    info = np.iinfo(dtype.numpy)
    return int(info.min), int(info.max)


def check_range(low: int, high: int, terms: str, at: Expr | None = None) -> None:
    """Require that sums stay in i32.

    Raises:
        StaysFloat: where they might not.
    """
    if low < LEAST or high > GREATEST:
        raise StaysFloat("range", f"{terms} can reach {low} to {high}, beyond 32 bits", at)


def smallest(values: np.ndarray, formats: Sequence[DType]) -> DType | None:
    """Return the first of some formats that holds all numbers."""
    low, high = (int(values.min()), int(values.max())) if values.size else (0, 0)
    for dtype in formats:
        least, greatest = ends_of(dtype)
        if least <= low and high <= greatest:
            return dtype
    return None
