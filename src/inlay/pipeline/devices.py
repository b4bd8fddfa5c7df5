"""Kernels for devices besides the host: which they are, their code, and how the program has them.

A device is *away* when its memory is not the host's: then its tensors are in that memory, copies
between memories are kernels of their own, and its loader is the driver that runs its image. Devices
that work in the memory of the host are compiled like the host.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from inlay.arith.expr import Sym
from inlay.base.diagnostics import Collector
from inlay.bytecode import program as bc
from inlay.codegen.opencl import DeviceFacts, DeviceImage, make_image, unsupported_reason
from inlay.ir.kernel import Access, Kernel
from inlay.loop.func import LoopFunction
from inlay.machine.board import Board
from inlay.machine.device import Device
from inlay.pipeline.build_kernels import DeviceRequest
from inlay.schedule.choose import FEW_ITEM_RULES, ITEM_RULES, Rule
from inlay.vm.signature import formula

OPENCL = "opencl"
"""The generator of OpenCL C, and the loader of its images."""


def away(board: Board) -> dict[str, str]:
    """Return the memory of each device that is away from the host, by name of the device."""
    return {
        d.name: d.memories[0]
        for d in board.devices[1:]
        if board.arch_of(d.name).generator == OPENCL and d.memories[0] not in board.host.memories
    }


def rules_for(board: Board, device: str) -> tuple[Rule, ...]:
    """Return the rules that schedule kernels of a device."""
    kind = dict(board.arch_of(device).parameters).get("type", "cpu")
    return FEW_ITEM_RULES if kind == "cpu" else ITEM_RULES


@dataclass(frozen=True, slots=True)
class DevicePart:
    """What a program has because of devices.

    Attributes:
        kernels: by name.
        devices: to be opened when the program is loaded.
    """

    kernels: Mapping[str, bc.Kernel]
    devices: tuple[bc.Device, ...]


def device_part(
    board: Board, requests: Sequence[DeviceRequest], kernels: Mapping[str, Kernel]
) -> DevicePart:
    """Make the code of devices.

    Raises:
        UnsupportedError: all `target.no-generator` at once.
    """
    names = [m.name for m in board.memories]
    made = {r.name: _copy(kernels[r.name]) for r in requests if r.is_copy}
    devices: list[bc.Device] = []
    findings = Collector()
    for device, memory in away(board).items():
        mine = [r for r in requests if not r.is_copy and r.device == device]
        position = names.index(memory)
        image = _image(board.arch_of(device).dtypes, mine, device, findings)
        for r in mine:
            if r.name in image.kernels:
                made[r.name] = _kernel(kernels[r.name], image, position)
        devices.append(_device(board, device, position, image))
    findings.raise_if_fatal()
    return DevicePart(made, tuple(devices))


def _device(board: Board, name: str, memory: int, image: DeviceImage) -> bc.Device:
    device = board.device(name)
    assert isinstance(device, Device), "it is of the board"
    arch = board.arch_of(name)
    options = " ".join(f"{key}={value}" for key, value in arch.parameters)
    return bc.Device(name, arch.loader, options, (memory,), image.text.encode())


def _image(
    dtypes: tuple[str, ...] | None,
    requests: Sequence[DeviceRequest],
    device: str,
    findings: Collector,
) -> DeviceImage:
    facts = DeviceFacts(has_f64=dtypes is None or "f64" in dtypes, private_bytes=32 << 10)
    functions: list[LoopFunction] = []
    for r in requests:
        f = r.lower()
        reason = unsupported_reason(f, facts)
        if reason is None:
            functions.append(f)
        else:
            findings.unsupported(
                "target.no-generator", f"found '{r.name}' on '{device}': {reason}",
                hint="put it on the host",
            )  # fmt: skip
    return make_image(functions, {r.name: r.in_place for r in requests})


def _copy(kernel: Kernel) -> bc.Kernel:
    ports = (bc.Access.READ, bc.Access.WRITE)
    return bc.Kernel(kernel.name, ports, 0, bc.CopyBody())


def _kernel(kernel: Kernel, image: DeviceImage, memory: int) -> bc.Kernel:
    code = image.kernels[kernel.name]
    positions: dict[Sym, int] = {sym: i for i, sym in enumerate(code.dims)}
    phases = tuple(bc.DevicePhase(formula(e, positions)) for e in code.items)
    ports = tuple(
        bc.Access.READ if p.access is Access.READ else bc.Access.WRITE for p in kernel.ports
    )
    workspace = None if code.workspace.value == 0 else formula(code.workspace, positions)
    return bc.Kernel(
        kernel.name, ports, len(kernel.ints), bc.DeviceBody(memory, kernel.name, phases),
        workspace, assertions=code.assertions,
    )  # fmt: skip
