"""Chooses devices for what nobody placed, and makes facts of them.

The devices found become facts with a reason, and inference does the rest: it writes the same program
as if a person had asked for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from inlay.base.diagnostics import error
from inlay.ir.module import Module
from inlay.machine.board import Board
from inlay.ops.table import OperatorTable
from inlay.placement._graph import Graph, Machine, Reason
from inlay.placement._instance import Instance
from inlay.placement.costs import Costs
from inlay.placement.operations import Operation, operations_of
from inlay.placement.optimise import Candidate, Outcome, optimise, simple
from inlay.placement.problem import ProblemMaker
from inlay.placement.schedule import Problem

CHOSEN = ("is cheapest there", "makes it there in every turn")
"""How facts end that come from here and not from people."""

CandidateSource = Callable[[Sequence[Operation], Problem], Sequence[Candidate]]
"""Gives further sets of tasks that a device can run as one, for one cost."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What was chosen, and from what.

    Attributes:
        operations: in program order.
        units: indices of the operations of each task; a task runs as one kernel.
        problem: what was solved.
        outcome: the solution.
        sizes: what dims were taken to be, and who said so.
    """

    operations: tuple[Operation, ...]
    units: tuple[tuple[int, ...], ...]
    problem: Problem
    outcome: Outcome
    sizes: Mapping[str, tuple[int, str]]


def decide(
    module: Module, board: Board, graph: Graph, instances: Sequence[Instance],
    operators: OperatorTable, costs: Costs, candidates: CandidateSource | None = None, *,
    first: bool = False, worth: float = 0.0,
) -> Decision | None:  # fmt: skip
    """Choose devices for what nobody placed, and make facts of them.

    Args:
        module, board, graph, instances: the program, the machine, and what was gathered of both.
        operators: what the program uses.
        costs: where predictions come from.
        candidates: gives sets of tasks that a device can run as one.
        first: take the first device that can run each task, instead of the best.
        worth: the share of the predicted time of that plan which another one has to save.

    Returns:
        None where there is nothing to choose.

    Raises:
        CompileError: `placement.over-capacity` where no choice fits the memories.
    """
    operations = operations_of(graph, instances)
    if not operations:
        return None
    maker = ProblemMaker(module, board, graph, instances, operations, operators, costs)
    problem = maker.problem()
    sets = () if candidates is None else candidates(operations, problem)
    outcome = simple(problem) if first else optimise(problem, sets)
    if outcome is not None and (1 - worth) * outcome.baseline < outcome.time < outcome.baseline:
        outcome = simple(problem)
    if outcome is None:
        raise _over_capacity(problem, graph.machine, operations)
    pinned, find = maker.pinned, graph.classes.find
    for members, device in zip(maker.units, outcome.assignment, strict=True):
        for o in (operations[i] for i in members):
            if find(o.atom) not in pinned:
                graph.pin(o.atom, device, Reason(f"{o.name} {CHOSEN[0]}", o.call.span))
                pinned[find(o.atom)] = device
    # What a recursive function hands to itself is where it makes it: copies stay outside.
    for atom, o in maker.carried():
        if find(atom) not in pinned:
            device = pinned[find(o.atom)]
            graph.pin(atom, device, Reason(f"{o.name} {CHOSEN[1]}", o.call.span))
            pinned[find(atom)] = device
    return Decision(tuple(operations), tuple(maker.units), problem, outcome, maker.sizes)


def _bound(problem: Problem, index: int) -> int:
    return round(problem.items[index].bound)


def _over_capacity(
    problem: Problem, machine: Machine, operations: Sequence[Operation]
) -> Exception:
    sizes = [
        f"{m.name}: {m.bytes} bytes" for m in machine.board.memories if m.bytes is not None
    ]
    largest = max(range(len(operations)), key=lambda i: problem.items[i].bound)
    o = operations[largest]
    return error(
        "placement.over-capacity",
        f"found no placement on board '{machine.board.name}' that keeps within its memories",
        span=o.call.span,
        notes=[*sizes, f"the largest value is that of {o.name}: {_bound(problem, largest)} bytes"],
        hint="give a board with more memory, smaller sizes, or drop wishes",
    )  # fmt: skip

