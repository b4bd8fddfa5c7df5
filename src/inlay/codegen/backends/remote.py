"""Devices behind a server: in front of the back end that makes their code (driver `remote`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from inlay.codegen.backend_table import backends
from inlay.codegen.backends.opencl import options_of
from inlay.codegen.interface import Backend, DeviceCode, DeviceJob
from inlay.ir.expr import Call
from inlay.loop.func import LoopFunction
from inlay.lower.lower import Hook
from inlay.machine.board import Board
from inlay.machine.device import Arch
from inlay.machine.target import Target
from inlay.runtime.device import Facts, OpenDevice
from inlay.schedule.choose import Rule


class Remote(Backend):
    """Hands the image of another back end to a server, which compares it with what it has."""

    def takes(self, arch: Arch) -> bool:
        """Whether a back end makes the code that a server is to have."""
        return any(b is not self and b.takes(arch) for b in backends().values())

    def unavailable(self, board: Board, device: str) -> str:
        """Return why no code is made here for a device, or nothing."""
        arch = board.arch_of(device)
        if not arch.parameter("endpoint"):
            return f"{arch.name} has no parameter 'endpoint'"
        return super().unavailable(board, device) or _behind(arch).unavailable(board, device)

    def opens_together(self, arch: Arch) -> bool:
        """Whether the driver of the server does."""
        return _behind(arch).opens_together(arch)

    def parts(self, arch: Arch) -> int:
        """Return how many parts have scratch memory of their own there."""
        return _behind(arch).parts(arch)

    def target(self, board: Board, device: str) -> Target:
        """Return what the server says of its device, as far as code depends on it."""

        def ask() -> Facts:
            with OpenDevice("remote", options_of(board.arch_of(device))) as opened:
                return opened.facts

        return _behind(board.arch_of(device)).target_behind(board, device, ask)

    def rules(self, arch: Arch) -> Sequence[Rule]:
        """Return the rules for the device."""
        return _behind(arch).rules(arch)

    def hooks(self, arch: Arch) -> Sequence[Hook]:
        """Return the passes for the device."""
        return _behind(arch).hooks(arch)

    def refuse(self, board: Board, device: str, call: Call, lowered: Callable[[], LoopFunction]) -> str:
        """Return why the device runs no such kernel."""
        return _behind(board.arch_of(device)).refuse(board, device, call, lowered)

    def emit(self, job: DeviceJob) -> DeviceCode:
        """Make the code of the device, for another driver."""
        made = _behind(job.arch).emit(job)
        return replace(made, driver="remote", options=options_of(job.arch))


def _behind(arch: Arch) -> Backend:
    return next(b for b in backends().values() if b is not BACKEND and b.takes(arch))


BACKEND = Remote()
