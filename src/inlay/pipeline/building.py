"""What kernels are built with for a board: how groups become loops on each of its devices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from inlay.codegen.backend_table import backend_of
from inlay.machine.board import Board
from inlay.machine.target import Target
from inlay.ops.table import OperatorTable
from inlay.pipeline.build_kernels import BuildOptions
from inlay.pipeline.devices import apart
from inlay.pipeline.lowering import Lowering
from inlay.pipeline.planning import check_code, meanings_of
from inlay.pipeline.version import lowering_version


def build_options(
    operators: OperatorTable,
    board: Board,
    targets: Callable[[str], Target],
    *,
    batch: bool = False,
    verify: bool = False,
) -> BuildOptions:
    """Return what kernels are built with for a board as programs run on it.

    Args:
        operators: that there are.
        board: whose host has a back end.
        targets: gives what code of a device is made for, by its name.
        batch: whether several calls of a kernel may run as one.
        verify: whether loops are verified after each stage.
    """
    backend = backend_of(board, board.host.name)
    assert backend is not None, "who builds kernels has found the host's back end"
    here = Lowering(operators, board, backend, targets, verify=verify)
    others = {d: replace(here, backend=b, device=d) for d, b in apart(board).items()}
    made = partial(check_code, board=board)
    return BuildOptions(here, others, meanings_of(operators), lowering_version(), batch, made)


def unlowered(board: Board) -> BuildOptions:
    """Return what kernels are built with that nobody lowers: for plans of machines without code."""
    nothing = BuildOptions()
    return replace(nothing, apart=dict.fromkeys(apart(board), nothing.lower))
