"""Kernels for devices besides the host: which they are, their code, and how the program has them.

A device is *away* when its memory is not the host's: then its tensors are in that memory, copies
between memories are kernels of their own, and its loader is the driver that runs its image. Devices
that work in the memory of the host are compiled like the host.

There are two ways to make code for them: OpenCL C, and native code in an image apart from the
program's, for a processor as a device of its own. That processor is this one (driver `native`), or
one behind a server (driver `remote`), which says what it offers: code is made here for that, and the
server compares again when the image is loaded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from inlay.arith.expr import Int, Sym, ceildiv
from inlay.base.diagnostics import Collector, InternalError, error, unsupported
from inlay.bytecode import program as bc
from inlay.bytecode.formula import Formula
from inlay.codegen.interface import Request
from inlay.codegen.llvm_generator import LlvmGenerator
from inlay.codegen.native_image import make_native_image
from inlay.codegen.opencl import OPENCL as TARGET
from inlay.codegen.opencl import DeviceImage, make_image, unsupported_reason
from inlay.ir.kernel import Access, Kernel
from inlay.loop.func import LoopFunction
from inlay.machine.board import NATIVE, Board
from inlay.machine.device import Arch, Device
from inlay.machine.target import Target, host, offered
from inlay.pipeline.build_kernels import DeviceRequest
from inlay.runtime import device as drivers
from inlay.schedule.choose import FEW_ITEM_RULES, ITEM_RULES, RULES, Rule
from inlay.vm.signature import formula, port_sizes

OPENCL = "opencl"
"""The generator of OpenCL C, and the driver that loads its images."""
LLVM = "llvm"
"""The generator of native code."""
REMOTE = "remote"
"""The driver of devices behind a server."""
PACED = "paced"
"""The parameter of a native architecture that makes copies as slow as the links of the board say."""
UNITS = "units"
"""The parameter of an OpenCL architecture whose devices are parts of one device, in board order."""
SCHEDULE = "schedule"
"""The parameter of an OpenCL architecture that says which rules schedule its kernels."""
PARTS = 8
"""Parts that a phase of native code is divided into, however many threads share them."""


def runnable(board: Board) -> Board:
    """Return a board as programs run on it: a device for which code is made works in one memory.

    That is the first one that it shares with the host, each seeing what the other writes, or that is
    its own. Drivers have memories of their own, so only this processor shares the host's.
    """

    def works_in(device: Device) -> tuple[str, ...]:
        shared = board.shared_memories(board.host.name, device.name)
        near = shared if board.is_native(device.name) else ()
        own = board.writable(device.name)
        fit = [m for m in own if m in near or m not in board.host.memories]
        return tuple(fit[:1]) or own[:1]

    devices = tuple(
        d if d is board.host or board.arch_of(d.name).generator not in (LLVM, OPENCL)
        else replace(d, memories=works_in(d))
        for d in board.devices
    )  # fmt: skip
    return replace(board, devices=devices)


def away(board: Board) -> dict[str, str]:
    """Return the memory of each device that is away from the host, by name of the device.

    Args:
        board: as programs run on it (`runnable`).
    """
    return {
        d.name: d.memories[0]
        for d in board.devices[1:]
        if not unmade(board, d.name) and d.memories[0] not in board.host.memories
    }


def unmade(board: Board, device: str) -> str:
    """Return why no code is made for a device of a board as programs run on it, or nothing."""
    arch, memory = board.arch_of(device), board.devices_by_name[device].memories[0]
    if arch.generator not in (LLVM, OPENCL):
        return f"no code generator here makes code for {arch.name}"
    if board.is_native(device):
        return ""
    loaders = (REMOTE,) if arch.generator == LLVM else (OPENCL, REMOTE)
    if arch.loader not in loaders:
        known = " or ".join((*loaders, *((NATIVE,) if arch.generator == LLVM else ())))
        return f"{arch.name} has the loader '{arch.loader}', needed {known}"
    if arch.loader == REMOTE and not arch.parameter("endpoint"):
        return f"{arch.name} has no parameter 'endpoint'"
    if memory in board.host.memories:
        return f"its driver cannot work in '{memory}', which is the host's: it needs one of its own"
    return ""


def target_of(board: Board, device: str) -> Target:
    """Return what code of a device is for; a processor elsewhere is asked what it is.

    Raises:
        RunError: `run.device-absent` where nothing answers.
        UnsupportedError: `target.other-device`.
    """
    arch = board.arch_of(device)
    if arch.generator == OPENCL:
        return opencl_target(arch)
    if arch.loader != REMOTE:
        return host().with_facts(arch.facts)
    with drivers.Device(REMOTE, options_of_arch(arch)) as opened:
        facts = opened.facts
    where = f"found '{facts.name}' where board '{board.name}' has '{device}'"
    if not facts.offers or facts.offers.startswith(f"{OPENCL},"):
        raise unsupported(
            "target.other-device", f"{where}, needed a processor",
            hint="serve it (inlay serve --device host), or use a board for that device",
        )  # fmt: skip
    target = offered(facts.offers)
    if target.arch != host().arch:
        raise unsupported(
            "target.other-device", f"{where}, needed a processor of architecture {host().arch}",
            hint="compile on a machine with such a processor",
        )  # fmt: skip
    return target.with_facts(arch.facts)


def rules_for(board: Board, device: str) -> tuple[Rule, ...]:
    """Return the rules that schedule kernels of a device."""
    return rules_of(board.arch_of(device))


def rules_of(arch: Arch) -> tuple[Rule, ...]:
    """Return the rules that schedule kernels of an architecture."""
    if arch.generator != OPENCL:
        return RULES
    few = "few" if arch.parameter("type", "cpu") == "cpu" else "items"
    rules = {"few": FEW_ITEM_RULES, "items": ITEM_RULES}
    chosen = arch.parameter(SCHEDULE, few)
    if chosen not in rules:
        raise error(
            "board.invalid",
            f"found {SCHEDULE} = '{chosen}' in the parameters of '{arch.name}', needed "
            f"{' or '.join(rules)}",
        )
    return rules[chosen]


@dataclass(frozen=True, slots=True)
class DevicePart:
    """What a program has because of devices.

    Attributes:
        kernels: by name.
        devices: to be opened when the program is loaded.
        queues: what the board calls the queues of each: the device itself computes, the engine of its
            link to the host copies.
    """

    kernels: Mapping[str, bc.Kernel]
    devices: tuple[bc.Device, ...]
    queues: Mapping[str, tuple[str, ...]]


def device_part(
    board: Board,
    requests: Sequence[DeviceRequest],
    kernels: Mapping[str, Kernel],
    native: Callable[[str], LlvmGenerator],
) -> DevicePart:
    """Make the code of devices.

    Args:
        board: the machine.
        requests: what devices run.
        kernels: of the module.
        native: gives what makes native code for a device, by its name.

    Raises:
        RunError: `run.device-absent` where nobody says what a processor elsewhere is.
        UnsupportedError: all `target.no-generator` at once; `target.other-device`.
    """
    names = [m.name for m in board.memories]
    made = {r.name: _copy(kernels[r.name]) for r in requests if r.is_copy}
    devices: list[bc.Device] = []
    findings = Collector()
    memory_of = away(board)
    for units in _opened(board, memory_of):
        device = units[0]
        mine = [r for r in requests if not r.is_copy and r.device in units]
        if not any(r.device in units for r in requests):
            continue  # nothing is there: the program loads on machines without it
        positions = tuple(names.index(memory_of[d]) for d in units)
        hardware = _hardware(board, units, memory_of)
        position = positions[0]
        if board.arch_of(device).generator != OPENCL:
            data, needs = _native_part(native(device), mine, kernels, position, made)
            arch = board.arch_of(device)
            if arch.loader == REMOTE:
                driver, options = REMOTE, options_of_arch(arch)
            else:  # that this processor has it is checked with the program's own image
                driver, options = NATIVE, " ".join((f"offers={needs}", *_native_options(board, device)))
            devices.append(bc.Device(device, driver, options, (position,), data, hardware))
            continue
        image = _image(board.arch_of(device), mine, device, findings)
        for r in mine:
            if r.name in image.kernels:
                position = names.index(memory_of[r.device])
                made[r.name] = _kernel(kernels[r.name], image, position)
        arch = board.arch_of(device)
        text = image.text.encode()
        devices.append(bc.Device(device, arch.loader, options_of_arch(arch), positions, text, hardware))
    findings.raise_if_fatal()
    queues = {
        d.name: tuple(
            queue
            for m in d.memories
            for queue in (board.owner_of(names[m]), *_engines(board, names[m]))
        )
        for d in devices
    }
    return DevicePart(made, tuple(devices), queues)


def _hardware(
    board: Board, units: Sequence[str], memory_of: Mapping[str, str]
) -> tuple[int, ...]:
    """Return for each unit the number of the hardware that it shares with another device that is away.

    The host's own kernels pass no gate, so what it shares with a device is the planner's affair alone.
    """
    pieces = Counter(d.hardware for d in board.devices if d.name in memory_of)
    shared = [piece for piece, count in pieces.items() if count > 1]
    mine = (board.devices_by_name[name].hardware for name in units)
    found = tuple(1 + shared.index(piece) if piece in shared else 0 for piece in mine)
    return found if any(found) else ()


def _opened(board: Board, names: Iterable[str]) -> list[tuple[str, ...]]:
    """Return devices that a driver opens as one: units of an architecture that is divided into some."""
    opened: dict[str, tuple[str, ...]] = {}
    for name in names:
        arch = board.arch_of(name)
        key = f"units of {arch.name}" if arch.parameter(UNITS) else name
        opened[key] = (*opened.get(key, ()), name)
    return list(opened.values())


def _engines(board: Board, memory: str) -> tuple[str, ...]:
    return tuple(link.engine for link in board.routes(board.host.memories, (memory,)))[:1]


def _native_options(board: Board, device: str) -> list[str]:
    """Return what the driver is told: parameters of the architecture, and how slow the links are."""
    arch = board.arch_of(device)
    words = [f"{k}={v}" for k, v in arch.parameters if k != PACED]
    if arch.parameter(PACED) == "yes":
        own, host = board.devices_by_name[device].memories, board.host.memories
        links = [x for x in board.links if {x.source, x.target} & set(own)
                 and {x.source, x.target} & set(host)]  # fmt: skip
        words.append(f"latency={round(max(x.latency_ns for x in links))}")
        words.append(f"rate={max(1, round(min(x.bytes_per_ns for x in links) * 1000))}")
    return words


def options_of_arch(arch: Arch) -> str:
    """Return what the driver of an architecture is told."""
    return " ".join(f"{key}={value}" for key, value in arch.parameters if key != SCHEDULE)


def opencl_target(arch: Arch) -> Target:
    """Return the target of code in OpenCL C."""
    doubles = arch.dtypes is None or "f64" in arch.dtypes
    return replace(TARGET, doubles=doubles).with_facts(arch.facts)


def _image(
    arch: Arch,
    requests: Sequence[DeviceRequest],
    device: str,
    findings: Collector,
) -> DeviceImage:
    target = opencl_target(arch)
    functions: list[LoopFunction] = []
    for r in requests:
        f = r.lower()
        reason = unsupported_reason(f, target)
        if not reason:
            functions.append(f)
        else:
            findings.unsupported(
                "target.no-generator", f"found '{r.name}' on '{device}': {reason}",
                hint="put it on the host",
            )  # fmt: skip
    return make_image(functions, target, {r.name: r.in_place for r in requests})


def _native_part(
    generator: LlvmGenerator,
    requests: Sequence[DeviceRequest],
    kernels: Mapping[str, Kernel],
    memory: int,
    made: dict[str, bc.Kernel],
) -> tuple[bytes, str]:
    """Compile kernels for a processor as a device; return the image, and what it needs."""
    artifact = generator.compile([Request(r.name, r.lower) for r in requests])
    buffers: dict[str, int] = {}
    for r in requests:
        kernel, code = kernels[r.name], artifact.kernels[r.name]
        positions = {sym: i for i, sym in enumerate(code.dims)}
        size = code.workspace
        if code.workspace_per_part:
            size = ceildiv(size, 64) * (64 * PARTS)
        workspace = None if size.value == 0 else formula(size, positions)
        buffers[r.name] = len(kernel.ports) + (workspace is not None)
        phases = tuple(bc.DevicePhase((PARTS if p.parallel else 1,)) for p in code.phases)
        made[r.name] = bc.Kernel(
            r.name, _ports(kernel), len(kernel.ints), bc.DeviceBody(memory, r.name, phases),
            workspace, assertions=code.assertions, sizes=port_sizes(kernel),
        )  # fmt: skip
    if not artifact.image.data:  # values are there, and no kernel
        artifact = replace(artifact, image=replace(artifact.image, data=bytes(64)))
    needs = ",".join((artifact.image.arch, *artifact.image.features))
    return make_native_image(artifact, buffers), needs


def _ports(kernel: Kernel) -> tuple[bc.Access, ...]:
    return tuple(
        bc.Access.READ if p.access is Access.READ else bc.Access.WRITE for p in kernel.ports
    )


def _copy(kernel: Kernel) -> bc.Kernel:
    ports = (bc.Access.READ, bc.Access.WRITE)
    return bc.Kernel(kernel.name, ports, 0, bc.CopyBody())


def _kernel(kernel: Kernel, image: DeviceImage, memory: int) -> bc.Kernel:
    code = image.kernels[kernel.name]
    positions: dict[Sym, int] = {sym: i for i, sym in enumerate(code.dims)}
    phases = tuple(bc.DevicePhase(_known(e, positions)) for e in code.items)
    workspace = None if code.workspace.value == 0 else formula(code.workspace, positions)
    return bc.Kernel(
        kernel.name, _ports(kernel), len(kernel.ints), bc.DeviceBody(memory, kernel.name, phases),
        workspace, assertions=code.assertions, sizes=port_sizes(kernel),
    )  # fmt: skip


def _known(e: Int, positions: Mapping[Sym, int]) -> Formula:
    found = formula(e, dict(positions))
    if found is None:
        raise InternalError(f"{e} is no formula over the integers of a kernel", where="devices")
    return found
