"""Kernels that are calls of a driver: data that an executable keeps, and opens again when it is loaded.

A call names the driver, which is a function of a shared library, or native code that stands for a device
that is not there; and what it is given: addresses of tensors of the kernel, addresses of constants of the
program, and integers over those of the kernel. Calls are a property of the executable, a record for each
kernel; bytes that they give are constants of the program.
"""

from __future__ import annotations

import base64
import ctypes
import json
import mmap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, assert_never, cast

import numpy as np

from inlay.base.diagnostics import error
from inlay.bytecode import formula
from inlay.bytecode.formula import Formula
from inlay.bytecode.program import Constant, HostBody, ImageTarget, Kernel, Program
from inlay.runtime.driver_arguments import C_TYPES, Argument, DeviceProgram, Number, Struct, Tensor, ready
from inlay.runtime.driver_places import Place, function_of, place_of, place_record, starting
from inlay.runtime.host_cpu import check_target
from inlay.runtime.native import Callback

CALLS = "calls"
"""The property of an executable that has them."""
FUNCTIONS = "functions of devices"
"""The property that says whose the kernels are that only the process has that compiled the program."""
_Kept = TypeVar("_Kept")


@dataclass(frozen=True, slots=True)
class LibraryFunction:
    """A C function of addresses and 64-bit integers, which returns 0 or the number of a fault.

    Attributes:
        library: where it is (`driver_places`).
        name: of the function.
        returns: what it returns, one of `C_TYPES`; empty for nothing, which is no fault.
        faults: what numbers that it returns mean.
    """

    library: Place
    name: str
    returns: str = "i64"
    faults: Mapping[int, str] = field(default_factory=dict[int, str])


@dataclass(frozen=True, slots=True)
class Code:
    """Native code with the signature of phases: buffers, integers, part, parts.

    Attributes:
        image: position-independent.
        phases: offsets, in order.
        target: the processor that it is for.
    """

    image: bytes
    phases: tuple[int, ...]
    target: ImageTarget


@dataclass(frozen=True, slots=True)
class DriverCall:
    """A call of a driver.

    Attributes:
        device: whose it is, for messages.
        driver: what is called.
        args: what it is given, in order.
        picoseconds: that the device is predicted to take, over the integers of the kernel.
        before: calls that are made before, in order.
    """

    device: str
    driver: LibraryFunction | Code
    args: tuple[Argument, ...]
    picoseconds: Formula = (0,)
    before: tuple[DriverCall, ...] = ()


def opened(call: DriverCall) -> Callback:
    """Return what makes a call, given the tensors and the integers of the kernel.

    Raises:
        RunError: `run.device-absent` where the library, or a function of it, is not there.
        CompileError: `container.target` for code that this processor cannot run.
    """
    if call.before:
        steps = [opened(x) for x in (*call.before, replace(call, before=()))]

        def run(arrays: list[np.ndarray], ints: list[int]) -> None:
            for step in steps:
                step(arrays, ints)

        return run
    match call.driver:
        case LibraryFunction():
            return _of_library(call, call.driver)
        case Code():
            return _of_code(call, call.driver)
        case _:
            assert_never(call.driver)


def _of_library(call: DriverCall, driver: LibraryFunction) -> Callback:
    target = starting(driver.library, driver.name, call.device, driver.returns)

    def find(name: str) -> Callable[..., int]:
        return function_of(driver.library, name, call.device)

    kept = [ready(a, call.device, find) for a in call.args]

    def run(arrays: list[np.ndarray], ints: list[int]) -> None:
        status = target(*(give(arrays, ints) for give in kept))
        if status:
            said = driver.faults.get(status)
            meaning = f"the fault {status}" if said is None else f"the fault {status}: {said}"
            raise error("run.device-failed", f"'{call.device}' ended {driver.name} with {meaning}")

    return run


_PHASE = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


def _of_code(call: DriverCall, code: Code) -> Callback:
    check_target(code.target)
    size = max(len(code.image), 1)
    memory = mmap.mmap(-1, size, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    memory.write(code.image)
    view = (ctypes.c_char * size).from_buffer(memory)
    base = ctypes.addressof(view)
    found = [ready(a, call.device, _no_function) for a in call.args]
    addresses = [give for give, a in zip(found, call.args, strict=True) if not isinstance(a, Number)]
    numbers = [give for give, a in zip(found, call.args, strict=True) if isinstance(a, Number)]

    def run(arrays: list[np.ndarray], ints: list[int]) -> None:
        pointers = [give(arrays, ints).ctypes.data for give in addresses]
        values = [give(arrays, ints) for give in numbers]
        buffers = (ctypes.c_void_p * max(len(pointers), 1))(*pointers)
        given = (ctypes.c_int64 * max(len(values), 1))(*values)
        assert len(view) == size, "the code is there as long as what runs it"
        for offset in code.phases:
            status = _PHASE(base + offset)(buffers, given, 0, 1)
            if status:
                raise error("run.device-failed", f"code that stands for '{call.device}' failed: {status}")

    return run


def _no_function(name: str) -> Callable[..., int]:
    raise ValueError(f"native code has no function '{name}'")


# ---------------------------------------------------------------------------- in executables


def with_calls(
    program: Program, calls: Mapping[str, DriverCall], functions: Mapping[str, str] | None = None
) -> Program:
    """Return a program that keeps calls, by the names of kernels; equal bytes are kept once.

    Args:
        program: without them.
        calls: by the names of kernels.
        functions: kernels that only this process has, by name, with their devices.
    """
    if functions:
        text = json.dumps(functions, sort_keys=True)
        program = replace(program, properties={**program.properties, FUNCTIONS: text})
    if not calls:
        return program
    constants, places = list(program.constants), dict[bytes, int]()

    def kept(data: bytes) -> int:
        if data not in places:
            places[data] = len(constants)
            constants.append(Constant("u8", (len(data),), data))
        return places[data]

    said = {name: _record(call, kept) for name, call in calls.items()}
    text = json.dumps(said, sort_keys=True)
    return replace(program, constants=tuple(constants), properties={**program.properties, CALLS: text})


def _record(call: DriverCall, kept: Callable[[bytes], int]) -> dict[str, Any]:
    return {
        "device": call.device,
        "driver": _driver_record(call.driver),
        "args": [_argument_record(a, kept) for a in call.args],
        "picoseconds": _formula_record(call.picoseconds),
        "before": [_record(x, kept) for x in call.before],
    }


def _driver_record(driver: LibraryFunction | Code) -> dict[str, Any]:
    match driver:
        case LibraryFunction(library=library, name=name, returns=returns, faults=faults):
            meanings = [[number, text] for number, text in faults.items()]
            return {**place_record(library), "function": name, "returns": returns, "faults": meanings}
        case Code(image=image, phases=phases, target=target):
            text = base64.b64encode(image).decode()
            return {"image": text, "phases": phases, "triple": target.triple, "features": target.features}
        case _:
            assert_never(driver)


def _argument_record(a: Argument, kept: Callable[[bytes], int]) -> dict[str, Any]:
    match a:
        case Tensor(position=position, offset=offset):
            return {"tensor": position, "offset": _formula_record(offset)}
        case Number(value=value, dtype=dtype):
            return {"number": _formula_record(value), "type": dtype}
        case bytes():
            return {"constant": kept(a)}
        case Struct(fields=fields):
            return {"struct": [_argument_record(x, kept) for x in fields]}
        case DeviceProgram():
            images = {digest: kept(image) for digest, image in a.images.items()}
            return {"program": images, "functions": [a.open, a.close], "constants": a.constants}
        case _:
            assert_never(a)


def _formula_record(value: Formula) -> list[Any]:
    return [[step.index] if isinstance(step, formula.Arg) else step for step in value]


def owners_of(properties: Mapping[str, str]) -> dict[str, str]:
    """Return whose kernels are that only the process has that compiled a program, by name.

    Raises:
        CompileError: `container.corrupt` for a property that is not of the form.
    """
    try:
        found = cast("dict[str, Any]", json.loads(properties.get(FUNCTIONS, "{}")))
        return {str(name): str(device) for name, device in found.items()}
    except (ValueError, AttributeError) as fault:
        raise error("container.corrupt", f"found a property '{FUNCTIONS}' that names no devices") from fault


def calls_of(program: Callable[[], Program], properties: Mapping[str, str]) -> dict[Kernel, DriverCall]:
    """Return the calls that an executable keeps, by kernel.

    Args:
        program: reads the executable.
        properties: of the executable.

    Raises:
        CompileError: `container.corrupt` for a property that is not of the form.
    """
    return kept_of(program, properties, CALLS, _read)


def kept_of(
    program: Callable[[], Program],
    properties: Mapping[str, str],
    name: str,
    read: Callable[[Any, Kernel, Program], _Kept],
) -> dict[Kernel, _Kept]:
    """Return what a property of an executable says of its kernels, by kernel.

    Args:
        program: reads the executable.
        properties: of the executable.
        name: of the property: an object of JSON with a record for each name of a kernel.
        read: makes of a record, its kernel and the program what is returned.

    Raises:
        CompileError: `container.corrupt` for a property that is not of the form.
    """
    if name not in properties:
        return {}
    whole = program()
    kernels = {k.body.name: k for k in whole.kernels if isinstance(k.body, HostBody)}
    try:
        said = cast("dict[str, Any]", json.loads(properties[name]))
        return {kernels[kernel]: read(x, kernels[kernel], whole) for kernel, x in said.items()}
    except (
        ValueError,
        TypeError,
        KeyError,
        AttributeError,
        IndexError,
        OverflowError,
        RecursionError,
    ) as fault:
        raise error(
            "container.corrupt", f"found a property '{name}' that does not say what devices run"
        ) from fault


def _read(said: Any, kernel: Kernel, program: Program) -> DriverCall:
    args = tuple(_argument(a, kernel, program.constants) for a in said["args"])
    predicted = _formula(said["picoseconds"], kernel)
    before = tuple(_read(x, kernel, program) for x in said["before"])
    return DriverCall(str(said["device"]), _driver(said["driver"]), args, predicted, before)


def _driver(said: Any) -> LibraryFunction | Code:
    if "function" in said:
        faults = {_whole(number): str(text) for number, text in said["faults"]}
        returns = _c_type(said["returns"]) if said["returns"] else ""
        return LibraryFunction(place_of(said), str(said["function"]), returns, faults)
    image, phases = base64.b64decode(said["image"], validate=True), tuple(map(_whole, said["phases"]))
    if any(not 0 <= offset < len(image) for offset in phases):
        raise ValueError("a phase is outside of its image")
    return Code(image, phases, ImageTarget(str(said["triple"]), tuple(map(str, said["features"]))))


def _argument(said: Any, kernel: Kernel, constants: Sequence[Any]) -> Argument:
    match dict(said):
        case {"tensor": position, "offset": offset, **rest} if not rest:
            return Tensor(_port(position, kernel), _formula(offset, kernel))
        case {"number": value, "type": dtype, **rest} if not rest:
            return Number(_formula(value, kernel), _c_type(dtype))
        case {"constant": position, **rest} if not rest:
            return _constant(position, constants)
        case {"struct": fields, **rest} if not rest:
            return Struct(tuple(_argument(x, kernel, constants) for x in fields))
        case {"program": images, "functions": [opens, closes], "constants": said_of, **rest} if not rest:
            found = {str(digest): _constant(i, constants) for digest, i in images.items()}
            positions = tuple(_port(i, kernel) for i in said_of)
            return DeviceProgram(str(opens), str(closes), found, positions)
        case _:
            raise ValueError(f"{said} is given to no driver")


def _port(position: Any, kernel: Kernel) -> int:
    if not 0 <= _whole(position) < len(kernel.ports):
        raise ValueError(f"a kernel has no tensor {position}")
    return position


def _constant(position: Any, constants: Sequence[Any]) -> bytes:
    if not 0 <= _whole(position) < len(constants):
        raise ValueError(f"there is no constant {position}")
    return constants[position].bytes().tobytes()


def _c_type(said: Any) -> str:
    if said not in C_TYPES:
        raise ValueError(f"{said} is no type of a number")
    return str(said)


def _formula(said: Any, kernel: Kernel) -> Formula:
    found = tuple(map(_step, said))
    if fault := formula.check(found, kernel.ints):
        raise ValueError(fault)
    return found


def _step(said: Any) -> int | formula.Arg | str:
    match said:
        case str():
            return said
        case [index]:
            return formula.Arg(_whole(index))
        case _:
            return _whole(said)


def _whole(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError("needed an integer")
    return value
