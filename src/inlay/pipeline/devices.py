"""Kernels for devices besides the host: which they are, and how the program has them.

Code is made by the back ends of the devices (`codegen/interface.py`). A device is *off the host* when
its memory is not the host's: then its tensors are in that memory, copies between memories are kernels
of their own, and a driver runs its image. A device in the memory of the host either has kernels that
are compiled as the host's are, or functions that the machine calls.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np

from inlay.analysis.blocks import values
from inlay.arith.expr import Int, Sym
from inlay.base.diagnostics import Collector, CompileError, InternalError, error
from inlay.base.graph import dependency_order
from inlay.bytecode import program as bc
from inlay.bytecode.constants import content_of
from inlay.bytecode.formula import Formula
from inlay.bytecode.of_integers import formula
from inlay.codegen.backend_table import backend_of, unavailable, works_in
from inlay.codegen.cache import ObjectCache
from inlay.codegen.interface import Backend, DeviceJob, DeviceKernel, Needs, Request
from inlay.ir.expr import Call, Const, GlobalVar
from inlay.ir.kernel import Access, Kernel
from inlay.ir.module import Module
from inlay.machine.board import Board
from inlay.machine.target import Target
from inlay.passes.contract import PassContext
from inlay.pipeline.build_kernels import LoopBody, device_requests
from inlay.pipeline.leases import Leases
from inlay.runtime.calls import DriverCall
from inlay.runtime.native import Callback
from inlay.runtime.streams import StreamCall
from inlay.vm.link import cost_of
from inlay.vm.signature import port_sizes

T = TypeVar("T")


def runnable(board: Board) -> Board:
    """Return a board as programs run on it: a device for which code is made works in one memory.

    The host is the first device, wherever it was written, so that plans do not depend on that.
    """
    others = (replace(d, memories=works_in(board, d)) for d in board.others)
    return replace(board, devices=(board.host, *others))


def apart(board: Board) -> dict[str, Backend]:
    """Return the back ends of devices whose kernels are not made as the host's are, by device.

    Args:
        board: as programs run on it (`runnable`).
    """
    found: dict[str, Backend] = {}
    for d in board.others:
        backend = backend_of(board, d.name)
        if backend is None or unavailable(board, d.name) or backend.in_program(board, d.name):
            continue
        found[d.name] = backend
    return found


def off_host(board: Board) -> dict[str, str]:
    """Return the memory of each device that is off the host, by name of the device.

    Args:
        board: as programs run on it (`runnable`).
    """
    memories = {name: board.devices_by_name[name].memories[0] for name in apart(board)}
    return {name: m for name, m in memories.items() if m not in board.host.memories}


@dataclass(frozen=True, slots=True)
class DevicePart:
    """What a program has because of devices.

    Attributes:
        kernels: by name, without their scratch memory.
        needs: what they need of that.
        devices: to be opened when the program is loaded.
        queues: what the board calls the queues of each: the device itself computes, the engine of its
            link to the host copies.
        functions: of this process, that are kernels, by name.
        calls: of drivers in the process that runs the program, that are kernels, by name.
        streams: what an executable keeps of some of the functions, by name.
    """

    kernels: Mapping[str, bc.Kernel]
    needs: Mapping[str, Needs]
    devices: tuple[bc.DeviceRecord, ...]
    queues: Mapping[str, tuple[str, ...]]
    functions: Mapping[str, Callback]
    calls: Mapping[str, DriverCall]
    streams: Mapping[str, StreamCall]


def device_part(
    board: Board, module: Module, targets: Callable[[str], Target], cache: ObjectCache | None, leases: Leases
) -> DevicePart:
    """Make the code of devices.

    Args:
        board: the machine.
        module: has the kernels.
        targets: gives what code of a device is made for, by its name.
        cache: of compiled objects.
        leases: says what memory is free at calls.

    Raises:
        CompileError: `accel.lower-order`.
        RunError: `run.device-absent` where nobody says what a processor elsewhere is.
        UnsupportedError: all `target.no-generator` at once; `target.other-device`.
    """
    names = [m.name for m in board.memories]
    requests, kernels = device_requests(module), module.kernels
    made = {r.name: _copy(kernels[r.name]) for r in requests if r.is_copy}
    devices: list[bc.DeviceRecord] = []
    needs: dict[str, Needs] = {}
    functions: dict[str, Callback] = {}
    calls: dict[str, DriverCall] = {}
    findings = Collector()
    memory_of, backends = off_host(board), apart(board)
    streams: dict[str, StreamCall] = {}
    constants = partial(_constants_of, module)
    for units in lowering_order(board, _opened(board, backends)):
        wanted = [r for r in requests if r.device in units]
        if not wanted:
            continue  # nothing is there: the program loads on machines without it
        mine = tuple(Request(r.name, r.lower, in_place=r.in_place) for r in wanted if not r.is_copy)
        job = DeviceJob(board, units, targets(units[0]), mine, kernels, cache, leases.free, constants)
        try:
            code = _settled(leases, partial(backends[units[0]].emit, job), lambda made: made.needs)
        except CompileError as failure:
            findings.absorb(failure)
            continue
        for r in wanted:
            if r.name in code.kernels:
                memory = names.index(memory_of[r.device])
                found = code.kernels[r.name]
                made[r.name] = _kernel(kernels[r.name], found, memory)
                needs[r.name] = Needs(found.dims, found.workspace)
            elif r.name in code.functions or r.name in code.calls:
                made[r.name] = _function(kernels[r.name])
        functions.update(code.functions)
        streams.update(code.streams)
        calls.update(code.calls)
        needs.update(code.needs)
        if code.driver:
            positions = tuple(names.index(memory_of[d]) for d in units)
            hardware = _hardware(board, units, memory_of)
            options, image = code.options, code.image
            devices.append(bc.DeviceRecord(units[0], code.driver, options, positions, image, hardware))
    findings.raise_if_fatal()
    queues = {d.name: _queues(board, d, names) for d in devices}
    return DevicePart(made, needs, tuple(devices), queues, functions, calls, streams)


def regions_of(board: Board, module: Module) -> dict[str, tuple[int, str]]:
    """Return the bytes that kernels of devices have as long as the program is loaded, and in which memory.

    Args:
        board: as programs run on it (`runnable`).
        module: has the kernels.
    """
    backends, found = apart(board), dict[str, tuple[int, str]]()
    for r in device_requests(module):
        if r.is_copy or r.device not in backends:
            continue
        backend, arch = backends[r.device], board.arch_of(r.device)
        size = 0 if type(backend).region is Backend.region else backend.region(arch, module.kernels[r.name])
        if size:
            calls = _constants_of(module, r.name)
            sets = {tuple((i, content_of(a)) for i, a in known.items()) for known in calls}
            found[r.name] = size * len(sets), board.devices_by_name[r.device].memories[0]
    return found


def needs_of_devices(
    board: Board,
    targets: Callable[[str], Target],
    module: Module,
    known: Mapping[str, Needs],
    context: PassContext,
) -> dict[str, Needs]:
    """Return what commands of devices need, as `device_part` would say it, without making code.

    Args:
        board: the machine.
        targets: gives what code of a device is made for, by its name.
        module: has the kernels.
        known: what kernels of the host need.
        context: of the passes that plan memory.

    Raises:
        CompileError: `accel.lower-order`; all that back ends say at once.
    """
    backends, requests, leases = (
        apart(board),
        device_requests(module),
        Leases(module, known, context, partial(regions_of, board)),
    )
    made: dict[str, Needs] = {}
    findings = Collector()
    for units in lowering_order(board, _opened(board, backends)):
        mine = tuple(
            Request(r.name, r.lower, in_place=r.in_place)
            for r in requests
            if r.device in units and not r.is_copy
        )
        backend = backends[units[0]]
        if not mine or type(backend).needs is Backend.needs:
            continue
        constants = partial(_constants_of, module)
        job = DeviceJob(board, units, targets(units[0]), mine, module.kernels, None, leases.free, constants)
        try:
            made |= _settled(leases, partial(backend.needs, job), lambda needs: needs)
        except CompileError as failure:
            findings.absorb(failure)
    findings.raise_if_fatal()
    return made


def _constants_of(module: Module, kernel: str) -> list[dict[int, np.ndarray]]:
    """Return for each call of a kernel its operands that are constants, by position."""
    return [
        {i: a.value for i, a in enumerate(v.args) if isinstance(a, Const) and isinstance(a.value, np.ndarray)}
        for f in module.functions.values()
        for v in values(f.body)
        if isinstance(v, Call) and isinstance(v.callee, GlobalVar) and v.callee.name == kernel
    ]


def _queues(board: Board, device: bc.DeviceRecord, names: Sequence[str]) -> tuple[str, ...]:
    """Return what the board calls the queues of a device."""
    memories = [names[m] for m in device.memories]
    return tuple(queue for m in memories for queue in (board.owner_of(m), *_engines(board, m)))


def _settled(leases: Leases, make: Callable[[], T], needs: Callable[[T], Mapping[str, Needs]]) -> T:
    """Return what is made for a device so that its scratch memory fits into what it was told is free."""
    made: list[T] = []

    def once() -> Mapping[str, Needs]:
        made.append(make())
        return needs(made[-1])

    leases.settle(once)
    return made[-1]


def lowering_order(board: Board, opened: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Return devices in the order in which their memory becomes known.

    Raises:
        CompileError: `accel.lower-order`.
    """
    names = [Path(board.arch_of(units[0]).loader).stem for units in opened]
    before: list[list[int]] = []
    for units in opened:
        backend = backend_of(board, units[0])
        wanted = () if backend is None else backend.lower_after(board.arch_of(units[0]))
        before.append([i for i, name in enumerate(names) if name in wanted])
    order = dependency_order(before, range(len(opened)))
    if order is None:
        said = "; ".join(f"{n} after {names[i]}" for n, x in zip(names, before, strict=True) for i in x)
        raise error("accel.lower-order", f"found devices that are lowered after each other: {said}")
    return [opened[i] for i in order]


def device_of_kernel(kernel: Kernel) -> str:
    """Return the device that runs a kernel; nothing where nobody says."""
    place = kernel.body.function.place if isinstance(kernel.body, LoopBody) else None
    return "" if place is None else place.device


def copies_of(module: Module) -> dict[str, bc.Kernel]:
    """Return the kernels that only copy, as the program has them: they have no code."""
    return {r.name: _copy(module.kernels[r.name]) for r in device_requests(module) if r.is_copy}


def _hardware(board: Board, units: Sequence[str], memory_of: Mapping[str, str]) -> tuple[int, ...]:
    """Return for each unit the number of the hardware that it shares with another one off the host.

    The host's own kernels pass no gate, so what it shares with a device is the planner's affair alone.
    """
    pieces = Counter(d.hardware for d in board.devices if d.name in memory_of)
    shared = [piece for piece, count in pieces.items() if count > 1]
    mine = (board.devices_by_name[name].hardware for name in units)
    found = tuple(1 + shared.index(piece) if piece in shared else 0 for piece in mine)
    return found if any(found) else ()


def _opened(board: Board, backends: Mapping[str, Backend]) -> list[tuple[str, ...]]:
    """Return devices that a driver opens as one: units of an architecture that is divided into some."""
    opened: dict[str, tuple[str, ...]] = {}
    for name in backends:
        arch, backend = board.arch_of(name), backends[name]
        key = f"units of {arch.name}" if backend.opens_together(arch) else name
        opened[key] = (*opened.get(key, ()), name)
    return list(opened.values())


def _engines(board: Board, memory: str) -> tuple[str, ...]:
    return tuple(link.engine for link in board.routes(board.host.memories, (memory,)))[:1]


def _ports(kernel: Kernel) -> tuple[bc.AccessCode, ...]:
    return tuple(bc.AccessCode.READ if p.access is Access.READ else bc.AccessCode.WRITE for p in kernel.ports)


def _copy(kernel: Kernel) -> bc.Kernel:
    ports = (bc.AccessCode.READ, bc.AccessCode.WRITE)
    return bc.Kernel(kernel.name, ports, 0, bc.CopyBody())


def _function(kernel: Kernel) -> bc.Kernel:
    body = bc.HostBody(kernel.name)
    return bc.Kernel(kernel.name, _ports(kernel), len(kernel.ints), body)


def _kernel(kernel: Kernel, code: DeviceKernel, memory: int) -> bc.Kernel:
    positions: dict[Sym, int] = {sym: i for i, sym in enumerate(code.dims)}
    phases = tuple(bc.DevicePhase(_known(e, positions)) for e in code.items)
    return bc.Kernel(
        kernel.name,
        _ports(kernel),
        len(kernel.ints),
        bc.DeviceBody(memory, kernel.name, phases),
        cost=cost_of(kernel),
        assertions=code.assertions,
        sizes=port_sizes(kernel),
    )


def _known(e: Int, positions: Mapping[Sym, int]) -> Formula:
    found = formula(e, dict(positions))
    if found is None:
        raise InternalError(f"{e} is no formula over the integers of a kernel", where="devices")
    return found
