"""Choose a default schedule for a loop function, and keep why.

Rules are tried in order; the first that applies decides. A rule is a function of a schedule and a
target that schedules the function, or raises `Illegal`: the function is not of its class
(`schedule.class`), or a primitive refuses half-way. Then the function is scheduled anew by the next; a
plainer form of the rule comes before it where a primitive refused.
What no rule takes stays serial loops, which is always right. Loops that an operator wrote itself are lowered
already; threads share them where they are over lines (`rules/lines.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from inlay.analysis.choices import NO_CHOICE, Choice, Question
from inlay.base.diagnostics import Diagnostic
from inlay.loop.func import LoopFunction, Stage
from inlay.machine.target import Target
from inlay.schedule.rules.attention import attention, plain_attention
from inlay.schedule.rules.chunked import chunked
from inlay.schedule.rules.contraction import contraction, plain_contraction
from inlay.schedule.rules.dots import dots
from inlay.schedule.rules.injective import injective
from inlay.schedule.rules.lines import lines
from inlay.schedule.rules.one_row import one_row
from inlay.schedule.rules.rows import rows
from inlay.schedule.rules.split_reductions import split_reductions
from inlay.schedule.rules.streams import streams
from inlay.schedule.rules.work_items import point_items, separate_items, work_items
from inlay.schedule.state import Illegal, Schedule, Step

Rule = Callable[[Schedule, Target], None]
"""Schedules a function, or raises `Illegal`."""

RULES: tuple[Rule, ...] = (
    injective,
    chunked,
    one_row,
    streams,
    dots,
    contraction,
    attention,
    split_reductions,
    rows,
)
"""In order; the more special first."""
ITEM_RULES: tuple[Rule, ...] = (work_items, separate_items)
"""For devices that run thousands of work items at once, such as GPUs."""
FEW_ITEM_RULES: tuple[Rule, ...] = (point_items, contraction, rows)
"""For processors that are programmed like such devices: OpenCL on a CPU."""

_PLAINER: Mapping[Rule, Rule] = {attention: plain_attention, contraction: plain_contraction}
"""What a function of the rule's class is tried with when the rule is refused half-way."""
_FORMS: frozenset[Rule] = frozenset({chunked, one_row, streams, dots, split_reductions})
"""Special forms of the rule behind them: that a function is of another class is no news."""


@dataclass(frozen=True, slots=True)
class Decision:
    """How a function was scheduled, and why not otherwise.

    Attributes:
        function: with its loops as they were scheduled.
        rule: the rule that was taken; empty where the loops stay as they were made.
        refused: rules that were tried before, each with its reason.
        declined: steps of the rule that do not apply here or are not worth it, each with the reason.
        steps: the primitives that were applied, in order.
        facts: what rules asked of the target, by name of the fact.
        choice: answers to what the rule leaves open that were given, by measuring.
        questions: what it leaves open, with the answers that were taken.
        unused: answers that were given and not taken, with the reasons.
    """

    function: LoopFunction
    rule: str = ""
    refused: tuple[tuple[str, Diagnostic], ...] = ()
    declined: tuple[tuple[Step, str], ...] = ()
    steps: tuple[Step, ...] = ()
    facts: Mapping[str, int | bool | tuple[str, ...]] = field(
        default_factory=dict[str, "int | bool | tuple[str, ...]"]
    )
    choice: Choice = NO_CHOICE
    questions: tuple[Question, ...] = ()
    unused: tuple[str, ...] = ()


def decide(
    f: LoopFunction,
    target: Target,
    rules: Sequence[Rule] = RULES,
    choice: Choice = NO_CHOICE,
    *,
    is_short: bool = False,
) -> Decision:
    """Return the scheduled function with the reasons; of one that is lowered already, threads share lines.

    Args:
        f: the function.
        target: the machine.
        rules: in order.
        choice: answers to what rules leave open.
        is_short: whether a run takes less time than giving other threads a part of it.
    """
    if f.stage is Stage.LOWERED:
        return _of_lines(f, is_short=is_short) if rules else Decision(f)
    asked = _AskedTarget(target)
    s = schedule(f, asked, rules, choice, is_short=is_short)
    facts = {n: _fact(target, n) for n in sorted(asked.asked)}
    return Decision(
        s.function,
        s.rule,
        tuple(s.refusals),
        tuple(s.declined),
        tuple(s.trace),
        facts,
        choice,
        tuple(s.asked.questions.values()),
        s.asked.unused,
    )


def _of_lines(f: LoopFunction, *, is_short: bool) -> Decision:
    body, declined = lines(f, is_short=is_short)
    if body is f.body:
        return Decision(f, declined=tuple(declined))
    return Decision(replace(f, body=body), lines.__name__, declined=tuple(declined))


def _fact(target: Target, name: str) -> int | bool | tuple[str, ...]:
    """Return a fact with what follows from the features."""
    if name == "fma":
        return target.has_fma
    if name == "matrix":
        return tuple(kind.name for kind in target.matrix_kinds)
    return tuple(kind.name for kind in target.dot_kinds) if name == "dot" else getattr(target, name)


def schedule(
    f: LoopFunction,
    target: Target,
    rules: Sequence[Rule] = RULES,
    choice: Choice = NO_CHOICE,
    *,
    is_short: bool = False,
) -> Schedule:
    """Return the schedule of the first rule that takes a schedulable function.

    `Schedule.refusals` says which rules did not, and why.
    """
    refusals: list[tuple[str, Diagnostic]] = []
    waiting = deque(rules)
    while waiting:
        rule = waiting.popleft()
        s = Schedule(f, choice, is_short=is_short)
        try:
            rule(s, target)
        except Illegal as refusal:
            is_other = refusal.diagnostics[0].id == "schedule.class"
            if not is_other or rule not in _FORMS:
                refusals.append((rule.__name__, refusal.diagnostics[0]))
            if rule in _PLAINER and not is_other:
                waiting.appendleft(_PLAINER[rule])
            continue
        s.rule = rule.__name__
        break
    else:
        s = Schedule(f, choice, is_short=is_short)
    s.refusals.extend(refusals)
    return s


_FACTS = frozenset(f.name for f in fields(Target)) - {"arch", "cpu", "features", "dialect"}
"""What a schedule may depend on; the rest says how code is spelled."""


class _AskedTarget(Target):
    """A target that keeps which of its facts were asked for."""

    __slots__ = ("asked",)
    asked: dict[str, None]

    def __init__(self, target: Target) -> None:
        Target.__init__(self, **{f.name: getattr(target, f.name) for f in fields(Target)})
        object.__setattr__(self, "asked", {})

    def __getattribute__(self, name: str) -> Any:
        if name in _FACTS:
            self.asked[name] = None
        return object.__getattribute__(self, name)
