"""Declarations of what C functions of a vendor are given, and of what is made for a device beforehand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from inlay.accel.declare import Format, Typed
from inlay.arith.dtype import I64
from inlay.arith.expr import Int, to_int


class UnknownConstantError(Exception):
    """The values of an operand that is not known yet, or differs from call to call, are asked for."""


@dataclass(frozen=True, slots=True, eq=False)
class Address:
    """Where an operand begins.

    Attributes:
        operand: its name.
        known: its values, where it is a constant.
    """

    operand: str
    known: np.ndarray | None = None

    @property
    def values(self) -> np.ndarray:
        """The values of a constant, as the instruction reads them; what is made of them is a `program`."""
        if self.known is None:
            raise UnknownConstantError(f"'{self.operand}' is no constant where it is asked for its values")
        return self.known


@dataclass(frozen=True, slots=True, eq=False)
class CStruct:
    """A structure that a function is given the address of.

    Attributes:
        type: its name in the header of the vendor.
        fields: in order, by name.
    """

    type: str
    fields: Mapping[str, CArgument]


@dataclass(frozen=True, slots=True)
class Opaque:
    """Bytes that a driver makes a handle of before the first call.

    Attributes:
        data: that only the device understands.
        open, close: functions of the driver.
    """

    data: bytes
    open: str
    close: str


CArgument: TypeAlias = "Address | Int | Typed | CStruct | Opaque"
"""What a C function is given."""


@dataclass(frozen=True, slots=True)
class CCall:
    """A command as a call of a C function.

    Attributes:
        function: its name in the library.
        args: what it is given; integers without a type are `int64_t`.
    """

    function: str
    args: tuple[CArgument, ...]


def call(function: str, *args: CArgument | int) -> CCall:
    """Return a command that is a call of a C function.

    Args:
        function: its name in the library of the driver.
        args: operands (`c.x`, their addresses), integers over dims and immediates (`c.N`, which C has as
            `int64_t`; `i32(c.N)` as `int32_t`), `struct` and `program`.
    """
    return CCall(function, tuple(map(_argument, args)))


def struct(type: str, /, **fields: CArgument | int) -> CStruct:
    """Return a structure, laid out as C does, whose address a function is given.

    Args:
        type: its name in the header.
        fields: in the order of the header, each as an argument of `call`; a structure is a pointer to it.
    """
    return CStruct(type, {name: _argument(x) for name, x in fields.items()})


def program(data: bytes, *, open: str = "", close: str = "") -> Opaque:
    """Return what a driver makes of bytes, once before the first call: a handle, a pointer that is not null.

    The bytes are kept in the compiled program. They may be made of constants (`c.w.values`, an array): calls
    with other constants then have other programs. The number that a dim or an immediate of the command is
    fixed to is `c.down.value`, an `int`; None where the size is open, which is an argument of the call then.

    Args:
        data: what only the device understands: its commands, packed constants, machine code.
        open: the function, of a `const uint8_t *` and an `int64_t`, their number; without one the handle
            is the address of the bytes.
        close: the function that is given the handle behind the last call.
    """
    return Opaque(bytes(data), open, close)


def _argument(x: CArgument | int) -> CArgument:
    return to_int(x) if isinstance(x, int) else x


@dataclass(frozen=True, slots=True)
class CCalls:
    """Commands are calls of C functions.

    Attributes:
        returns: the format of what they return, 0 where nothing failed; None for `void`.
        faults: what other numbers that they return mean, for messages.
        header: a file beside the description that declares them; `inlay check` holds calls against it.
    """

    returns: Format | None = field(default_factory=lambda: Format(I64))
    faults: Mapping[int, str] = field(default_factory=dict[int, str])
    header: str = ""

    @property
    def status(self) -> str:
        """The type of C of what is returned; empty for none."""
        return "" if self.returns is None else self.returns.dtype.name
