"""What is to be tried next for a kernel: a function of what was tried, so that any run goes on with it.

First each open answer by itself, all others as rules estimate; then the best answers of all questions
together, where several win. What is fastest is measured again, with more rounds, before it is kept: of
many that are measured once, the best one owes something to luck.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from inlay.analysis.choices import Choice, Question, Value
from inlay.tune.trial import Trial

MOST_CONFIRMED = 2
"""Choices that are measured again for one kernel."""


@dataclass(frozen=True, slots=True)
class Try:
    """Choices to measure next, in one go."""

    choices: tuple[Choice, ...]


@dataclass(frozen=True, slots=True)
class Confirm:
    """A choice to measure again."""

    trial: Trial


@dataclass(frozen=True, slots=True)
class Done:
    """Nothing is left to try.

    Attributes:
        best: what is kept; None where the default is as fast.
    """

    best: Trial | None


Step: TypeAlias = Try | Confirm | Done


def step(questions: Sequence[Question], trials: Sequence[Trial], threads: int) -> Step:
    """Return what is next.

    Args:
        questions: what is open.
        trials: all so far.
        threads: that kernels run on.
    """
    known = {t.choice: t for t in trials}
    alone = singles(questions, threads)
    if new := tuple(c for c in alone if c not in known):
        return Try(new)
    together = _together([known[c] for c in alone])
    if together and together not in known:
        return Try((together,))
    best = kept(trials)
    if best is not None:
        return Done(best)
    again = sum(t.kept is not None for t in trials)
    left = sorted((t for t in trials if t.wins and t.kept is None), key=lambda t: (-t.gain, t.choice.key))
    return Confirm(left[0]) if left and again < MOST_CONFIRMED else Done(None)


def singles(questions: Sequence[Question], threads: int) -> list[Choice]:
    """Return the choices that answer one question otherwise than rules do."""
    open_ = [q for q in questions if threads > 1 or not q.of_threads]
    return [Choice.of({q.name: x}) for q in open_ for x in q.options if x != q.default]


def kept(trials: Sequence[Trial]) -> Trial | None:
    """Return the fastest trial that won twice."""
    return max((t for t in trials if t.kept), key=lambda t: (t.gain, t.choice.key), default=None)


def _together(trials: Sequence[Trial]) -> Choice:
    """Return the best answers of all questions together; no choice where fewer than two win."""
    answers: dict[str, tuple[float, Value]] = {}
    for t in trials:
        if t.wins:
            ((name, value),) = t.choice.values
            answers[name] = max(answers.get(name, (0.0, value)), (t.gain, value), key=lambda x: x[0])
    return Choice.of({n: v for n, (_, v) in answers.items()}) if len(answers) > 1 else Choice()
