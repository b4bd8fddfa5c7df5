"""Commands as calls of a driver: which function is given which tensors, scratch memory and numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import assert_never

import numpy as np

from inlay.accel.accelerator import Architecture
from inlay.accel.c_arguments import CCalls
from inlay.accel.declare import Absent, Driver, Library, Mock, Process, Socket, place_of
from inlay.accel.launch import launching
from inlay.accel.match import Command, Found
from inlay.accel.mock import mock_of
from inlay.accel.region import WholeCall, whole_call
from inlay.accel.steps import Room, room_of
from inlay.accel.tiled import TiledCommand
from inlay.accel.written import given_to, number_of
from inlay.arith.expr import Int, Sym, lit, to_int
from inlay.base.diagnostics import error
from inlay.ir.expr import Expr, Function, Tuple, Var
from inlay.ir.types import TensorType
from inlay.ir.walk import spine
from inlay.runtime.calls import DriverCall, LibraryFunction, opened
from inlay.runtime.driver_arguments import Tensor
from inlay.runtime.native import Callback


def picoseconds(arch: Architecture, command: Found) -> Int:
    """Return how long a command takes by its description, over the dims of the program."""
    return command.cycles(arch) * 10**12 // arch.number(type(arch.device).clock)


def scratch_bytes(
    arch: Architecture, driver: Driver, command: Command, params: Sequence[Var], results: Sequence[Expr]
) -> Int:
    """Return the scratch memory that a driver is given with a command, over the dims of the program."""
    if arch.description.region is not None and not isinstance(driver, Mock):
        return lit(whole_call(arch, command, tensors_of(params, results)).scratch)
    return room_of(arch, command).bytes


def tensors_of(params: Sequence[Var], results: Sequence[Expr]) -> Sequence[Expr]:
    """Return the tensors of a kernel: what it reads before what it gives."""
    return (*(p for p in params if isinstance(p.type, TensorType)), *results)


def results_of(function: Function) -> Sequence[Expr]:
    """Return the values that a function in A-normal form gives, in the order of its results."""
    lets, tail = spine(function.body)
    together = next((let.value for let in reversed(lets) if let.var is tail), tail)
    return together.fields if isinstance(together, Tuple) else (tail,)


def running(
    arch: Architecture,
    driver: Driver,
    device: str,
    command: Found,
    params: Sequence[Var],
    results: Sequence[Expr],
    dims: Sequence[Sym],
) -> Callback:
    """Return what makes a driver do a command, in this process; as `call_of`."""
    if isinstance(command, TiledCommand):
        return launching(arch, driver, device, command, params)
    whole = None
    if arch.description.region is not None and not isinstance(driver, Mock):
        whole = whole_call(arch, command, tensors_of(params, results))
    return opened(call_of(arch, driver, device, command, params, results, dims, (), whole))


def call_of(
    arch: Architecture,
    driver: Driver,
    device: str,
    command: Command,
    params: Sequence[Var],
    results: Sequence[Expr],
    dims: Sequence[Sym],
    known: Sequence[Mapping[int, np.ndarray]] = (),
    whole: WholeCall | None = None,
) -> DriverCall:
    """Return a command as a call of a driver.

    Args:
        arch: the architecture.
        driver: whose.
        device: the name of the device, for messages.
        command: what is to be done.
        params: of the function that it is, of which the tensors are those of the kernel.
        results: of that function, which are the tensors behind those.
        dims: of the program, in the order in which the kernel is given them.
        known: for each call of the kernel in the program its operands that are constants, by position.
        whole: the call that it is as a region; None where commands are written one by one.

    Raises:
        RunError: `run.device-absent` where nothing drives the device.
        CompileError: `accel.declaration` where the encoding is none.
    """
    places, room = {sym: i for i, sym in enumerate(dims)}, room_of(arch, command)
    tensors = tensors_of(params, results)
    predicted = number_of(picoseconds(arch, command), places).value
    if whole is not None:
        emit = type(arch.device).emit
        assert isinstance(emit, CCalls), "checked with the class"
        assert isinstance(driver, Library | Process | Socket), "others have no call of a whole region"
        target = LibraryFunction(place_of(driver), whole.function, emit.status, emit.faults)
        return DriverCall(device, target, whole.arguments(tensors, places), predicted)
    made = [
        _step(arch, driver, device, c, _operands(arch, tensors, c, room, at, places), places, known)
        for at, c in enumerate(command.steps)
    ]
    return replace(made[-1], picoseconds=predicted, before=tuple(made[:-1]))


def _step(
    arch: Architecture,
    driver: Driver,
    device: str,
    command: Command,
    operands: Mapping[str, Tensor | bytes],
    places: Mapping[Sym, int],
    known: Sequence[Mapping[int, np.ndarray]],
) -> DriverCall:
    """Return one command as a call of a driver, without those before it."""
    match driver:
        case Library() | Process() | Socket():
            emit = type(arch.device).emit
            assert isinstance(emit, CCalls), "checked with the class"
            function, args = given_to(arch, command, operands, places, known)
            target = LibraryFunction(place_of(driver), function, emit.status, emit.faults)
            return DriverCall(device, target, args)
        case Mock():
            code, order, asked = mock_of(arch, command.instruction, command.sizes)
            numbers = [number_of(to_int(d), places) for d in asked]
            return DriverCall(device, code, (*(operands[n] for n in order), *numbers))
        case Absent(why=why):
            raise error("run.device-absent", f"'{device}' cannot be used: {why}")
        case _:
            assert_never(driver)


def _operands(
    arch: Architecture,
    tensors: Sequence[Expr],
    command: Command,
    room: Room,
    step: int,
    places: Mapping[Sym, int],
) -> dict[str, Tensor | bytes]:
    """Return which tensor of the kernel each operand is, behind them scratch memory; or bytes.

    Args:
        arch: the architecture.
        tensors: of the kernel, what it reads before what it gives.
        command: one of those that the kernel is.
        room: scratch memory of all of them.
        step: which of them it is.
        places: of the dims of the program among the integers of the kernel.
    """
    found: dict[str, Tensor | bytes] = {}

    def scratch(at: Int) -> Tensor:
        return Tensor(len(tensors), number_of(at, places).value)

    for name, value in command.operands.items():
        constant = command.constant(name, arch)
        if constant is not None:
            found[name] = constant.tobytes()
        elif value in room.values:
            found[name] = scratch(room.values[value])
        else:
            found[name] = Tensor(next(i for i, t in enumerate(tensors) if t is value))
    return {**found, **{n: scratch(at) for n, at in room.temps[step].items()}}
