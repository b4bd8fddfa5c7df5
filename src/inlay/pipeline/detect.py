"""What a board says of a device, made to agree with the device that is here.

The file of a board that many machines have, such as `opencl`, can only guess: one machine has a GPU
of a hundred compute units behind that name, another its own processor. An architecture with
`detect = true` says that its figures are such guesses. Where the driver finds the device, they are
replaced by what the device says of itself; where it does not, they serve for planning.

A driver tells kind, compute units, clock, memory and formats. How fast that is follows from them
roughly: a *processor* is the host under another name, so it does a part of what the host is said to
do, by its share of the cores; a *GPU* does some lanes for each unit and cycle. Measured figures are
better (`inlay bench --calibrate`), and they are taken instead wherever there are some.
"""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass, replace

from inlay.base.diagnostics import RunError
from inlay.machine.board import Board
from inlay.machine.board_check import Use
from inlay.machine.board_file import find_board
from inlay.machine.device import Arch, Link, Speed
from inlay.machine.memory import Pool
from inlay.ops.table import table
from inlay.pipeline.devices import OPENCL, SCHEDULE, options_of_arch, runnable
from inlay.runtime.device import Device, Facts

AS_HOST, AS_HOST_COSTLY = 0.6, 0.3
"""Of the host's speed: what code in OpenCL C does on the same cores; elementary functions apart."""
COPY_IN_MEMORY = 6.0
"""Bytes in a nanosecond from one place in a memory to another place in it, started by a driver."""
GPU_MACS, GPU_ELEMENTS, GPU_COSTLY = 8.0, 4.0, 1.0
"""For each compute unit and cycle of a GPU: kernels that keep nothing in shared memory."""


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
    words: dict[str, str]
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


def find_usable(name: str | Board) -> Board:
    """Return a board (`find_board`) that programs can use: one check for all who compile or ask.

    Raises:
        CompileError: `name.unknown`, `load.missing`, `board.invalid`.
    """
    return find_board(name, Use({d.name for d in table()}, runnable))


def find_detected(name: str | Board) -> Board:
    """Return a board that programs can use with what its devices say of themselves.

    Raises:
        CompileError: as `find_usable`.
    """
    return detected(find_usable(name))[0]


def detected(board: Board) -> tuple[Board, tuple[Detection, ...]]:
    """Return a board with figures of the devices that are here, and those devices."""
    found: list[Detection] = []
    for arch in board.archs:
        devices = tuple(d.name for d in board.devices if d.arch == arch.name)
        if not arch.detect or arch.loader != OPENCL or not devices:
            continue
        facts = _asked(arch.loader, options_of_arch(arch))
        if facts is not None:
            words = dict(w.split("=", 1) for w in facts.offers.split(",") if "=" in w)
            found.append(Detection(devices, facts.name, words, facts))
            board = _with(board, arch, found[-1])
    return board, tuple(found)


@functools.cache
def _asked(driver: str, options: str) -> Facts | None:
    """Return what a device says, None where it is not here; the same as long as this process runs."""
    try:
        with Device(driver, options) as device:
            return device.facts
    except RunError as failure:
        if failure.ids != ("run.device-absent",):
            raise
        return None


def _with(board: Board, arch: Arch, found: Detection) -> Board:
    """Return a board with the figures of one device."""
    own = {m for d in board.devices if d.name in found.devices for m in d.memories}
    host = board.arch_of(board.host.name).speed
    dtypes = arch.dtypes
    if dtypes is not None:
        dtypes = tuple(t for t in dtypes if t != "f64") + ("f64",) * found.facts.has_f64
    rules = "few" if found.is_processor else "items"
    known = arch.parameters if arch.parameter(SCHEDULE) else (*arch.parameters, (SCHEDULE, rules))
    made = replace(
        arch, dtypes=dtypes, parameters=known, speed=_speed(arch.speed, host, found)
    )
    return replace(
        board,
        archs=tuple(made if a is arch else a for a in board.archs),
        memories=tuple(_memory(board, m, found) if m.name in own else m for m in board.memories),
        links=tuple(
            _link(x, found) if {x.source, x.target} & own else x for x in board.links
        ),
    )  # fmt: skip


def _speed(given: Speed, host: Speed, found: Detection) -> Speed:
    """Return what a device does in a nanosecond; what nobody says stays as it was given."""
    if found.is_processor:
        share = min(1.0, found.facts.compute_units / (os.cpu_count() or 1))
        return replace(
            given,
            macs_per_ns=host.macs_per_ns * AS_HOST * share,
            elements_per_ns=host.elements_per_ns * AS_HOST * share,
            costly_per_ns=host.costly_per_ns * AS_HOST_COSTLY * share,
        )
    cycles = found.facts.compute_units * int(found.words.get("mhz", "0")) / 1000
    if not cycles:
        return given
    return replace(
        given,
        macs_per_ns=cycles * GPU_MACS,
        elements_per_ns=cycles * GPU_ELEMENTS,
        costly_per_ns=cycles * GPU_COSTLY,
    )


def _memory(board: Board, memory: Pool, found: Detection) -> Pool:
    size = found.facts.memory_bytes or memory.bytes
    if not found.is_processor:
        return replace(memory, bytes=size)
    return replace(memory, bytes=size, bytes_per_ns=board.memories[0].bytes_per_ns)


def _link(link: Link, found: Detection) -> Link:
    """Return a link as fast as copies are where both memories are one."""
    if found.words.get("unified") != "yes":
        return link
    return replace(link, bytes_per_ns=COPY_IN_MEMORY)
