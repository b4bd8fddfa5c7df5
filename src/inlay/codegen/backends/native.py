"""This processor: as the host of programs, and as a device beside it with a memory of its own.

Where it works in the memory of the host its kernels are part of the program. As a device (driver
`native`) it has an image of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from inlay.arith.expr import lit
from inlay.base.diagnostics import unsupported
from inlay.codegen.cache import ObjectCache
from inlay.codegen.interface import Backend, DeviceCode, DeviceJob, DeviceKernel, described
from inlay.codegen.llvm_generator import LlvmGenerator
from inlay.codegen.native_image import make_native_image
from inlay.machine.board import Board
from inlay.machine.device import Arch, Device
from inlay.machine.target import Target, host, offered
from inlay.runtime.device import Facts
from inlay.schedule.choose import RULES, Rule

PACED = "paced"
"""The parameter of an architecture that makes copies as slow as the links of the board say."""
PARTS = 8
"""Parts that a phase is divided into, however many threads share them."""


class Native(Backend):
    """Native code by LLVM."""

    generators = ("llvm",)

    def unavailable(self, board: Board, device: str) -> str:
        """Return why no code is made here for a device, or nothing."""
        bits = dict(board.arch_of(device).facts).get("index_bits", 64)
        return "" if bits == 64 else f"native code has indices of 64 bits, found index_bits = {bits}"

    def works_in(self, board: Board, device: Device) -> tuple[str, ...]:
        """Return the first memory that a device shares with the host, or that is its own."""
        near = board.shared_memories(board.host.name, device.name)
        own = board.writable(device.name)
        fit = [m for m in own if m in near or m not in board.host.memories]
        return tuple(fit[:1]) or own[:1]

    def in_program(self, board: Board, device: str) -> bool:
        """Whether a device works in the memory of the host."""
        return board.devices_by_name[device].memories[0] in board.host.memories

    def threads(self, arch: Arch) -> int:
        """Return how many threads run a kernel."""
        return int(arch.parameter("threads", "1"))

    def parts(self, arch: Arch) -> int:
        """Return the number of parts."""
        return PARTS

    def target(self, board: Board, device: str) -> Target:
        """Return this processor."""
        return described(host(), board, device)

    def target_behind(self, board: Board, device: str, ask: Callable[[], Facts]) -> Target:
        """Return the processor behind a server, of which code is made here for what it offers."""
        facts = ask()
        where = f"found '{facts.name}' where board '{board.name}' has '{device}'"
        arch, *words = facts.offers.split(",")
        if any(word.startswith("type=") for word in words) or not arch:
            raise unsupported(
                "target.other-device",
                f"{where}, needed a processor",
                hint="serve it (inlay serve --device host), or use a board for that device",
            )
        target = offered(facts.offers)
        if target.arch != host().arch:
            raise unsupported(
                "target.other-device",
                f"{where}, needed a processor of architecture {host().arch}",
                hint="compile on a machine with such a processor",
            )
        return described(target, board, device)

    def rules(self, arch: Arch) -> Sequence[Rule]:
        """Return the rules for processors."""
        return RULES

    def generator(self, target: Target, cache: ObjectCache | None) -> LlvmGenerator:
        """Return what makes the code of programs."""
        return LlvmGenerator(target, cache)

    def emit(self, job: DeviceJob) -> DeviceCode:
        """Make an image for the driver, which is told what that needs and compares."""
        artifact = self.generator(job.target, job.cache).compile(job.requests)
        kernels: dict[str, DeviceKernel] = {}
        buffers: dict[str, int] = {}
        for name, code in artifact.kernels.items():
            scratch = code.workspace
            if scratch is not None and scratch.per_part:
                scratch = replace(scratch, bytes=scratch.bytes * PARTS, per_part=False)
            buffers[name] = len(job.kernels[name].ports) + (scratch is not None)
            items = tuple(lit(PARTS if p.parallel else 1) for p in code.phases)
            kernels[name] = DeviceKernel(name, items, code.dims, scratch, code.assertions)
        if not artifact.image.data:  # values are there, and no kernel
            artifact = replace(artifact, image=replace(artifact.image, data=bytes(64)))
        needs = ",".join((artifact.image.arch, *artifact.image.features))
        options = " ".join((f"offers={needs}", *_options(job.board, job.devices[0])))
        return DeviceCode("native", options, make_native_image(artifact, buffers), kernels)


def _options(board: Board, device: str) -> list[str]:
    """Return what the driver is told: parameters of the architecture, and how slow the links are."""
    arch = board.arch_of(device)
    words = [f"{k}={v}" for k, v in arch.parameters if k != PACED]
    if arch.parameter(PACED) == "yes":
        own, host = board.devices_by_name[device].memories, board.host.memories
        links = [
            x for x in board.links if {x.source, x.target} & set(own) and {x.source, x.target} & set(host)
        ]
        words.append(f"latency={round(max(x.latency_ns for x in links))}")
        words.append(f"rate={max(1, round(min(x.bytes_per_ns for x in links) * 1000))}")
    return words


BACKEND = Native()
