"""Choose a default schedule for a loop function.

Rules are tried in order; the first that applies decides. A rule is a function of a schedule and a
target: it returns True when it has scheduled the function, and False, having changed nothing, when
the function is not of its class. What no rule takes stays serial loops, which is always right.

A rule that meets a refusal half-way is given up: the function is scheduled anew by the next.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from inlay.loop.func import LoopFunction, Stage
from inlay.machine.target import Target
from inlay.schedule.rules.contraction import contraction
from inlay.schedule.rules.injective import injective
from inlay.schedule.rules.rows import rows
from inlay.schedule.rules.work_items import point_items, separate_items, work_items
from inlay.schedule.state import Illegal, Schedule

Rule = Callable[[Schedule, Target], bool]

RULES: tuple[Rule, ...] = (injective, contraction, rows)
"""In order; the more special first."""
ITEM_RULES: tuple[Rule, ...] = (work_items, separate_items)
"""For devices that run thousands of work items at once, such as GPUs."""
FEW_ITEM_RULES: tuple[Rule, ...] = (point_items, contraction, rows)
"""For processors that are programmed like such devices: OpenCL on a CPU."""


def schedule(f: LoopFunction, target: Target, rules: Sequence[Rule] = RULES) -> Schedule:
    """Return the schedule of the first rule that takes a schedulable function.

    `Schedule.refusals` says which rules gave up on the way, and why.
    """
    refusals: list[tuple[str, Illegal]] = []
    for rule in rules:
        s = Schedule(f)
        try:
            taken = rule(s, target)
        except Illegal as reason:
            refusals.append((rule.__name__, reason))
            continue
        if taken:
            break
    else:
        s = Schedule(f)
    s.refusals.extend(refusals)
    return s


def schedule_function(f: LoopFunction, target: Target, rules: Sequence[Rule] = RULES) -> LoopFunction:
    """Return the scheduled function; one that is lowered already is returned as it is."""
    return f if f.stage is Stage.LOWERED else schedule(f, target, rules).function
