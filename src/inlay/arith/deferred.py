"""Arrays that are computed into the memory where they stay.

A compiler lays weights out anew, and a program keeps what comes of it. Computed when that is decided on, they
would be there beside the weights as they were read, which others may still ask for: a model twice. A deferred
array says how it comes from a source. Until somebody asks for its elements it takes no memory, and who keeps
the program has each written once, where it is kept, and lets its source go behind it:

    deferred.shape, deferred.dtype, deferred.nbytes      known
    deferred.write(out)                                  the elements, into memory of the caller
    deferred.array()                                     the elements, for as long as somebody has them

Who only compares arrays for being the same compares these objects: two calls of `array` may give two arrays.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from math import prod
from typing import TypeAlias

import numpy as np

Fill: TypeAlias = Callable[[np.ndarray, np.ndarray], None]
"""Writes what comes of a source (its elements in any order in memory) into a dense array."""


class DeferredArray:
    """An array of a shape and an element type that is computed from another one; see above.

    Attributes:
        shape, dtype, size, nbytes: of the result.
        source: what it is computed from; may be deferred itself.
    """

    __slots__ = ("__weakref__", "_fill", "_made", "_view", "dtype", "nbytes", "shape", "size", "source")

    def __init__(
        self,
        shape: tuple[int, ...],
        dtype: np.dtype,
        source: AnyArray,
        fill: Fill,
        view: Callable[[np.ndarray], np.ndarray] | None = None,
    ) -> None:
        self.shape, self.dtype, self.source, self._fill, self._view = shape, dtype, source, fill, view
        self.size = prod(shape)
        self.nbytes = self.size * dtype.itemsize
        self._made: weakref.ref[np.ndarray] | None = None

    def fills_with(self, fill: Fill) -> bool:
        """Whether a function is what makes its elements of those of its source."""
        return self._fill is fill

    def write(self, out: np.ndarray) -> None:
        """Compute the elements into a dense array of this shape and element type."""
        self._fill(elements(self.source), out)

    def array(self) -> np.ndarray:
        """Return the elements, dense and read-only; the same array while somebody has it."""
        made = None if self._made is None else self._made()
        if made is None:
            made = np.empty(self.shape, self.dtype)
            self.write(made)
            made.flags.writeable = False
            self._made = weakref.ref(made)
        return made

    def elements(self) -> np.ndarray:
        """Return the elements to read once: in any order in memory, where they can be read without a copy."""
        return self.array() if self._view is None else self._view(elements(self.source))


AnyArray: TypeAlias = np.ndarray | DeferredArray

LEAST = 1 << 16
"""Bytes of an array that is deferred: up to that, having it twice costs less than thinking about it."""


def deferred(shape: tuple[int, ...], dtype: np.dtype, source: AnyArray, fill: Fill) -> AnyArray:
    """Return an array that is computed from another one; computed now, where it is small."""
    made = DeferredArray(shape, dtype, source, fill)
    return made if made.nbytes > LEAST else made.array()


def transposed(array: AnyArray, perm: tuple[int, ...]) -> AnyArray:
    """Return an array with its axes in another order."""

    def view(source: np.ndarray) -> np.ndarray:
        return source.transpose(perm)

    def fill(source: np.ndarray, out: np.ndarray) -> None:
        np.copyto(out, view(source))

    if array.nbytes <= LEAST or array.dtype == object:
        return np.ascontiguousarray(view(elements(array)))
    if (narrow := narrow_of(array)) is not None:
        return as_f32(transposed(narrow, perm))
    return DeferredArray(tuple([array.shape[p] for p in perm]), array.dtype, array, fill, view)


def as_f32(array: AnyArray) -> AnyArray:
    """Return floats of 16 bits as f32; where that is deferred, `narrow_of` gives them back."""
    return deferred(array.shape, np.dtype(np.float32), array, _fill_f32)


def _fill_f32(source: np.ndarray, out: np.ndarray) -> None:
    np.copyto(out, source)


def narrow_of(array: AnyArray) -> AnyArray | None:
    """Return the floats of 16 bits that a deferred array has in f32; None for any other array."""
    return array.source if isinstance(array, DeferredArray) and array.fills_with(_fill_f32) else None


def elements(array: AnyArray) -> np.ndarray:
    """Return the elements of an array to read once; see `DeferredArray.elements`."""
    return array.elements() if isinstance(array, DeferredArray) else array


def bytes_of(array: AnyArray) -> memoryview:
    """Return the bytes of an array in row-major order, without copying what is dense."""
    dense = np.ascontiguousarray(elements(array))
    return dense.reshape(-1).view(np.uint8).data
