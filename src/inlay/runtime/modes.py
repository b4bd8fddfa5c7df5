"""The mode of calls where nobody asks for one, and why; see design 0010."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from inlay.base.diagnostics import error
from inlay.bytecode.program import HostBody, Kernel
from inlay.runtime.native import Mode, Settings


@dataclass(frozen=True, slots=True)
class ModeChoice:
    """How calls of an executable go through its program.

    Attributes:
        mode: of all calls; None where each takes the one, sequential or parallel, that was faster.
        reason: why, as a clause.
    """

    mode: Mode | None
    reason: str

    def __str__(self) -> str:
        return f"{self.mode or 'sequential or parallel'}: {self.reason}"


def mode_of(asked: Mode | None, kernels: Sequence[Kernel], *, devices: bool, threads: int) -> ModeChoice:
    """Return the mode of a program's calls.

    Args:
        asked: what somebody asked for; that is what it is.
        kernels: of the program.
        devices: whether it has any besides the processor.
        threads: that calls run on.
    """
    if asked is not None:
        return ModeChoice(asked, "asked for")
    if any(kernel.batch is not None for kernel in kernels):
        return ModeChoice("parallel", "calls of a batch run as one where several are in flight")
    if any(isinstance(kernel.body, HostBody) for kernel in kernels):
        return ModeChoice("sequential", "callbacks see the order in which they run")
    if threads == 1 and not devices:
        return ModeChoice("sequential", "there is one thread, and no device beside it")
    return ModeChoice(None, "each call takes the mode that was faster")


def check_own_batches(settings: Settings, kernels: Sequence[Kernel]) -> None:
    """Refuse `own_batches` of settings where calls have no batches that threads could divide.

    Raises:
        CompileError: `option.no-effect`.
    """
    if not settings.own_batches:
        return
    found = f"found own_batches={settings.own_batches}, which does nothing here: "
    if all(kernel.batch is None for kernel in kernels):
        raise error(
            "option.no-effect",
            found + "no kernel of the executable runs several calls as one",
            hint="compile it with `batch=True`; kernels whose calls share few bytes of weights have no batch",
        )
    if settings.threads == 1 or settings.mode not in (None, "parallel") or settings.races:
        raise error(
            "option.no-effect",
            found + "calls share batches on several threads, in parallel mode, and without the race detector",
        )
