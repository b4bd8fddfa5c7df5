"""The back end of an accelerator: its description, as the rest of the compiler asks about devices.

What patterns find are candidates, each one command; the planner chooses. What is chosen comes back as a
function of its own (`emit`), in which the same pattern is found again, and becomes a call of the driver.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import module_from_spec
from pathlib import Path
from types import ModuleType
from typing import assert_never

import numpy as np

from inlay.accel.above import Above
from inlay.accel.accelerator import Accelerator, Architecture, Description, class_of, describe, where
from inlay.accel.c_arguments import CCalls
from inlay.accel.chains import larger
from inlay.accel.declare import Absent, Driver, Library, Mock, Process, Socket, beside, place_of
from inlay.accel.hooks import digest_of, running_hook
from inlay.accel.launch import launching
from inlay.accel.match import Command, Found, Patterns, fault_of
from inlay.accel.mock import mock_of
from inlay.accel.overlay import Block, Mismatch, blocks
from inlay.accel.pattern import Applied, Input, below
from inlay.accel.repeat import loops_missed
from inlay.accel.steps import Room, chosen_for, room_of
from inlay.accel.stream_rules import checked
from inlay.accel.tiled import TiledCommand
from inlay.accel.written import encoded_call, given_to, number_of
from inlay.analysis.candidates import Candidate, Miss
from inlay.arith.dtype import I8, U8, DType
from inlay.arith.expr import Int, Sym, to_int
from inlay.base.diagnostics import InlayError, InternalError, error
from inlay.codegen.interface import Backend, DeviceCode, DeviceJob, Needs
from inlay.codegen.program_hooks import Level, ProgramHook, When
from inlay.ir.expr import Call, Expr, Function, OpRef, Tuple, Var
from inlay.ir.kernel import Kernel, Workspace
from inlay.ir.module import Module
from inlay.ir.types import TensorType
from inlay.ir.walk import spine
from inlay.machine.board import Board
from inlay.machine.device import Arch
from inlay.runtime.calls import DriverCall, LibraryFunction, opened
from inlay.runtime.driver_arguments import Tensor
from inlay.runtime.native import Callback
from inlay.runtime.streams import StreamCall


class AcceleratorBackend(Backend):
    """Makes commands for the devices of one class."""

    in_host_memory = True

    def __init__(self, name: str, cls: type[Accelerator], folder: Path | None = None) -> None:
        self.name, self._class, self._folder = name, cls, folder
        self.generators = (name,)

    @functools.cached_property
    def description(self) -> Description:
        """The class, checked.

        Raises:
            CompileError: all `accel.declaration` at once.
        """
        return checked(describe(self._class))

    @functools.lru_cache(maxsize=64)  # noqa: B019 (there is one back end of a class in a process)
    def patterns(self, parameters: tuple[tuple[str, str], ...]) -> Patterns:
        """Return the patterns of the architecture with some parameters."""
        return Patterns.of(self.description.architecture(dict(parameters)))

    def unavailable(self, board: Board, device: str) -> str:
        """Return why no commands are made for a device, or nothing."""
        if isinstance(self.driver, Absent):
            return self.driver.why
        return super().unavailable(board, device)

    def candidates(self, module: Module, board: Board, device: str) -> Sequence[Candidate | Miss]:
        """Return what patterns find, each with its cycles as a cost; and why they do not take the rest."""
        patterns = self.patterns(board.arch_of(device).parameters)
        found: list[Candidate | Miss] = []
        repeats = patterns.repeats
        for function in module.functions.values():
            loops = {id(c): why for c, why in loops_missed(function, repeats)} if repeats else {}
            for block in blocks(function.body):
                found += _offered(patterns, block, device, loops)
        return found

    def most_turns(self, board: Board, device: str) -> int:
        """Return the most steps of a `p.repeat` in a pattern; 0 where there is none."""
        repeats = self.patterns(board.arch_of(device).parameters).repeats
        return max((r.times[1] for r in repeats.values()), default=0)

    def byte_formats(self, arch: Arch) -> frozenset[DType]:
        """Return the formats of bytes of tensors in patterns."""
        built = self.patterns(arch.parameters).patterns
        read = {x for p in built for node in below(p.mapped.result) for x in node.operands}
        tensors = [x for x in read if isinstance(x, Input) and not x.constant]
        return frozenset(d for x in tensors for d in x.dtypes or (I8, U8) if d in (I8, U8))

    def program_hooks(self, board: Board, device: str) -> Sequence[ProgramHook]:
        """Return the hooks of the description."""
        arch = self.description.architecture(dict(board.arch_of(device).parameters))
        return [
            ProgramHook(
                f"{self.name}.{h.name}",
                device,
                Level(h.level),
                When(h.when) if h.when else None,
                h.after,
                h.before,
                running_hook(h, arch.device),
                digest_of(self._class, h, board.arch_of(device).parameters),
                where(self._class, h.run),
                fault_of,
            )
            for h in self.description.hooks.values()
        ]

    @property
    def driver(self) -> Driver:
        """Who brings commands to a device; files that lie beside the description by their whole paths."""
        said = self._class.drivers[0]
        return said if self._folder is None else beside(said, self._folder)

    @property
    def folder(self) -> Path:
        """Where the description is, and what lies beside it."""
        return self._folder or Path(inspect.getfile(self._class)).parent

    def lower_after(self, arch: Arch) -> Sequence[str]:
        """Return what the description says."""
        del arch
        return self._class.lower_after

    def emit(self, job: DeviceJob) -> DeviceCode:
        """Return what gives the driver its commands: calls, and functions of this process for streams.

        Raises:
            CompileError: `accel.no-room` where the scratch memory of a command is not free.
        """
        patterns, driver, device = self.patterns(job.arch.parameters), self.driver, job.devices[0]
        memory = job.board.devices_by_name[device].memories[0]
        calls: dict[str, DriverCall] = {}
        functions: dict[str, Callback] = {}
        streams: dict[str, StreamCall] = {}
        needs: dict[str, Needs] = {}
        for r in job.requests:
            kernel = job.kernels[r.name]
            command, params, results = _of_kernel(patterns, kernel)
            if isinstance(command, TiledCommand):
                functions[r.name] = launcher = launching(patterns.arch, driver, device, command, params)
                known = job.constants(r.name)
                if (saved := launcher.saved(known)) is not None:
                    streams[r.name] = saved
                launcher.settle(known)
                continue
            command = chosen_for(patterns.arch, command, kernel.name, partial(job.free, kernel.name, memory))
            dims = [d.sym for d in kernel.type.dims]
            calls[r.name] = call_of(
                patterns.arch, driver, device, command, params, results, dims, job.constants(r.name)
            )
            needed = room_of(patterns.arch, command).bytes
            if needed != 0:
                needs[r.name] = Needs(tuple(dims), Workspace(needed))
        return DeviceCode("", functions=functions, calls=calls, streams=streams, needs=needs)


_Missed = dict[int, tuple[tuple[int, int], Miss]]
"""The nearest miss of operations, by identity, with how near it is."""


def _offered(
    patterns: Patterns, block: Block, device: str, loops: Mapping[int, str]
) -> list[Candidate | Miss]:
    """Return candidates of a block, and for operations that are in none the nearest miss.

    Args:
        patterns: of the architecture.
        block: of a program.
        device: that would run them.
        loops: why operations, by identity, are in no step that is repeated.
    """
    found: list[Candidate | Miss] = []
    missed: _Missed = {}
    taken: set[int] = set()
    streams: dict[Var, TiledCommand] = {}
    for var, call in block.calls.items():
        for result in patterns.at(var, block):
            match result:
                case Mismatch(depth=0):
                    pass
                case Mismatch(depth=depth, reason=reason):
                    _keep(missed, call, (-depth, 1), Miss(call, device, reason, depth))
                case Command() | TiledCommand():
                    reasons = result.reasons or _unwritten(patterns.arch, result)
                    if not reasons:
                        found.append(_candidate(patterns.arch, result, device))
                        _keep_fastest(streams, var, result)
                        taken |= {id(x) for x in result.calls}
                    why = f"{result.pattern}: {'; '.join(reasons)}"
                    for x in result.calls:
                        _keep(
                            missed,
                            x,
                            (-len(result.calls), len(reasons)),
                            Miss(x, device, why, len(result.calls)),
                        )
    wholes = larger(patterns.tiler, block.calls, block.uses, streams)
    found += [_candidate(patterns.arch, whole, device) for whole in wholes]
    above = Above(block)
    for call in block.calls.values():
        if why := loops.get(id(call)):
            missed[id(call)] = ((0, 0), Miss(call, device, why))
        elif id(call) not in missed and (miss := _outside(patterns, call, device, above, missed)) is not None:
            missed[id(call)] = ((0, 0), miss)
    return [*found, *(miss for call, (_, miss) in missed.items() if call not in taken)]


def _keep_fastest(streams: dict[Var, TiledCommand], var: Var, result: Found) -> None:
    """Keep the stream that computes a value in the fewest cycles."""
    if isinstance(result, TiledCommand) and (var not in streams or result.total < streams[var].total):
        streams[var] = result


def _unwritten(arch: Architecture, command: Found) -> tuple[str, ...]:
    """Return why a command cannot be written: the encoding fails."""
    if isinstance(command, TiledCommand):
        return ()  # its words are a part of it
    try:
        for c in command.steps:
            encoded_call(arch, c)
    except Exception as failure:  # noqa: BLE001 (code of others: the operation runs elsewhere, with the reason)
        return (fault_of(failure),)
    return ()


def _outside(patterns: Patterns, call: Call, device: str, above: Above, missed: _Missed) -> Miss | None:
    """Return that an operation is in no pattern, with those that there are; or not in its place in one.

    Of several patterns that one is told of which most of what reads it is as the pattern has it.

    Args:
        patterns: of the architecture.
        call: of the operation.
        device: that does not take it.
        above: what reads the values of the block.
        missed: why operations are no results of patterns.
    """
    assert isinstance(call.callee, OpRef), "operators are called"
    name = call.callee.op.name
    unlike = _unlike(patterns, call)
    having = [p for p in patterns.patterns if name in p.operators and isinstance(p.mapped.result, Applied)]
    if not having:
        takes = "; ".join(f"{p.name} of {', '.join(sorted(p.operators))}" for p in patterns.patterns)
        return Miss(call, device, f"{name}{unlike} is in none" + (f" ({takes})" if takes else ""))
    if unlike:
        return Miss(call, device, f"{name}{unlike} is in none: {having[0].name} takes integers")
    inner = [p.mapped.result for p in having if isinstance(p.mapped.result, Applied)]
    found = [
        (*above.nearest(call, result), p.name, result)
        for p, result in zip(having, inner, strict=True)
        if name not in result.operators
    ]
    if not found:
        return None
    depth, why, last, pattern, result = max(found, key=lambda x: x[0])
    if not why and id(last) in missed:
        known = missed[id(last)][1]
        return Miss(call, device, known.reason, known.depth)
    why = f": {why}" if why else ""
    wanted = " or ".join(result.operators)
    return Miss(call, device, f"{pattern} takes {name} with {wanted} behind it{why}", depth)


def _unlike(patterns: Patterns, call: Call) -> str:
    """Return the format of a result of floats where a device computes in integers alone; else nothing."""
    dtype = call.type.dtype if isinstance(call.type, TensorType) else I8
    read = (x for p in patterns.patterns for node in below(p.mapped.result) for x in node.operands)
    formats = {d for x in read if isinstance(x, Input) for d in x.dtypes or (dtype,)}
    return f" of {dtype}" if dtype.is_float and formats and all(d.is_integer for d in formats) else ""


def _keep(
    missed: dict[int, tuple[tuple[int, int], Miss]], call: Call, rank: tuple[int, int], m: Miss
) -> None:
    """Keep the nearest miss: what agrees most, then the fewest reasons."""
    if id(call) not in missed or rank < missed[id(call)][0]:
        missed[id(call)] = (rank, m)


def _candidate(arch: Architecture, command: Found, device: str) -> Candidate:
    note = command.note if isinstance(command, TiledCommand) else ""
    return Candidate(command.calls, device, command.pattern, _picoseconds(arch, command), note)


def _picoseconds(arch: Architecture, command: Found) -> Int:
    return command.cycles(arch) * 10**12 // arch.number(type(arch.device).clock)


def _of_kernel(patterns: Patterns, kernel: Kernel) -> tuple[Found, Sequence[Var], Sequence[Expr]]:
    """Return the command that the body of a kernel is, its parameters, and what it gives."""
    function = getattr(kernel.body, "function", None)
    assert isinstance(function, Function), "a region keeps the operations that it was made of"
    return _found(patterns, function, kernel.name), function.params, results_of(function)


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
    return opened(call_of(arch, driver, device, command, params, results, dims))


def call_of(
    arch: Architecture,
    driver: Driver,
    device: str,
    command: Command,
    params: Sequence[Var],
    results: Sequence[Expr],
    dims: Sequence[Sym],
    known: Sequence[Mapping[int, np.ndarray]] = (),
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

    Raises:
        RunError: `run.device-absent` where nothing drives the device.
        CompileError: `accel.declaration` where the encoding is none.
    """
    places, room = {sym: i for i, sym in enumerate(dims)}, room_of(arch, command)
    tensors: Sequence[Expr] = (*(p for p in params if isinstance(p.type, TensorType)), *results)
    made = [
        _step(arch, driver, device, c, _operands(arch, tensors, c, room, at, places), places, known)
        for at, c in enumerate(command.steps)
    ]
    predicted = number_of(_picoseconds(arch, command), places).value
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


def _found(patterns: Patterns, function: Function, name: str) -> Found:
    lets, _ = spine(function.body)
    last = next(let.var for let in reversed(lets) if _is_operation(let.value))
    members = {id(let.value) for let in lets if _is_operation(let.value)}
    (block,) = blocks(function.body)
    for command in _all(patterns, block, last):
        if not command.reasons and {id(c) for c in command.calls} == members:
            return command
    raise InternalError(f"no pattern of {patterns.arch.description.cls.__name__} is the region {name}")


def _all(patterns: Patterns, block: Block, last: Var) -> Iterator[Found]:
    """Yield what computes the last value of a region, then the larger streams of it."""
    yield from (c for c in patterns.at(last, block, outlined=True) if not isinstance(c, Mismatch))
    streams: dict[Var, TiledCommand] = {}
    for var in block.calls:
        for c in patterns.at(var, block, outlined=True):
            if not isinstance(c, Mismatch) and not c.reasons:
                _keep_fastest(streams, var, c)
    yield from larger(patterns.tiler, block.calls, block.uses, streams)


def _is_operation(value: Expr) -> bool:
    return isinstance(value, Call) and isinstance(value.callee, OpRef)


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


def backend_in(module: ModuleType) -> AcceleratorBackend:
    """Return the back end that the description in a module is; named as its file.

    Raises:
        CompileError: `accel.declaration`.
    """
    return AcceleratorBackend(module.__name__.rpartition(".")[2].replace("_", "-"), class_of(module))


def backend_in_file(path: str) -> AcceleratorBackend:
    """Return the back end that the description in a file is; the file is run.

    Not by `exec_module`: it may take bytecode that was kept of another text of equal length, written within
    the same second.

    Raises:
        CompileError: `accel.declaration` where it fails, or does not describe a device.
    """
    file = Path(path)
    source = SourceFileLoader(file.stem, path)
    module = module_from_spec(ModuleSpec(file.stem, source, origin=path))
    try:
        exec(source.source_to_code(source.get_data(path), path), module.__dict__)
    except InlayError:
        raise
    except Exception as failure:
        raise error("accel.declaration", f"running {path} failed: {fault_of(failure)}") from failure
    return AcceleratorBackend(file.stem, class_of(module), file.parent)
