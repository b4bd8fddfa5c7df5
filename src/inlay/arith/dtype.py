"""Scalar formats: the element types of tensors and the types of scalar code.

One table is the source of every spelling (text form, NumPy, C, LLVM). `string` is a format of the host:
NumPy has objects, and the machine has handles of 64 bits that are moved and compared like integers
(`runtime/strings.py`). Sub-byte formats exist only at interfaces and in
packed weights and occupy a whole byte in every buffer of the compiler.
"""

from __future__ import annotations

import difflib
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a board names formats, and is read where no array is: see `_numpy_formats`
    import numpy as np


class Kind(StrEnum):
    """The arithmetic a format takes part in."""

    FLOAT = "float"
    INT = "int"
    UINT = "uint"
    BOOL = "bool"
    STRING = "string"


@dataclass(frozen=True, slots=True)
class DType:
    """A scalar format.

    Attributes:
        name: the spelling in text form (`f32`, `i64`, `u8`, `bool`).
        kind: the arithmetic.
        bits: information bits; `itemsize` is what one element occupies in memory, in bytes.
    """

    name: str
    kind: Kind
    bits: int

    @property
    def itemsize(self) -> int:
        """Bytes of one element in a buffer."""
        return (self.bits + 7) // 8

    @property
    def is_float(self) -> bool:
        """Whether values are floating point."""
        return self.kind is Kind.FLOAT

    @property
    def is_integer(self) -> bool:
        """Whether values are signed or unsigned integers (booleans are not)."""
        return self.kind in (Kind.INT, Kind.UINT)

    @property
    def is_signed(self) -> bool:
        """Whether values may be negative."""
        return self.kind in (Kind.FLOAT, Kind.INT)

    def holds(self, narrow: DType) -> bool:
        """Whether every value of another format is one of this, and means the same."""
        if narrow.kind is Kind.BOOL:
            return self.is_integer or self.is_float
        if self.is_float:
            digits = {"f16": 11, "bf16": 8, "f32": 24, "f64": 53}
            if narrow.is_float:
                return self.bits > narrow.bits
            return narrow.is_integer and narrow.bits <= digits[self.name]
        if self.is_integer and narrow.is_integer:
            if self.kind is narrow.kind:
                return self.bits >= narrow.bits
            return self.kind is Kind.INT and self.bits > narrow.bits
        return False

    @property
    def is_host_only(self) -> bool:
        """Whether only the host can hold elements: what they stand for is known to it alone."""
        return self.kind is Kind.STRING

    @property
    def numpy(self) -> np.dtype:
        """The NumPy dtype of an array of this format (object for strings)."""
        return _bfloat16() if self.name == "bf16" else _numpy_formats()[self.name]

    @property
    def stored(self) -> np.dtype:
        """The NumPy dtype of a buffer of the machine."""
        return _numpy_formats()["i64"] if self.is_host_only else self.numpy

    @property
    def c(self) -> str:
        """The C99 type that holds one element."""
        return _C[self.name]

    @property
    def llvm(self) -> str:
        """The LLVM type of one value in a register (`i1` for booleans)."""
        return _LLVM[self.name]

    def __str__(self) -> str:
        return self.name


F16 = DType("f16", Kind.FLOAT, 16)
BF16 = DType("bf16", Kind.FLOAT, 16)
F32 = DType("f32", Kind.FLOAT, 32)
F64 = DType("f64", Kind.FLOAT, 64)
I8 = DType("i8", Kind.INT, 8)
I16 = DType("i16", Kind.INT, 16)
I32 = DType("i32", Kind.INT, 32)
I64 = DType("i64", Kind.INT, 64)
U8 = DType("u8", Kind.UINT, 8)
U16 = DType("u16", Kind.UINT, 16)
U32 = DType("u32", Kind.UINT, 32)
U64 = DType("u64", Kind.UINT, 64)
BOOL = DType("bool", Kind.BOOL, 8)
STRING = DType("string", Kind.STRING, 64)

ALL: tuple[DType, ...] = (F16, BF16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64, BOOL, STRING)
BY_NAME: dict[str, DType] = {d.name: d for d in ALL}
_KINDS = {"float": "f", "int": "i", "uint": "u", "bfloat": "bf"}
_ALIASES = {
    "half": "f16",
    "float": "f32",
    "double": "f64",
    "int": "i64",
    "long": "i64",
    "byte": "u8",
    "boolean": "bool",
    "bool_": "bool",
    "str": "string",
    "object": "string",
}


def near(name: str) -> list[str]:
    """Return the formats that a name may mean, best first: `float32` is `f32`."""
    known = name.lower().rpartition(".")[2].removesuffix("_t")
    word = known.rstrip("0123456789")
    found = _ALIASES.get(known) or _KINDS.get(word, word) + known[len(word) :]
    return [found] if found in BY_NAME else difflib.get_close_matches(known, BY_NAME, n=2)


_C = {
    "f16": "uint16_t",
    "bf16": "uint16_t",
    "f32": "float",
    "f64": "double",
    "i8": "int8_t",
    "i16": "int16_t",
    "i32": "int32_t",
    "i64": "int64_t",
    "u8": "uint8_t",
    "u16": "uint16_t",
    "u32": "uint32_t",
    "u64": "uint64_t",
    "bool": "uint8_t",
    "string": "int64_t",
}
_LLVM = {
    "f16": "half",
    "bf16": "bfloat",
    "f32": "float",
    "f64": "double",
    "i8": "i8",
    "i16": "i16",
    "i32": "i32",
    "i64": "i64",
    "u8": "i8",
    "u16": "i16",
    "u32": "i32",
    "u64": "i64",
    "bool": "i1",
    "string": "i64",
}


def from_numpy(dtype: np.dtype) -> DType:
    """Return the format of a NumPy dtype.

    Raises:
        KeyError: there is none (complex, structured and datetime dtypes).
    """
    if dtype.kind in "OUS":
        return STRING
    if dtype.name == "bfloat16":
        return BF16
    return _by_numpy()[dtype.newbyteorder("=")]


@functools.cache
def _numpy_formats() -> Mapping[str, np.dtype]:
    import numpy as np

    names = {"f": "float", "i": "int", "u": "uint"}
    formats = {d.name: np.dtype(f"{names[d.name[0]]}{d.bits}") for d in ALL if d.name[0] in names}
    return {**formats, "bool": np.dtype(np.bool_), "string": np.dtype(object)}


@functools.cache
def _by_numpy() -> Mapping[np.dtype, DType]:
    return {n: BY_NAME[k] for k, n in _numpy_formats().items() if k != "string"}


@functools.cache
def _bfloat16() -> np.dtype:
    """NumPy has no bfloat16 of its own; `ml_dtypes` has, and is loaded only here."""
    import ml_dtypes
    import numpy as np

    return np.dtype(ml_dtypes.bfloat16)
