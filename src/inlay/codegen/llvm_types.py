"""Types and operands of emitted code: what a value is in a register, in memory and as a literal.

In registers `bool` is `i1`, and the 16-bit floats are `float`: each operation on them is done in
f32 and rounded, which is exact for `+ - * / sqrt` because f32 has more than twice the digits.
In memory `bool` is one byte, and `bf16` is its bits.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass

from inlay.arith.dtype import BF16, F16, F32, DType, Kind

_REGISTER = {"f16": "float", "bf16": "float"}
_MEMORY = {"bool": "i8", "f16": "i16", "bf16": "i16"}


@dataclass(frozen=True, slots=True)
class Value:
    """An operand: its text, its format and how many lanes it has (0: a scalar)."""

    text: str
    dtype: DType
    lanes: int = 0

    @property
    def type(self) -> str:
        """The LLVM type in a register."""
        return register_type(self.dtype, self.lanes)

    @property
    def typed(self) -> str:
        """Type and operand, as in argument lists."""
        return f"{self.type} {self.text}"

    @property
    def is_literal(self) -> bool:
        """Whether it is written out, and no result of an instruction."""
        return not self.text.startswith("%")

    @property
    def is_number(self) -> bool:
        """Whether it is a float literal other than NaN (`0x7FF8...`)."""
        return self.is_literal and "0x7FF8" not in self.text and "poison" not in self.text


def vector(element: str, lanes: int) -> str:
    """Return the type of so many lanes; a scalar for none."""
    return f"<{lanes} x {element}>" if lanes else element


def register_element(dtype: DType) -> str:
    """Return the LLVM type of one element in a register."""
    return _REGISTER.get(dtype.name, dtype.llvm)


def register_type(dtype: DType, lanes: int) -> str:
    """Return the LLVM type of a value in a register."""
    return vector(register_element(dtype), lanes)


def memory_element(dtype: DType) -> str:
    """Return the LLVM type of one element in memory."""
    return _MEMORY.get(dtype.name, dtype.llvm)


def suffix(element: str, lanes: int) -> str:
    """Return how an intrinsic's name spells a type: `v16f32`."""
    short = {"float": "f32", "double": "f64", "ptr": "p0"}.get(element, element)
    return f"v{lanes}{short}" if lanes else short


def literal(value: float, dtype: DType, lanes: int = 0) -> Value:
    """Return a number as an operand."""
    text = _scalar_literal(value, dtype)
    if lanes:
        text = f"splat ({register_element(dtype)} {text})"
    return Value(text, dtype, lanes)


def _scalar_literal(value: float, dtype: DType) -> str:
    match dtype.kind:
        case Kind.BOOL:
            return "true" if value else "false"
        case Kind.FLOAT:
            return float_bits(_rounded(float(value), dtype))
        case _:
            bits = int(value) & ((1 << dtype.bits) - 1)
            return str(bits - (1 << dtype.bits) if bits >> (dtype.bits - 1) else bits)


def float_bits(value: float) -> str:
    """Return a float in LLVM's exact form; the bits are always those of the double."""
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def _rounded(value: float, dtype: DType) -> float:
    if not math.isfinite(value):
        return value
    match dtype.name:
        case F32.name:
            code = "<f"
        case F16.name:
            code = "<e"
        case BF16.name:
            bits = struct.unpack("<I", struct.pack("<f", value))[0]
            bits = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000
            return struct.unpack("<f", struct.pack("<I", bits & 0xFFFFFFFF))[0]
        case _:
            return value
    try:
        return struct.unpack(code, struct.pack(code, value))[0]
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
