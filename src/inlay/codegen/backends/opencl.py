"""OpenCL devices: kernels in OpenCL C, which the driver of the device compiles when it loads them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from inlay.base.diagnostics import Collector, error
from inlay.codegen.backends._opencl_here import SCHEDULE, with_found
from inlay.codegen.interface import Backend, Detection, DeviceCode, DeviceJob, described
from inlay.codegen.opencl import MOST_PARTS, OPENCL, make_image, unsupported_reason
from inlay.ir.expr import Call
from inlay.loop.func import LoopFunction
from inlay.machine.board import Board
from inlay.machine.device import Arch
from inlay.machine.target import Target
from inlay.schedule.choose import FEW_ITEM_RULES, ITEM_RULES, Rule

UNITS = "units"
"""The parameter of an architecture whose devices are parts of one device, in board order."""


class OpenCl(Backend):
    """OpenCL C."""

    generators = ("opencl",)

    def unavailable(self, board: Board, device: str) -> str:
        """Return why no code is made here for a device, or nothing."""
        bits = dict(board.arch_of(device).facts).get("index_bits", 64)
        if bits != 64:
            return f"OpenCL C is emitted with indices of 64 bits, found index_bits = {bits}"
        return super().unavailable(board, device)

    def opens_together(self, arch: Arch) -> bool:
        """Whether the devices are parts of one."""
        return bool(arch.parameter(UNITS))

    def parts(self, arch: Arch) -> int:
        """Return the most work items of phases whose parts have scratch memory of their own."""
        return MOST_PARTS

    def target(self, board: Board, device: str) -> Target:
        """Return what the board says of a device."""
        dtypes = board.arch_of(device).dtypes
        return described(replace(OPENCL, doubles=dtypes is None or "f64" in dtypes), board, device)

    def rules(self, arch: Arch) -> Sequence[Rule]:
        """Return the rules for processors or for GPUs."""
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

    def refuse(self, board: Board, device: str, call: Call, lowered: Callable[[], LoopFunction]) -> str:
        """Return why no kernel is made of an operation, or nothing."""
        return unsupported_reason(lowered(), self.target(board, device))

    def detect(self, board: Board, arch: Arch) -> tuple[Board, Detection] | None:
        """Return a board with figures of the device that is here."""
        return with_found(board, arch, "opencl", options_of(arch))

    def emit(self, job: DeviceJob) -> DeviceCode:
        """Make the text of all kernels."""
        functions: list[LoopFunction] = []
        findings = Collector()
        for r in job.requests:
            f = r.lower()
            if reason := unsupported_reason(f, job.target):
                findings.unsupported(
                    "target.no-generator",
                    f"found '{r.name}' on '{job.devices[0]}': {reason}",
                    hint="put it on the host",
                )
            functions.append(f)
        findings.raise_if_fatal()
        image = make_image(functions, job.target, {r.name: r.in_place for r in job.requests})
        return DeviceCode("opencl", options_of(job.arch), image.text.encode(), image.kernels)


def options_of(arch: Arch) -> str:
    """Return what the driver of an architecture is told."""
    return " ".join(f"{key}={value}" for key, value in arch.parameters if key != SCHEDULE)


BACKEND = OpenCl()
