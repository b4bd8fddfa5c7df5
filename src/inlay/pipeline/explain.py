"""Explains a placement: the passes up to planning, and then the plan with its reasons."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from inlay.interp.tensor import evaluate_expr
from inlay.ir.module import Module
from inlay.ir.place import Place
from inlay.machine.board import Board
from inlay.ops.table import table
from inlay.passes.contract import PassContext
from inlay.passes.manager import make_pipeline, run_pipeline
from inlay.pipeline.compile import meanings_of
from inlay.pipeline.detect import find_detected
from inlay.pipeline.devices import runnable
from inlay.pipeline.generators import generators
from inlay.pipeline.options import WORTH
from inlay.pipeline.route import TENSOR
from inlay.placement import plan_places
from inlay.placement.calibration import calibrated, read_measured
from inlay.placement.capability import capability_of
from inlay.placement.costs import Costs
from inlay.placement.explain import Explanation, explain
from inlay.transforms.fuse_ops import groups_of


def explanation(
    module: Module, board: str | Board, *, pins: Sequence[str] = (), typical: Sequence[str] = (),
    calibration: str = "",
) -> Explanation:  # fmt: skip
    """Return where the operations of a program would run on a board, and why.

    Args:
        module: the program as it was loaded.
        board: the machine, by name or as a file; it need not be one that can be compiled for.
        pins: operations to put on devices, `PATTERN=DEVICE`.
        typical: sizes to predict for, `NAME=SIZE`.
        calibration: a file of measured costs; empty for none.

    Raises:
        CompileError: of passes and of planning.
    """
    measured = read_measured(calibration)
    machine = runnable(calibrated(find_detected(board), measured))
    operators = table()
    meanings = meanings_of(operators)
    context = PassContext(operators, lambda expression: evaluate_expr(expression, meanings))
    before = TENSOR[: TENSOR.index(plan_places.PASS)]
    module = run_pipeline(make_pipeline(before), module, context)
    module = plan_places.with_host_ends(module, Place(machine.host.name))
    costs = Costs(
        measured=measured,
        typical=plan_places.sizes_of(typical),
        groups=partial(groups_of, operators=operators),
    )
    choice = plan_places.Choice(operators, costs, tuple(pins), worth=WORTH)
    made = generators(operators, machine, described=True)
    return explain(module, machine, capability_of(machine, operators, made), choice)
