"""How groups of operators become loops on the devices of a board."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from inlay.analysis.choices import NO_CHOICE, Choice
from inlay.analysis.cost import bytes_of, predicted_ns
from inlay.base.diagnostics import CompileError, InternalError
from inlay.bytecode.program import PIECE_BYTES
from inlay.codegen.interface import Backend
from inlay.ir.expr import Function
from inlay.ir.kernel import Batch
from inlay.loop.func import LoopFunction
from inlay.loop.verify import check
from inlay.lower.in_windows import Windows, in_windows
from inlay.lower.lower import lower
from inlay.lower.ops_to_loops import SampleBatch as TeBatch
from inlay.lower.ops_to_loops import ops_to_loops
from inlay.machine.board import Board
from inlay.machine.target import Target
from inlay.ops.table import OperatorTable
from inlay.schedule.choose import Decision, decide


@dataclass(frozen=True, slots=True)
class Lowered:
    """The loops of a kernel.

    Attributes:
        loops: plain ones, for a code generator.
        schedule: how they came about.
    """

    loops: LoopFunction
    schedule: Decision


BeforeSchedule = Callable[[LoopFunction, Function, str, Target], LoopFunction]
"""From the loops of a group for a device to those that are to be scheduled; see `pipeline/hooking.py`."""


@dataclass(frozen=True, slots=True)
class Lowering:
    """How groups become loops on a device; on the host where none is named."""

    operators: OperatorTable
    board: Board
    backend: Backend
    targets: Callable[[str], Target]
    device: str = ""
    verify: bool = False
    before_schedule: BeforeSchedule | None = None

    def __call__(
        self,
        function: Function,
        name: str,
        batch: Batch | None,
        windows: Windows | None = None,
        choice: Choice = NO_CHOICE,
    ) -> Lowered:
        """Return the lowered loops of a group; each stage is verified where that was asked for.

        Args:
            function: the group.
            name: of its kernel.
            batch: how several calls run as one.
            windows: which of its tensors lie in larger ones.
            choice: answers to what schedule rules leave open.
        """
        device = self.device or self.board.host.name
        many = None if batch is None else TeBatch(batch.count, batch.shared)
        found = self.operators.definition
        loops = self._checked(
            ops_to_loops(function, found, name, many, in_place=not self.device), "ops-to-loops"
        )
        if windows is not None:
            loops = self._checked(in_windows(loops, windows), "in-windows")
        target, arch = self.targets(device), self.board.arch_of(device)
        if self.before_schedule is not None:
            loops = self.before_schedule(loops, function, device, target)
        is_one = many is None and not self.device
        is_short = is_one and _is_short(function, self.operators, target.hand_off_ns)
        schedule = decide(loops, target, self.backend.rules(arch), choice, is_short=is_short)
        scheduled = self._checked(schedule.function, "schedule")
        lowered = self._checked(lower(scheduled, target, self.backend.hooks(arch)), "lower")
        return Lowered(lowered, schedule)

    def _checked(self, loops: LoopFunction, stage: str) -> LoopFunction:
        if self.verify:
            try:
                check(loops)
            except CompileError as failure:
                raise InternalError(
                    f"the loops that '{stage}' made are not well formed:\n{failure}", where=loops.name
                ) from failure
        return loops


def _is_short(function: Function, operators: OperatorTable, hand_off_ns: int) -> bool:
    """Whether the runtime would run a kernel on one thread, by the same prediction, and all of it at once.

    Parts are of use to one thread too where it goes over large operands piece by piece.
    """
    time = predicted_ns(function, operators).value
    sizes = [bytes_of(p.type).value for p in function.params]
    is_small = all(n is not None and n < 2 * PIECE_BYTES for n in sizes)
    return time is not None and time < hand_off_ns and is_small
