"""What a driver is given: addresses, numbers of C types, structures, and programs of the device.

Arguments are data that an executable keeps. `ready` makes of one what gives its value for each call; a
program of the device is handed to its driver there, once, and stays with it while the call can be made.
"""

from __future__ import annotations

import ctypes
import hashlib
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, assert_never

import numpy as np

from inlay.base.diagnostics import error
from inlay.bytecode import formula
from inlay.bytecode.formula import Formula

ALIGNMENT = 64
"""Of constants, in bytes, as tensors have it."""
C_TYPES: Mapping[str, type[Any]] = {
    "i8": ctypes.c_int8,
    "i16": ctypes.c_int16,
    "i32": ctypes.c_int32,
    "i64": ctypes.c_int64,
    "u8": ctypes.c_uint8,
}
"""What numbers are in C, by the names of formats."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """The address of a tensor of the kernel, by position: what it reads before what it writes.

    Attributes:
        position: of the tensor.
        offset: bytes behind its first, over the integers of the kernel.
    """

    position: int
    offset: Formula = (0,)


@dataclass(frozen=True, slots=True)
class Number:
    """An integer over those of the kernel.

    Attributes:
        value: of it.
        dtype: what it is in C, one of `C_TYPES`.
    """

    value: Formula
    dtype: str = "i64"


@dataclass(frozen=True, slots=True)
class Struct:
    """The address of a structure, laid out as C does: each field where its type may begin.

    Attributes:
        fields: in order.
    """

    fields: tuple[Argument, ...]


@dataclass(frozen=True, slots=True)
class DeviceProgram:
    """What the driver made of bytes that only the device understands: a handle.

    Attributes:
        open: the function that makes it, of an address and a number of bytes; 0 where it cannot. Empty
            where the handle is the address.
        close: the function that is given it behind the last call; empty for none.
        images: the bytes, by the digest of the constants that they were made for.
        constants: positions of the tensors that are those constants.
    """

    open: str
    close: str
    images: Mapping[str, bytes]
    constants: tuple[int, ...] = ()


Argument: TypeAlias = Tensor | Number | bytes | Struct | DeviceProgram
"""What a driver is given; of bytes the address."""

Ready: TypeAlias = Callable[[Sequence[np.ndarray], Sequence[int]], Any]
"""Gives an argument for the tensors and the integers of a call: an array for an address, an integer of 64
bits, or what `ctypes` has for it."""

Find: TypeAlias = Callable[[str], Callable[..., int]]
"""Gives a function of the driver by its name."""


def digest_of(arrays: Sequence[np.ndarray]) -> str:
    """Return what says which constants these are."""
    found = hashlib.sha256()
    for x in arrays:
        found.update(f"{x.dtype.str}{x.shape}".encode())
        found.update(np.ascontiguousarray(x).tobytes())
    return found.hexdigest()


def at_line(data: bytes) -> np.ndarray:
    """Return bytes where tensors may begin, too: at the start of a line of the cache."""
    space = np.empty(len(data) + ALIGNMENT, np.uint8)
    first = -space.ctypes.data % ALIGNMENT
    found = space[first : first + len(data)]
    found[:] = np.frombuffer(data, np.uint8)
    return found


def number(value: Formula, ints: Sequence[int], device: str) -> int:
    """Return an integer over those of a kernel.

    Raises:
        RunError: `run.device-failed` where it is not defined.
    """
    found = formula.evaluate(value, ints)
    if found is None:
        raise error("run.device-failed", f"a number in a command of '{device}' is not defined")
    return found


def ready(a: Argument, device: str, find: Find) -> Ready:
    """Return what gives the value of an argument.

    Args:
        a: the argument.
        device: whose call it is, for messages.
        find: gives a function of the driver.

    Raises:
        RunError: `run.device-absent` where the driver has no function that opens a program;
            `run.device-failed` where it does not take one.
    """
    match a:
        case Tensor(position=position, offset=offset):
            return lambda arrays, ints: _behind(arrays[position], number(offset, ints, device))
        case Number():
            return lambda _, ints: _of_c(a, number(a.value, ints, device), device)
        case bytes():
            kept = at_line(a)
            return lambda _, __: kept
        case Struct():
            return _struct(a, device, find)
        case DeviceProgram():
            opens, closes = (find(name) if name else None for name in (a.open, a.close))
            return _Handles(a, device, opens, closes)
        case _:
            assert_never(a)


def _of_c(a: Number, value: int, device: str) -> Any:
    made = C_TYPES[a.dtype](value)
    if made.value != value:
        raise error("run.device-failed", f"a command of '{device}' has {value} as {a.dtype}")
    return value if a.dtype == "i64" else made


def _behind(array: np.ndarray, offset: int) -> np.ndarray:
    return array.reshape(-1).view(np.uint8)[offset:] if offset else array


def _in_field(x: Any) -> int:
    if isinstance(x, np.ndarray):
        return x.ctypes.data
    return x if isinstance(x, int) else x.value


def _struct(a: Struct, device: str, find: Find) -> Ready:
    made = [ready(x, device, find) for x in a.fields]
    kinds = [C_TYPES[x.dtype] if isinstance(x, Number) else ctypes.c_void_p for x in a.fields]
    layout = [(f"f{i}", kind) for i, kind in enumerate(kinds)]
    structure: Any = type("Layout", (ctypes.Structure,), {"_fields_": layout})

    def value(arrays: Sequence[np.ndarray], ints: Sequence[int]) -> Any:
        fields = [give(arrays, ints) for give in made]
        filled = structure(*map(_in_field, fields))
        address: Any = ctypes.c_void_p(ctypes.addressof(filled))
        address.lives = (filled, fields)  # with structures that this one points to
        return address

    return value


@dataclass(slots=True, eq=False, weakref_slot=True)
class _Handles:
    """Programs that the driver has; what they are made for is found by the constants of a call."""

    program: DeviceProgram
    device: str
    open: Callable[..., int] | None
    close: Callable[..., int] | None
    _made: dict[str, int | np.ndarray] = field(default_factory=dict[str, int | np.ndarray])
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        if len(self.program.images) == 1:
            self._handle(next(iter(self.program.images)))

    def __call__(self, arrays: Sequence[np.ndarray], ints: Sequence[int]) -> Any:
        """Return the handle for the constants of a call."""
        del ints
        if len(self.program.images) == 1:
            return next(iter(self._made.values()))
        with self._lock:
            return self._handle(digest_of([arrays[i] for i in self.program.constants]))

    def _handle(self, digest: str) -> int | np.ndarray:
        if digest not in self._made:
            image = self.program.images.get(digest)
            if image is None:
                raise error(
                    "run.device-failed",
                    f"'{self.device}' is given constants that no program was made for",
                    hint="run the model itself, on its board",
                )
            data = at_line(image)
            found = 1 if self.open is None else self.open(data, data.size)
            if not found:
                raise error(
                    "run.device-failed",
                    f"{self.program.open} of '{self.device}' takes no program of {data.size} bytes",
                )
            self._made[digest] = data if self.open is None else found
            if self.close is not None:
                weakref.finalize(self, self.close, found)
        return self._made[digest]
