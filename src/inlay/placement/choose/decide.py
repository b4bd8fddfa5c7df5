"""Devices for operations that nobody placed, as facts for inference.

The devices found become facts with a reason, and inference does the rest: it writes the same program
as if a person had asked for them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from inlay.base.diagnostics import error
from inlay.ir.module import Module
from inlay.machine.board import Board
from inlay.ops.table import OperatorTable
from inlay.placement.choose.candidates import Located, Offers, locate, task_sets
from inlay.placement.choose.capacity import too_small
from inlay.placement.choose.costs import Costs
from inlay.placement.choose.optimise import Outcome, TaskSet, optimise, simple
from inlay.placement.choose.problem import GUESS, ProblemMaker
from inlay.placement.choose.schedule import Problem
from inlay.placement.infer.graph import Graph, Machine, Reason
from inlay.placement.infer.instance import Instance
from inlay.placement.infer.operations import Operation, operations_of

CHOSEN = ("is cheapest there", "makes it there in every turn")
"""How facts end that come from here and not from people."""

_OTHER_SIZES = (1, 1024)
"""Sizes that are tried for a dim of which nobody says how large it is."""
_MOST_GUESSES, _STEPS = 4, 20_000


@dataclass(frozen=True, slots=True)
class Decision:
    """What was chosen, and from what.

    Attributes:
        operations: in program order.
        units: indices of the operations of each task; a task runs as one kernel.
        problem: what was solved.
        outcome: the solution.
        sizes: what dims were taken to be, and who said so.
        iterations: how often functions that call themselves were taken to run, and who said so.
        depends: dims whose size was guessed, with another size that gives another plan.
        located: the candidates of devices that take patterns.
        sets: those that no pin forbids, as the search takes them.
    """

    operations: tuple[Operation, ...]
    units: tuple[tuple[int, ...], ...]
    problem: Problem
    outcome: Outcome
    sizes: Mapping[str, tuple[int, str]]
    iterations: Mapping[str, tuple[float, str]]
    depends: Mapping[str, int] = field(default_factory=dict[str, int])
    located: tuple[Located, ...] = ()
    sets: tuple[TaskSet, ...] = ()


def decide(
    module: Module,
    board: Board,
    graph: Graph,
    instances: Sequence[Instance],
    operators: OperatorTable,
    costs: Costs,
    offers: Offers | None = None,
    *,
    first: bool = False,
    worth: float = 0.0,
    asks: bool = False,
) -> Decision | None:
    """Choose devices for what nobody placed, and make facts of them.

    Args:
        module, board, graph, instances: the program, the machine, and what was gathered of both.
        operators: what the program uses.
        costs: where predictions come from.
        offers: what devices that take patterns would run.
        first: take the first device that can run each task, instead of the best.
        worth: the share of the predicted time of that plan which another one has to save.
        asks: whether somebody asks which guesses the plan depends on.

    Returns:
        None where there is nothing to choose.

    Raises:
        CompileError: `placement.over-capacity` where no choice fits the memories.
    """
    operations = operations_of(graph, instances)
    if not operations:
        return None

    def made(sizes: Mapping[str, int]) -> ProblemMaker:
        known = replace(costs, typical={**costs.typical, **sizes})
        return ProblemMaker(module, board, graph, instances, operations, operators, known)

    maker = made({})
    problem = maker.problem()
    located = locate(offers, operations, maker.unit_of)

    def sets(maker: ProblemMaker) -> list[TaskSet]:
        free = [x for x in located if maker.may_be(x.operations, x.candidate.device)]
        return task_sets(free, graph.machine, lambda x: _cost_of(x, maker))

    own = () if first else tuple(sets(maker))
    outcome = simple(problem) if first else _worthy(optimise(problem, own), problem, worth)
    problem, outcome = _moving(problem, own, outcome, first=first)
    problem, outcome = _alone(problem, outcome)
    depends: dict[str, int] = {}
    if asks and outcome is not None and not first and len(board.devices) > 1:
        depends = _depends(made, sets, maker.sizes, outcome, worth)
    if outcome is None:
        _refuse(problem, graph, operations, maker)
        return None
    _make_facts(graph, maker, operations, outcome)
    units, offered = tuple(maker.units), tuple(located)
    sizes, iterations = maker.sizes, maker.iterations
    return Decision(tuple(operations), units, problem, outcome, sizes, iterations, depends, offered, own)


def _refuse(problem: Problem, graph: Graph, operations: Sequence[Operation], maker: ProblemMaker) -> None:
    """Raise what keeps every plan from the memories, where that is their capacity."""
    unbounded = optimise(replace(problem, capacity=()))
    if unbounded is None:  # no links lead there: inference says which value cannot get where
        return
    raise _over_capacity(problem, unbounded.assignment, graph.machine, operations, maker.units)


def _moving(
    problem: Problem, candidates: Sequence[TaskSet], outcome: Outcome | None, *, first: bool
) -> tuple[Problem, Outcome | None]:
    """Return a plan in which values leave memories for a time, where it is faster or the only one.

    With the problem that was solved. Where values can leave no memory nothing changes.
    """
    if all(ns < 0 for ns in problem.leaves):
        return problem, outcome
    moving = replace(problem, moving=True)
    found = simple(moving) if first else optimise(moving, candidates)
    if outcome is not None and (found is None or outcome.time <= found.time):
        return problem, outcome
    return moving, found


def _make_facts(graph: Graph, maker: ProblemMaker, operations: Sequence[Operation], outcome: Outcome) -> None:
    """Note in the graph where operations were put, and what follows for what loops carry."""
    pinned, find = maker.pinned, graph.classes.find
    for taken in outcome.used:  # together the device takes what it does not take one by one
        for i in (i for task in taken.tasks for i in maker.units[task]):
            atom = operations[i].atom
            graph.supports[atom] = graph.supports[atom]._replace(allowed=(taken.device,))
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


def _cost_of(found: Located, maker: ProblemMaker) -> float:
    said = found.candidate.picoseconds
    if said is not None:
        return maker.number(said) / 1e3 * maker.factor(found.candidate.name, found.candidate.device)
    return maker.cost(found.operations, found.candidate.device)


def _depends(
    made: Callable[[Mapping[str, int]], ProblemMaker],
    sets: Callable[[ProblemMaker], Sequence[TaskSet]],
    sizes: Mapping[str, tuple[int, str]],
    outcome: Outcome,
    worth: float,
) -> dict[str, int]:
    """Return dims whose size was guessed, with another size that gives another plan."""
    depends: dict[str, int] = {}
    guessed = [name for name, (_, who) in sizes.items() if who == GUESS][:_MOST_GUESSES]
    for name, size in itertools.product(guessed, _OTHER_SIZES):
        maker = made({name: size})
        other, candidates = maker.problem(), sets(maker)
        found = optimise(other, candidates, exact_steps=_STEPS, search_steps=_STEPS)
        found = _worthy(found, other, worth)
        if found is None or found.assignment != outcome.assignment:
            depends.setdefault(name, size)
    return depends


def _alone(problem: Problem, outcome: Outcome | None) -> tuple[Problem, Outcome | None]:
    """Return the only plan of a single device: whether its values fit is for the plan of memory to say."""
    if outcome is not None or len(problem.devices) > 1:
        return problem, outcome
    free = replace(problem, capacity=())
    return free, simple(free)


def _worthy(outcome: Outcome | None, problem: Problem, worth: float) -> Outcome | None:
    """Return an outcome, or that of the first device that can where too little is saved."""
    if outcome is not None and (1 - worth) * outcome.baseline < outcome.time < outcome.baseline:
        return simple(problem)
    return outcome


def _over_capacity(
    problem: Problem,
    assignment: Sequence[int],
    machine: Machine,
    operations: Sequence[Operation],
    units: Sequence[Sequence[int]],
) -> Exception:
    """Say which memories are too small, for the best plan if they had no bounds."""
    found = too_small(problem, assignment)
    memories = machine.board.memories
    small = [memories[m].name for m, _, _ in found]
    notes = [
        f"{memories[m].name} has {memories[m].bytes} bytes, and {round(need)} are needed at once"
        for m, need, _ in found
    ]
    tight = {d for d, places in enumerate(problem.memory) if {m for m, _, _ in found} & set(places)}
    on = zip(problem.tasks, assignment, strict=True)
    held = [c for task, d in on if d in tight for c in task.constants]
    if held:
        constants = sum(problem.constants[c] for c in dict.fromkeys(held))
        notes.append(f"constants there take {round(constants)} bytes of them all the time")
    there = [u[-1] for u, d in zip(units, assignment, strict=True) if d in tight]
    largest = max(there, default=0, key=lambda i: problem.items[i].bound)
    o = operations[largest]
    size = round(problem.items[largest].bound)
    return error(
        "placement.over-capacity",
        f"found no placement on board '{machine.board.name}' that keeps within its memories",
        span=o.call.span,
        notes=[*notes, f"the largest value there is that of {o.name}: {size} bytes"],
        hint=f"give {' and '.join(small) or 'the board'} more bytes in the board's file, use smaller "
        "sizes, or drop pins and device annotations",
    )
