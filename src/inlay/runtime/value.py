"""What a slot of the machine holds, for the reference interpreter.

Integers are Python integers within 64 bits. A tensor is a row-major view of a storage; views of
one storage share its bytes, so that a kernel that writes through one is seen through the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from inlay.arith import dtype as dtypes
from inlay.bytecode.isa import Kind


class Handles(np.ndarray):
    """An array (i64) of numbers that stand for strings; what for, `runtime/strings.py` knows."""


@dataclass(frozen=True, slots=True, eq=False)
class Storage:
    """Bytes in a memory; those of inputs and constants are not writable."""

    data: np.ndarray


@dataclass(frozen=True, slots=True, eq=False)
class Tensor:
    """A view of a storage: `dims` elements of `dtype` from byte `offset` on, row-major."""

    storage: Storage
    offset: int
    dtype: str
    dims: tuple[int, ...]

    @property
    def elements(self) -> int:
        """How many elements there are."""
        count = 1
        for dim in self.dims:
            count *= dim
        return count

    def array(self) -> np.ndarray:
        """Return the view as an array that shares the bytes."""
        dtype = dtypes.BY_NAME[self.dtype]
        size = self.elements * dtype.itemsize
        flat = self.storage.data[self.offset : self.offset + size]
        array = flat.view(dtype.stored).reshape(self.dims)
        return array.view(Handles) if dtype.is_host_only else array


@dataclass(frozen=True, slots=True, eq=False)
class Tuple:
    """A fixed number of values."""

    items: tuple[Value, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Adt:
    """A value of an algebraic data type: which constructor, and its fields."""

    tag: int
    items: tuple[Value, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Closure:
    """A function and the values of its first params."""

    function: int
    items: tuple[Value, ...]


@dataclass(slots=True, eq=False)
class Cell:
    """A place whose contents are replaced, never changed."""

    contents: Value


Value: TypeAlias = int | Tensor | Storage | Tuple | Adt | Closure | Cell


def kind_of(value: Value) -> Kind:
    """Return the kind of a value."""
    match value:
        case int():
            return Kind.INT
        case Tensor():
            return Kind.TENSOR
        case Storage():
            return Kind.STORAGE
        case Tuple():
            return Kind.TUPLE
        case Adt():
            return Kind.ADT
        case Closure():
            return Kind.CLOSURE
        case Cell():
            return Kind.CELL


def new_storage(size: int) -> Storage:
    """Return a storage whose contents are not zero, so that reading before writing shows."""
    return Storage(np.full(size, 0xA5, np.uint8))


def new_tensor(dtype: str, dims: tuple[int, ...]) -> Tensor:
    """Return a tensor in a storage of its own."""
    size = dtypes.BY_NAME[dtype].itemsize
    for dim in dims:
        size *= dim
    return Tensor(new_storage(size), 0, dtype, dims)


def dtype_of(array: np.ndarray) -> str:
    """Return the name of the element type of an array of the machine."""
    return "string" if isinstance(array, Handles) else dtypes.from_numpy(array.dtype).name


def from_array(array: np.ndarray, dtype: str = "") -> Tensor:
    """Return an array that we own as a tensor; contiguous ones share their bytes.

    Most of what NumPy makes of handles is an array of numbers; then the caller says what they are.
    """
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return Tensor(Storage(flat), 0, dtype or dtype_of(array), array.shape)


def input_of(array: np.ndarray) -> Tensor:
    """Return somebody else's array as a tensor that must not be written."""
    made = from_array(array)
    flat = made.storage.data.view()
    flat.flags.writeable = False
    return Tensor(Storage(flat), 0, made.dtype, made.dims)
