"""Explains decisions: a compilation up to where they are made, and then the plan with its reasons."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from inlay.base.diagnostics import RunError, error
from inlay.codegen.backend_table import target_of, unavailable
from inlay.codegen.interface import described
from inlay.ir.module import Module
from inlay.machine.board import Board
from inlay.machine.target import Target
from inlay.memory.plan_memory import BlockOptions, FunctionPlan
from inlay.passes.manager import run_pipeline
from inlay.pipeline.building import explaining_options
from inlay.pipeline.options import PlaceOptions
from inlay.pipeline.planning import setting_of, threads_of
from inlay.pipeline.report import memory_json
from inlay.pipeline.route import route
from inlay.placement import plan_places
from inlay.placement.explain.reasons import Explanation, explanation_of


def explanation(module: Module, options: PlaceOptions, threads: int | None = None) -> Explanation:
    """Return where the operations of a program would run on a board, and why.

    Args:
        module: the program as it was loaded.
        options: as for a compilation; the board need not be one that can be compiled for.
        threads: on how many the host's kernels run; all processors by default.

    Raises:
        CompileError, RunError: of passes and of planning; `option.no-effect`.
    """
    plans: list[plan_places.Planned] = []
    setting = setting_of(options, watch=plans.append, threads=threads)
    counts = _threads(setting.board, threads)
    run_pipeline(route(plan_places.PASS), module, setting.context)
    board = setting.board
    without = {d.name: reason for d in board.devices if (reason := unavailable(board, d.name))}
    return replace(explanation_of(plans[0]), without_code=without, threads=counts)


def _threads(board: Board, threads: int | None) -> dict[str, int]:
    counts = threads_of(board, threads)
    if threads is not None and board.host.name not in counts:
        raise error(
            "option.no-effect",
            f"found threads = {threads}, which does nothing on board '{board.name}': "
            "its host is not this processor",
        )
    return counts


@dataclass(frozen=True, slots=True)
class MemoryExplanation:
    """Where the values of a program live.

    Attributes:
        board: the machine.
        plans: of each function that needs memory, and of constants where their memory is fixed.
        module: with explicit storage in its places.
    """

    board: Board
    plans: tuple[FunctionPlan, ...]
    module: Module

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {"board": self.board.name, "memory": [memory_json(p) for p in self.plans]}


def memory_explanation(
    module: Module, options: PlaceOptions, threads: int | None = None
) -> MemoryExplanation:
    """Return where the values of a program would live on a board: a compilation before any code.

    Args:
        module: the program as it was loaded.
        options: as for a compilation; the board need not be one that can be compiled for.
        threads: on how many the host's kernels run; all processors by default.

    Raises:
        CompileError, RunError: of passes and of planning; `option.no-effect`.
    """
    setting = setting_of(options, threads=threads, target=_target)
    _threads(setting.board, threads)
    board, plans = setting.board, list[FunctionPlan]()
    kernels = explaining_options(setting.operators, board, setting.targets)
    context = setting.context.with_options(*kernels, BlockOptions(watch=plans.extend))
    planned = run_pipeline(route(), module, context)
    needed = tuple(p for p in plans if p.parts or p.counted)
    return MemoryExplanation(board, needed, planned)


def _target(board: Board, device: str) -> Target:
    """Return what code of a device is made for; what the board says of it where it does not answer."""
    try:
        return target_of(board, device)
    except RunError as failure:
        if failure.ids != ("run.device-absent",):
            raise
        return described(Target(), board, device)
