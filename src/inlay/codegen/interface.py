"""What a back end is: it makes code for the devices of an architecture, and says how it gets there.

A back end is a file: those here are in `codegen/backends/`, an installed package adds its own by an
entry point of the group `inlay.backends` that names the module. Either has a `BACKEND`, and the
`loader` of an architecture on a board is the name of its back end. All that the rest of the compiler
knows of devices it asks here: nothing else compares these names.

Native code is made by a *generator*: lowered loop functions in, one image and a kernel table out.

    artifact = generator.compile([Request("k0", lambda: function, key), ...])
    artifact.image.data          # position-independent bytes for the program
    artifact.kernels["k0"]       # its phases, workspace and assertions

A request gives its function as a callable, because with a *key* of what the function is made from
(structural hash of the primitive function, names and versions of rules) a cached kernel is found
without lowering anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from inlay.analysis.candidates import Candidate, Miss
from inlay.arith.dtype import DType
from inlay.arith.expr import Int, Sym
from inlay.codegen.cache import ObjectCache
from inlay.codegen.image import Image
from inlay.codegen.program_hooks import ProgramHook
from inlay.codegen.shapes import ShapeFunction
from inlay.ir.expr import Call, Function
from inlay.ir.kernel import Access, Accesses, Kernel, Workspace
from inlay.ir.module import Module
from inlay.loop.func import LoopFunction
from inlay.lower.lower import Hook
from inlay.machine.board import Board
from inlay.machine.device import Arch, Device
from inlay.machine.target import Target
from inlay.runtime.calls import DriverCall
from inlay.runtime.device import Facts
from inlay.runtime.native import Callback
from inlay.runtime.streams import StreamCall
from inlay.schedule.choose import Rule
from inlay.schedule.rules.attention import attention
from inlay.schedule.rules.contraction import contraction


@dataclass(frozen=True, slots=True)
class Request:
    """A kernel to compile.

    Attributes:
        name: of the kernel, unique among the requests.
        lower: makes the lowered function; called only if the kernel is not cached by `key`.
        key: text that determines what `lower` returns, or empty.
        in_place: positions of parameters that may share bytes with another parameter.
    """

    name: str
    lower: Callable[[], LoopFunction]
    key: str = ""
    in_place: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class PhaseCode:
    """A phase in an image.

    Attributes:
        offset: of its first instruction, in bytes.
        parallel: whether every part calls it (else one caller, as part 0 of 1).
    """

    offset: int
    parallel: bool


@dataclass(frozen=True, slots=True)
class KernelCode:
    """A kernel in an image.

    Attributes:
        name: as requested.
        phases: in order; all parts of one end before the next begins.
        dims: symbols that stand for the integer arguments, in order.
        workspace: scratch over `dims`, if any; its address follows the parameters'. A caller with p parts
            gives p times as many bytes where each part has its own.
        assertions: messages; a phase returns the number of the one that failed, from 1, else 0.
        stack: bytes of temporaries on the stack of one caller.
        cached: whether it came from the cache.
        accesses: when it touches its tensors; None where nobody says.
    """

    name: str
    phases: tuple[PhaseCode, ...]
    dims: tuple[Sym, ...]
    workspace: Workspace | None
    assertions: tuple[str, ...]
    stack: int
    cached: bool = False
    accesses: Accesses | None = None


@dataclass(frozen=True, slots=True)
class Needs:
    """What code of a kernel needs beside its operands.

    Attributes:
        dims: symbols of `workspace`, that stand for its integer arguments.
        workspace: scratch over `dims`, if any.
        stack: bytes of temporaries on the stack of one caller; None where nobody says.
        accesses: when it touches its tensors; None where nobody says.
        note: what explanations say of the code.
    """

    dims: tuple[Sym, ...]
    workspace: Workspace | None
    stack: int | None = None
    accesses: Accesses | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Artifact:
    """What compiling gives."""

    image: Image
    kernels: dict[str, KernelCode]


class Generator(Protocol):
    """Makes native code for one target."""

    def compile(self, requests: Sequence[Request]) -> Artifact:
        """Return the code of kernels in one image, in the order of the requests."""
        ...

    def known(self, requests: Sequence[Request]) -> dict[str, Needs]:
        """Return what kernels need whose code is in the cache, by name; makes none."""
        ...

    def add_shapes(self, image: Image, functions: Sequence[ShapeFunction]) -> tuple[bytes, list[int]]:
        """Return an image with code of shape arithmetic behind it, and where each function is."""
        ...


@dataclass(frozen=True, slots=True)
class DeviceKernel:
    """A kernel in the image of a device.

    Attributes:
        name: as the driver finds it.
        items: work items of each phase, over `dims`.
        dims: symbols that stand for the integer arguments, in order.
        workspace: the block behind the other buffers, over `dims`, for all parts at once; if any.
        assertions: messages; a launch answers the number of one that fails, from 1.
    """

    name: str
    items: tuple[Int, ...]
    dims: tuple[Sym, ...]
    workspace: Workspace | None
    assertions: tuple[str, ...]


def _unknown(_kernel: str) -> Sequence[Mapping[int, np.ndarray]]:
    return ()


def _unbounded(kernel: str, memory: str) -> int | None:
    del kernel, memory


@dataclass(frozen=True, slots=True)
class DeviceJob:
    """What code is to be made of for a device.

    Attributes:
        board: as programs run on it.
        devices: the name of the device; those of all its units where a driver opens several as one.
        target: what the requests are lowered for.
        requests: its kernels; those that only copy are no code.
        kernels: of the module, by name: their ports, and the operations that they were made of.
        cache: of compiled objects.
        free: bytes of a memory of the board that are free at all calls of a kernel, by their names; None
            where nothing bounds them. What `needs` of the code takes of it is planned so.
        constants: for each call of a kernel, by its name, the operands that are constants, by position.
    """

    board: Board
    devices: tuple[str, ...]
    target: Target
    requests: tuple[Request, ...]
    kernels: Mapping[str, Kernel]
    cache: ObjectCache | None = None
    free: Callable[[str, str], int | None] = _unbounded
    constants: Callable[[str], Sequence[Mapping[int, np.ndarray]]] = _unknown

    @property
    def arch(self) -> Arch:
        """The architecture of the devices."""
        return self.board.arch_of(self.devices[0])


@dataclass(frozen=True, slots=True)
class DeviceCode:
    """Code of a device, and how it is loaded.

    Attributes:
        driver: its name; empty where the machine calls `functions` or `calls` instead.
        options: for the driver, when it opens the device.
        image: what the driver loads.
        kernels: those in the image, by name.
        functions: kernels that are functions of this process, by name: of arrays, the operands before
            the results, and integers.
        calls: kernels that are calls of a driver in this process, by name; an executable keeps them.
        streams: what an executable keeps of some of the functions, by name.
        needs: scratch memory of functions and calls: one more tensor behind the results.
    """

    driver: str
    options: str = ""
    image: bytes = b""
    kernels: Mapping[str, DeviceKernel] = field(default_factory=dict[str, DeviceKernel])
    functions: Mapping[str, Callback] = field(default_factory=dict[str, Callback])
    calls: Mapping[str, DriverCall] = field(default_factory=dict[str, DriverCall])
    needs: Mapping[str, Needs] = field(default_factory=dict[str, Needs])
    streams: Mapping[str, StreamCall] = field(default_factory=dict[str, StreamCall])


@dataclass(frozen=True, slots=True)
class Detection:
    """A device of a board that is here.

    Attributes:
        devices: its names on the board; several where it is divided.
        name: what it calls itself.
        words: what else it says, as keys and values.
        facts: as its driver gives them.
    """

    devices: tuple[str, ...]
    name: str
    words: Mapping[str, str]
    facts: Facts

    @property
    def is_processor(self) -> bool:
        """Whether it is a processor, most likely the host's."""
        return self.words.get("type") == "cpu"

    def __str__(self) -> str:
        said = ", ".join(f"{key} {value}" for key, value in self.words.items())
        return (
            f"{' and '.join(self.devices)}: {self.name}, {self.facts.compute_units} compute units, "
            f"{self.facts.memory_bytes >> 20} MiB, {said}"
        )


CostHook = Callable[[Call, Mapping[Sym, int]], float | None]
"""A prediction of a call for sizes of dims, in nanoseconds; None leaves it to figures of the board."""


class Backend(Protocol):
    """A way to make code for devices and to bring it there.

    What has a body here is what most do. Boards are given as programs run on them, except to
    `works_in`, which makes them so.
    """

    generators: tuple[str, ...] = ()
    """Names of the code generators that it has."""
    in_host_memory: bool = False
    """Whether devices work in the first memory of the host; drivers have memories of their own."""

    def takes(self, arch: Arch) -> bool:
        """Whether it has the code generator that an architecture names."""
        return arch.generator in self.generators

    def unavailable(self, board: Board, device: str) -> str:
        """Return why no code is made here for a device whose generator it has, or nothing."""
        if self.in_host_memory or board.devices_by_name[device].memories[0] not in board.host.memories:
            return ""
        return (
            f"its driver cannot work in '{board.devices_by_name[device].memories[0]}', which is the "
            "host's: it needs one of its own"
        )

    def works_in(self, board: Board, device: Device) -> tuple[str, ...]:
        """Return the memory in which a device works: the first that is not the host's, if there is one."""
        if self.in_host_memory:
            return board.host.memories[:1]
        own = board.writable(device.name)
        fit = [m for m in own if m not in board.host.memories]
        return tuple(fit[:1]) or own[:1]

    def in_program(self, board: Board, device: str) -> bool:
        """Whether the kernels of a device are made, loaded and called as those of the host."""
        return False

    def opens_together(self, arch: Arch) -> bool:
        """Whether the driver opens all devices of an architecture as one, of which they are units."""
        return False

    def threads(self, arch: Arch) -> int | None:
        """Return how many threads of this process run a kernel; None where they are no such threads."""
        return None

    def parts(self, arch: Arch) -> int:
        """Return how many parts of a kernel have scratch memory of their own, off the host."""
        return 1

    def target(self, board: Board, device: str) -> Target:
        """Return what code of a device is made for.

        Raises:
            RunError: `run.device-absent` where a device has to be asked and does not answer.
            UnsupportedError: `target.other-device`.
        """
        return described(Target(), board, device)

    def target_behind(self, board: Board, device: str, ask: Callable[[], Facts]) -> Target:
        """Return what code is made for where the device is behind a server, which can be asked."""
        return self.target(board, device)

    def rules(self, arch: Arch) -> Sequence[Rule]:
        """Return the rules that schedule kernels, in order.

        None are there where kernels are not made of loops: then operators are given as they are in the
        program, and no layout is chosen for them.
        """
        return ()

    def region(self, arch: Arch, kernel: Kernel) -> int:
        """Return the bytes of a kernel's own in the memory of its device, for each set of its constants.

        They are there as long as the program is loaded.
        """
        return 0

    def reads_panels(self, arch: Arch) -> bool:
        """Whether contractions read constants in panels (`transforms/pack_weights.py`)."""
        return contraction in self.rules(arch)

    def joins_attention(self, arch: Arch) -> bool:
        """Whether attention is scheduled as one kernel (`transforms/_attention.py`)."""
        return attention in self.rules(arch)

    def hooks(self, arch: Arch) -> Sequence[Hook]:
        """Return further passes over lowered loops."""
        return ()

    def most_turns(self, board: Board, device: str) -> int:
        """Return the most turns of a loop that a device takes as one operation; 0 for no loops.

        Loops of known trip counts up to that are unrolled where `candidates` then has operations of them.
        """
        return 0

    def program_hooks(self, board: Board, device: str) -> Sequence[ProgramHook]:
        """Return code that changes programs on their way, for any device of the board."""
        return ()

    def lower_after(self, arch: Arch) -> Sequence[str]:
        """Return the names of back ends whose devices have their memory before: `DeviceJob.free` knows it.

        That of the host is before all others.
        """
        return ()

    def refuse(self, board: Board, device: str, call: Call, lowered: Callable[[], LoopFunction]) -> str:
        """Return why a device runs no kernel of an operation, or nothing.

        Args:
            board: with the device.
            device: its name.
            call: of an operator.
            lowered: makes loops of it alone, in milliseconds; a CompileError from there is a reason.
        """
        return ""

    def candidates(self, module: Module, board: Board, device: str) -> Sequence[Candidate | Miss] | None:
        """Return the sets of operations that a device would run as one kernel each, and nothing else.

        Of operations that are in none it may say why.

        None where it runs operations one by one, as far as it does not `refuse` them, and the compiler
        groups them. What is chosen becomes a function (`DeviceJob.kernels`, its body) that no pass
        touches between the planner and `emit`.
        """
        return None

    def port_memories(self, board: Board, device: str, function: Function) -> Mapping[int, tuple[str, ...]]:
        """Return in which memories a kernel needs its operands, by position, and its results.

        Results stand behind the operands, as one position. What is not named may be in any memory that
        the device works in (`works_in`).
        """
        return {}

    def constant_layouts(self, region: Function) -> Mapping[int, tuple[int, ...]]:
        """Return in which order of axes a device wants constant operands of a region, by position.

        They are given in that order, made while compiling; the function of the region begins with the
        transposes that undo it, so what it means stays what it was.
        """
        return {}

    def byte_formats(self, arch: Arch) -> frozenset[DType]:
        """Return which formats of bytes operands of its regions may have; none where that does not matter.

        Where the devices of a board take one of both, programs compute in that one.
        """
        return frozenset()

    def cost(self, arch: Arch) -> CostHook | None:
        """Return what predicts the time of operations; None leaves that to figures of the board."""
        return None

    def detect(self, board: Board, arch: Arch) -> tuple[Board, Detection] | None:
        """Return a board with what devices of an architecture say of themselves, if they are here."""
        return None

    def generator(self, target: Target, cache: ObjectCache | None) -> Generator | None:
        """Return what makes the code of a program whose host such a device is, if it can be one."""
        return None

    def needs(self, job: DeviceJob) -> Mapping[str, Needs]:
        """Return what code of a device needs beside its operands, without making any: as `emit` says it.

        Kernels that are loops are left out, as their loops say it. Asked by who only explains.
        """
        return {}

    def emit(self, job: DeviceJob) -> DeviceCode:
        """Make the code of a device.

        Raises:
            UnsupportedError: all `target.no-generator` at once.
        """
        ...


def described(base: Target, board: Board, device: str) -> Target:
    """Return a target with what the board says of an architecture, and of the stack of a device."""
    made = base.with_facts(board.arch_of(device).facts)
    stacks = board.stack_of(device)
    sizes = [pool.bytes for m in stacks if (pool := board.memory(m)) is not None]
    return replace(
        made,
        stack_bytes=min([made.stack_bytes, *(s for s in sizes if s is not None)]),
        stacks=stacks,
        memories=tuple(m for m in board.writable(device) if m not in stacks),
    )


Compute = Callable[[Kernel, Sequence[np.ndarray], Mapping[Sym, int]], Sequence[np.ndarray]]
"""Gives the results of a kernel for its operands and the values of its dims."""


def in_process(job: DeviceJob, compute: Compute) -> DeviceCode:
    """Return the code of a device whose kernels are computed by a function of this process."""

    def function_of(kernel: Kernel) -> Callback:
        reads = sum(p.access is Access.READ for p in kernel.ports)
        dims = [d.sym for d in kernel.type.dims]

        def called(arrays: list[np.ndarray], ints: list[int]) -> None:
            found = compute(kernel, arrays[:reads], dict(zip(dims, ints, strict=True)))
            for array, result in zip(arrays[reads:], found, strict=True):
                array[...] = result

        return called

    return DeviceCode("", functions={r.name: function_of(job.kernels[r.name]) for r in job.requests})
