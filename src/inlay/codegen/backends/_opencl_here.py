"""What a board says of an OpenCL device, made to agree with the device that is here.

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
from dataclasses import replace

from inlay.base.diagnostics import RunError
from inlay.codegen.backend_table import target_of, unavailable
from inlay.codegen.interface import Detection
from inlay.machine.board import Board
from inlay.machine.device import Arch, Link, Speed
from inlay.machine.memory import Pool
from inlay.machine.target import Fact
from inlay.runtime.device import Facts, OpenDevice

SCHEDULE = "schedule"
"""The parameter of an architecture that says which rules schedule its kernels."""

AS_HOST, AS_HOST_TRANSCENDENTALS = 0.6, 0.3
"""Of the host's speed: what code in OpenCL C does on the same cores; elementary functions apart."""
COPY_IN_MEMORY = 6.0
"""Bytes in a nanosecond from one place in a memory to another place in it, started by a driver."""
GPU_MACS, GPU_ELEMENTS, GPU_TRANSCENDENTALS = 8.0, 4.0, 1.0
"""For each compute unit and cycle of a GPU: kernels that keep nothing in shared memory."""


def with_found(board: Board, arch: Arch, driver: str, options: str) -> tuple[Board, Detection] | None:
    """Return a board with figures of a device that is here, and the device."""
    devices = tuple(d.name for d in board.devices if d.arch == arch.name)
    facts = _asked(driver, options)
    if facts is None:
        return None
    words = dict(w.split("=", 1) for w in facts.offers.split(",") if "=" in w)
    found = Detection(devices, facts.name, words, facts)
    return _with(board, arch, found), found


@functools.cache
def _asked(driver: str, options: str) -> Facts | None:
    """Return what a device says, None where it is not here; the same as long as this process runs."""
    try:
        with OpenDevice(driver, options) as device:
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
    facts = {**_facts_of_host(board, found), **dict(arch.facts)}
    made = replace(
        arch,
        dtypes=dtypes,
        parameters=known,
        speed=_speed(arch.speed, host, found),
        facts=tuple(facts.items()),
    )
    return replace(
        board,
        archs=tuple(made if a is arch else a for a in board.archs),
        memories=tuple(_memory(board, m, found) if m.name in own else m for m in board.memories),
        links=tuple(_link(x, found) if {x.source, x.target} & own else x for x in board.links),
    )


def _speed(given: Speed, host: Speed, found: Detection) -> Speed:
    """Return what a device does in a nanosecond; what nobody says stays as it was given."""
    if found.is_processor:
        share = min(1.0, found.facts.compute_units / (os.cpu_count() or 1))
        return replace(
            given,
            macs_per_ns=host.macs_per_ns * AS_HOST * share,
            elements_per_ns=host.elements_per_ns * AS_HOST * share,
            transcendentals_per_ns=host.transcendentals_per_ns * AS_HOST_TRANSCENDENTALS * share,
        )
    cycles = found.facts.compute_units * int(found.words.get("mhz", "0")) / 1000
    if not cycles:
        return given
    return replace(
        given,
        macs_per_ns=cycles * GPU_MACS,
        elements_per_ns=cycles * GPU_ELEMENTS,
        transcendentals_per_ns=cycles * GPU_TRANSCENDENTALS,
    )


def _facts_of_host(board: Board, found: Detection) -> dict[str, Fact]:
    """Return what code of a processor is made for that is the host under another name."""
    if not found.is_processor or unavailable(board, board.host.name):
        return {}
    own = target_of(board, board.host.name)
    return {"vector_bytes": own.vector_bytes, "vector_registers": own.vector_registers, "fma": own.has_fma}


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
