"""What a plan is held against where devices take patterns: first match, every choice, and a bound for all choices."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from inlay.base.instrument import SILENT
from inlay.ir.module import Module
from inlay.machine.board import Board
from inlay.pipeline.building import explaining_options
from inlay.pipeline.options import PlaceOptions
from inlay.pipeline.planning import setting_of
from inlay.pipeline.running import run_passes
from inlay.placement import plan_places
from inlay.placement.choose.bounds import cheapest_cut
from inlay.placement.choose.capacity import predict
from inlay.placement.choose.optimise import Outcome, TaskSet, contract
from inlay.placement.choose.schedule import INFINITE, Problem


@dataclass(frozen=True)
class Choices:
    """What the planner chose from.

    Attributes:
        problem: its tasks.
        sets: what devices take as one; those of devices that no pin forbids.
        outcome: what it chose.
    """

    problem: Problem
    sets: tuple[TaskSet, ...]
    outcome: Outcome


def choices_of(program: Module, board: Board) -> Choices:
    """Return what the planner of a board has to choose from for a program of known sizes."""
    setting = setting_of(PlaceOptions(board=board), SILENT, threads=1)
    kernels = explaining_options(setting)
    planned = run_passes(program, setting, kernels, until=plan_places.PASS, asks=True).planned
    assert planned is not None
    decision = planned.found.decision
    assert decision is not None
    return Choices(decision.problem, decision.sets, decision.outcome)


def first_match(c: Choices) -> float:
    """Return the time where each device in turn, in the order of the board, takes all that it can.

    The largest of what it can take first; the default device has what is left.
    """
    chosen: list[TaskSet] = []
    for device in (d for d in c.problem.devices if d != c.problem.default):
        own = (s for s in c.sets if s.device == device)
        for s in sorted(own, key=lambda s: (-len(s.tasks), min(s.tasks), s.cost)):
            if all(s.tasks.isdisjoint(x.tasks) for x in chosen) and contract(c.problem, [*chosen, s])[0]:
                chosen.append(s)
    contracted, _ = contract(c.problem, chosen)
    assert contracted is not None
    others = [d for d in c.problem.devices if d != c.problem.default]
    order = (*others, c.problem.default)
    return predict(contracted, [next(d for d in order if t.costs[d] is not None) for t in contracted.tasks])


def least_of_all(c: Choices) -> float:
    """Return the time of the best plan, of every choice of sets and devices."""
    return min(_times(c), default=INFINITE)


def _times(c: Choices) -> Iterator[float]:
    pending: list[tuple[int, tuple[TaskSet, ...]]] = [(0, ())]
    while pending:
        at, chosen = pending.pop()
        if at < len(c.sets):
            pending.append((at + 1, chosen))
            if all(c.sets[at].tasks.isdisjoint(s.tasks) for s in chosen):
                pending.append((at + 1, (*chosen, c.sets[at])))
            continue
        contracted, _ = contract(c.problem, chosen)
        if contracted is None:
            continue
        able = [[d for d, ns in enumerate(t.costs) if ns is not None] for t in contracted.tasks]
        yield from (predict(contracted, plan) for plan in itertools.product(*able))


def bound_of_all(c: Choices) -> float:
    """Return a lower bound on the time of every choice of sets and devices."""
    least = {s.tasks: s.cost for s in sorted(c.sets, key=lambda s: -s.cost)}
    return cheapest_cut(c.problem, least)
