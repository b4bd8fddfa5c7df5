"""The back end of an accelerator: its description, as the rest of the compiler asks about devices.

What patterns find are candidates, each one command; the planner chooses. What is chosen comes back as a
function of its own (`emit`), in which the same pattern is found again, and becomes a call of the driver.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import module_from_spec
from pathlib import Path
from types import ModuleType

import numpy as np

from inlay.accel.accelerator import Accelerator, Architecture, Description, class_of, describe, where
from inlay.accel.borrowed import bytes_of, has_any, memory_of, places, rooms_in, taken
from inlay.accel.chains import larger
from inlay.accel.declare import Absent, Driver, Mock, beside
from inlay.accel.driver_calls import call_of, results_of, tensors_of
from inlay.accel.engines import Stream
from inlay.accel.group import align_of
from inlay.accel.hooks import digest_of, running_hook
from inlay.accel.launch import launching
from inlay.accel.match import Command, Found, Patterns, fault_of
from inlay.accel.offered import keep_fastest, keep_largest, offered
from inlay.accel.overlay import Block, Mismatch, blocks
from inlay.accel.pattern import Input, below
from inlay.accel.region import WholeCall, regions, whole_call
from inlay.accel.repeat import loops_missed
from inlay.accel.steps import choices_said, chosen_for, room_of
from inlay.accel.stream_rules import checked
from inlay.accel.tiled import TiledCommand
from inlay.analysis.candidates import Candidate, Miss
from inlay.arith.dtype import I8, U8, DType
from inlay.arith.expr import lit
from inlay.base.diagnostics import InlayError, InternalError, error
from inlay.codegen.interface import Backend, DeviceCode, DeviceJob, Needs
from inlay.codegen.program_hooks import Level, ProgramHook, When
from inlay.ir.expr import Call, Expr, Function, OpRef, Var
from inlay.ir.kernel import Kernel, Workspace
from inlay.ir.module import Module
from inlay.ir.walk import spine
from inlay.machine.board import Board
from inlay.machine.device import Arch, Device
from inlay.runtime.calls import DriverCall
from inlay.runtime.native import Callback
from inlay.runtime.streams import BASE_ALIGN, StreamCall


class AcceleratorBackend(Backend):
    """Makes commands for the devices of one class."""

    in_host_memory = True

    def __init__(self, name: str, cls: type[Accelerator], folder: Path | None = None) -> None:
        self.name, self.cls, self._folder = name, cls, folder
        self.generators = (name,)

    @functools.cached_property
    def description(self) -> Description:
        """The class, checked.

        Raises:
            CompileError: all `accel.declaration` at once.
        """
        return checked(describe(self.cls))

    @functools.lru_cache(maxsize=64)  # noqa: B019 (there is one back end of a class in a process)
    def patterns(
        self, parameters: tuple[tuple[str, str], ...], rooms: tuple[tuple[str, int], ...] = ()
    ) -> Patterns:
        """Return the patterns of the architecture with some parameters.

        Args:
            parameters: as a board says them.
            rooms: units of memories that streams may use, where that is not all of them.
        """
        arch = self.description.architecture(dict(parameters))
        return Patterns.of(replace(arch, rooms=dict(rooms)) if rooms else arch)

    def _patterns_on(self, board: Board, device: str) -> Patterns:
        """Return the patterns of a device, whose borrowed memories are no larger than that of the board."""
        patterns = self.patterns(board.arch_of(device).parameters)
        memory = memory_of(self.description, board, device)
        pool = board.memory(memory) if memory else None
        if pool is None or pool.bytes is None:
            return patterns
        return self._patterns_in(patterns, board.arch_of(device), pool.bytes)

    def _patterns_in(self, patterns: Patterns, arch: Arch, free: int) -> Patterns:
        """Return the patterns where so many bytes are free for borrowed memories."""
        rooms = rooms_in(patterns.arch, free)
        whole = {n: patterns.arch.units(n) for n in rooms}
        return patterns if rooms == whole else self.patterns(arch.parameters, tuple(sorted(rooms.items())))

    def works_in(self, board: Board, device: Device) -> tuple[str, ...]:
        """Return the memory of the host that has operands, and that of which the device borrows some."""
        found = super().works_in(board, device)
        other = memory_of(self.description, board, device.name)
        return found if not other or other in found else (*found, other)

    def unavailable(self, board: Board, device: str) -> str:
        """Return why no commands are made for a device, or nothing."""
        if isinstance(self.driver, Absent):
            return self.driver.why
        if (
            has_any(self.description)
            and memory_of(self.description, board, device) not in board.host.memories
        ):
            return "a memory of it is a part of one of the board, which it does not share with the host"
        return super().unavailable(board, device)

    def candidates(self, module: Module, board: Board, device: str) -> Sequence[Candidate | Miss]:
        """Return what patterns find, each with its cycles as a cost; and why they do not take the rest."""
        patterns = self._patterns_on(board, device)
        found: list[Candidate | Miss] = []
        repeats = patterns.repeats
        for function in module.functions.values():
            loops = {id(c): why for c, why in loops_missed(function, repeats)} if repeats else {}
            for block in blocks(function.body):
                found += offered(patterns, block, device, loops)
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
                digest_of(self.cls, h, board.arch_of(device).parameters),
                where(self.cls, h.run),
                fault_of,
            )
            for h in self.description.hooks.values()
        ]

    @property
    def driver(self) -> Driver:
        """Who brings commands to a device; files that lie beside the description by their whole paths."""
        said = self.cls.drivers[0]
        return said if self._folder is None else beside(said, self._folder)

    @property
    def folder(self) -> Path:
        """Where the description is, and what lies beside it."""
        return self._folder or Path(inspect.getfile(self.cls)).parent

    def lower_after(self, arch: Arch) -> Sequence[str]:
        """Return what the description says."""
        del arch
        return self.cls.lower_after

    def region(self, arch: Arch, kernel: Kernel) -> int:
        """Return the bytes of what the stream of a kernel works in."""
        patterns = self.patterns(arch.parameters)
        command, _, _ = _of_kernel(patterns, kernel)
        if not isinstance(command, TiledCommand) or command.made is None:
            return 0
        return _most_outside(patterns.arch, command) + BASE_ALIGN

    def emit(self, job: DeviceJob) -> DeviceCode:
        """Return what gives the driver its commands: calls, and functions of this process for streams.

        Raises:
            CompileError: `accel.no-room` where the scratch memory of a command is not free.
        """
        driver, device, patterns = self.driver, job.devices[0], self._patterns_on(job.board, job.devices[0])
        calls: dict[str, DriverCall] = {}
        functions: dict[str, Callback] = {}
        streams: dict[str, StreamCall] = {}
        needs: dict[str, Needs] = {}
        for kernel in (job.kernels[r.name] for r in job.requests):
            name, known = kernel.name, job.constants(kernel.name)
            c = self._chosen(patterns, job, kernel)
            if isinstance(c.command, TiledCommand):
                functions[name] = launcher = launching(patterns.arch, driver, device, c.command, c.params)
                if (saved := launcher.saved(known)) is not None:
                    streams[name] = saved
                launcher.settle(known)
            else:
                dims = [d.sym for d in kernel.type.dims]
                calls[name] = call_of(
                    patterns.arch, driver, device, c.command, c.params, c.results, dims, known, c.whole
                )
            if c.needs is not None:
                needs[name] = c.needs
        return DeviceCode("", functions=functions, calls=calls, streams=streams, needs=needs)

    def needs(self, job: DeviceJob) -> Mapping[str, Needs]:
        """Return the scratch memory of commands, as `emit` says it.

        Raises:
            CompileError: `accel.no-room`.
        """
        patterns = self._patterns_on(job.board, job.devices[0])
        if isinstance(self.cls.emit, Stream) and not patterns.arch.borrowed:
            return {}
        kernels = (job.kernels[r.name] for r in job.requests)
        found = {k.name: self._chosen(patterns, job, k).needs for k in kernels}
        return {name: needed for name, needed in found.items() if needed is not None}

    def _chosen(self, patterns: Patterns, job: DeviceJob, kernel: Kernel) -> _Chosen:
        """Return the command of a kernel in what is free where it is called, and what it needs of that.

        Raises:
            CompileError: `accel.no-room`.
        """
        arch, (command, params, results) = patterns.arch, _of_kernel(patterns, kernel)
        dims = tuple(d.sym for d in kernel.type.dims)
        if isinstance(command, TiledCommand):
            if not arch.borrowed:
                return _Chosen(command, params, results)
            command, params, results, room = self._leased(patterns, job, kernel, (command, params, results))
            return _Chosen(command, params, results, Needs(dims, room, note=command.note))
        free = partial(job.free, kernel.name, job.board.devices_by_name[job.devices[0]].memories[0])
        if arch.description.region is not None and not isinstance(self.driver, Mock):
            whole = self._whole(
                arch, command, params, results, kernel.name, free(), job.constants(kernel.name)
            )
            size, note = lit(whole.scratch), f"one program of {len(command.steps)} commands"
            needed = Needs(dims, Workspace(size) if whole.scratch else None, note=note)
            return _Chosen(command, params, results, needed, whole)
        command = chosen_for(arch, command, kernel.name, free)
        size = room_of(arch, command).bytes
        needed = None if size == 0 else Needs(dims, Workspace(size), note=choices_said(arch, command))
        return _Chosen(command, params, results, needed)

    def _whole(
        self,
        arch: Architecture,
        command: Command,
        params: Sequence[Var],
        results: Sequence[Expr],
        kernel: str,
        free: int | None,
        known: Sequence[Mapping[int, np.ndarray]],
    ) -> WholeCall:
        """Return the call of a region.

        Raises:
            CompileError: `accel.no-room` where what makes it fails, as it may if less is free than it wants;
                `accel.declaration` where nothing bounds that.
        """
        try:
            return whole_call(arch, command, tensors_of(params, results), known, free)
        except InlayError:
            raise
        except Exception as failure:
            fault = fault_of(failure)
            if free is None:
                raise error(
                    "accel.declaration", f"making the program of {kernel} failed: {fault}"
                ) from failure
            why = f"{free} bytes are free there, and {fault}"
            raise error("accel.no-room", f"found no room where {kernel} is called: {why}") from failure

    def _leased(
        self,
        patterns: Patterns,
        job: DeviceJob,
        kernel: Kernel,
        known: tuple[TiledCommand, Sequence[Var], Sequence[Expr]],
    ) -> tuple[TiledCommand, Sequence[Var], Sequence[Expr], Workspace]:
        """Return the stream of a kernel in what is free where it is called, with the scratch memory for that.

        Args:
            patterns: of the device, with all of its memories.
            job: says what is free.
            kernel: which.
            known: its stream in all of them, its parameters and results.

        Raises:
            CompileError: `accel.no-room`.
        """
        memory = memory_of(self.description, job.board, job.devices[0])
        free = job.free(kernel.name, memory)
        needed = _borrowed(patterns.arch, known[0])
        if free is not None and needed > free:
            less = self._patterns_in(patterns, job.arch, free)
            room = f"{free} bytes of '{memory}' are free there"
            command, params, results = _of_kernel(less, kernel, room)
            assert isinstance(command, TiledCommand), "it is a stream with more room"
            _check_outside(patterns.arch, known[0], command, kernel.name)
            known, needed = (command, params, results), _borrowed(patterns.arch, command)
        return *known, Workspace(lit(needed), memory=memory)


@dataclass(frozen=True, slots=True, eq=False)
class _Chosen:
    """The command of a kernel.

    Attributes:
        command: what is done.
        params, results: of the function that it is.
        needs: scratch memory, if any.
        whole: the call that a region is; None for commands that are written one by one.
    """

    command: Found
    params: Sequence[Var]
    results: Sequence[Expr]
    needs: Needs | None = None
    whole: WholeCall | None = None


def _most_outside(arch: Architecture, command: TiledCommand) -> int:
    """Return the bytes of the region of a stream; with less room fewer values stay, and are in it, too."""
    assert command.made is not None, "a command that is run has a stream"
    s = command.made.scheduled
    if not arch.borrowed:
        return s.bytes
    tensors = [(t.bytes, align_of(arch, t.laid.unit)) for p in s.parts for t in p.group.tensors.values()]
    return max(s.bytes, sum(size + align for size, align in tensors) if len(s.parts) > 1 else s.bytes)


def _check_outside(arch: Architecture, whole: TiledCommand, less: TiledCommand, kernel: str) -> None:
    """Refuse a stream for less room whose region is larger than what was counted.

    Raises:
        CompileError: `accel.no-room`.
    """
    assert less.made is not None, "a command that is run has a stream"
    counted, size = _most_outside(arch, whole), less.made.scheduled.bytes
    if size > counted:
        why = f"with less room for tiles its operands outside take {size} bytes, and {counted} are counted"
        raise error("accel.no-room", f"found no room where {kernel} is called: {why}")


def _borrowed(arch: Architecture, command: TiledCommand) -> int:
    """Return the bytes of scratch memory for memories that are a part of one of the board."""
    assert command.made is not None, "a command that is run has a stream"
    return bytes_of(places(taken(arch, command.made.scheduled.stream)))


def _of_kernel(
    patterns: Patterns, kernel: Kernel, room: str = ""
) -> tuple[Found, Sequence[Var], Sequence[Expr]]:
    """Return the command that the body of a kernel is, its parameters, and what it gives.

    Raises:
        CompileError: `accel.no-room` where there is none, and `room` says that some is missing.
    """
    function = getattr(kernel.body, "function", None)
    assert isinstance(function, Function), "a region keeps the operations that it was made of"
    return _found(patterns, function, kernel.name, room), function.params, results_of(function)


def _found(patterns: Patterns, function: Function, name: str, room: str) -> Found:
    lets, _ = spine(function.body)
    last = next(let.var for let in reversed(lets) if _is_operation(let.value))
    members = {id(let.value) for let in lets if _is_operation(let.value)}
    (block,) = blocks(function.body)
    why = ""
    for command in _all(patterns, block, last):
        if {id(c) for c in command.calls} == members:
            if not command.reasons:
                return command
            why = why or f": {'; '.join(command.reasons)}"
    if room:
        raise error("accel.no-room", f"found no room where {name} is called: {room}{why}")
    raise InternalError(f"no pattern of {patterns.arch.description.cls.__name__} is the region {name}")


def _all(patterns: Patterns, block: Block, last: Var) -> Iterator[Found]:
    """Yield what computes the last value of a region, then the larger streams of it."""
    yield from (c for c in patterns.at(last, block, outlined=True) if not isinstance(c, Mismatch))
    streams: dict[Var, TiledCommand] = {}
    single: dict[Var, Command] = {}
    for var in block.calls:
        for c in patterns.at(var, block, outlined=True):
            if not isinstance(c, Mismatch) and not c.reasons:
                keep_fastest(streams, var, c)
                keep_largest(single, var, c)
    yield from larger(patterns.tiler, block.calls, block.uses, streams)
    if patterns.arch.description.region is not None:
        yield from (c for c, _ in regions(block.calls, block.uses, single, lambda _: ()))


def _is_operation(value: Expr) -> bool:
    return isinstance(value, Call) and isinstance(value.callee, OpRef)


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
    module.__file__ = path
    try:
        exec(source.source_to_code(source.get_data(path), path), module.__dict__)
    except InlayError:
        raise
    except Exception as failure:
        raise error("accel.declaration", f"running {path} failed: {fault_of(failure)}") from failure
    return AcceleratorBackend(file.stem, class_of(module), file.parent)
