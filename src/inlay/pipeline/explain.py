"""Explains a placement: a compilation up to the plan, and then the plan with its reasons."""

from __future__ import annotations

from dataclasses import replace

from inlay.base.diagnostics import error
from inlay.codegen.backend_table import unavailable
from inlay.ir.module import Module
from inlay.passes.manager import make_pipeline, run_pipeline
from inlay.pipeline.options import PlaceOptions
from inlay.pipeline.planning import setting_of, threads_of
from inlay.pipeline.route import TENSOR
from inlay.placement import plan_places
from inlay.placement.explain.reasons import Explanation, explanation_of

_UP_TO_PLACES = TENSOR[: TENSOR.index(plan_places.PASS) + 1]


def explanation(
    module: Module, options: PlaceOptions, threads: int | None = None
) -> Explanation:
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
    counts = threads_of(setting.board, threads)
    if threads is not None and setting.board.host.name not in counts:
        raise error(
            "option.no-effect",
            f"found threads = {threads}, which does nothing on board '{setting.board.name}': "
            "its host is not this processor",
        )
    run_pipeline(make_pipeline(_UP_TO_PLACES), module, setting.context)
    board = setting.board
    without = {d.name: reason for d in board.devices if (reason := unavailable(board, d.name))}
    return replace(explanation_of(plans[0]), without_code=without, threads=counts)
