"""Choices that rules leave open, as data: what was asked, what could be answered, what was.

A rule that weighs something by an estimate asks for it by name, with the answers that are right:

    steps = s.pick("matmul.steps", 4, (1, 2, 8))

The default is the rule's own estimate, and the answer without a *choice*. A choice answers some of the
questions in its place; measuring finds one (`inlay.tune`). So the space of a search is what the rules ask
when they run, no answer outside of it is ever taken, and who decides stays the rule: a choice changes
which of several right programs is made, never what it computes.

Names of questions begin with the block that they are about, where a function has several.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

Value = int | str
V = TypeVar("V", int, str)

ON, OFF = "on", "off"
"""Answers to questions of yes or no."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Answers to questions of rules.

    Attributes:
        values: by the names of the questions, sorted.
    """

    values: tuple[tuple[str, Value], ...] = ()

    @classmethod
    def of(cls, values: Mapping[str, Value]) -> Choice:
        """Return the choice of these answers."""
        return cls(tuple(sorted(values.items())))

    def __bool__(self) -> bool:
        """Whether it answers anything."""
        return bool(self.values)

    @property
    def key(self) -> str:
        """Its text for keys and files: equal for equal choices, and for those alone."""
        return json.dumps(dict(self.values), separators=(",", ":"))

    def __str__(self) -> str:
        return ", ".join(f"{name} {value}" for name, value in self.values) or "as rules estimate"

    def get(self, name: str) -> Value | None:
        """Return the answer to a question, if there is one."""
        return next((value for known, value in self.values if known == name), None)


NO_CHOICE = Choice()
"""Leaves all to the rules."""


@dataclass(frozen=True, slots=True)
class Question:
    """Something that a rule asked for.

    Attributes:
        name: of the question.
        default: what the rule estimates to be best.
        options: all right answers, the default first.
        answer: what was taken.
        of_threads: whether it matters on several threads alone.
    """

    name: str
    default: Value
    options: tuple[Value, ...]
    answer: Value
    of_threads: bool = False


@dataclass(slots=True)
class Asked:
    """Answers questions by a choice, and keeps them.

    Attributes:
        choice: that answers.
        questions: by name, in the order in which they were asked.
    """

    choice: Choice = NO_CHOICE
    questions: dict[str, Question] = field(default_factory=dict[str, Question])

    def pick(self, name: str, default: V, options: Iterable[V] = (), *, of_threads: bool = False) -> V:
        """Return the answer to a question: that of the choice if it is an option, else the default.

        Args:
            name: of the question.
            default: the estimate.
            options: other right answers, of the same type.
            of_threads: whether it matters on several threads alone.
        """
        right = tuple(dict.fromkeys((default, *options)))
        chosen = self.choice.get(name)
        answer = next((x for x in right if type(x) is type(chosen) and x == chosen), default)
        self.questions[name] = Question(name, default, right, answer, of_threads)
        return answer

    def switch(self, name: str, *, default: bool, of_threads: bool = False) -> bool:
        """Return the answer to a question of yes or no."""
        first, other = (ON, OFF) if default else (OFF, ON)
        return self.pick(name, first, (other,), of_threads=of_threads) == ON

    @property
    def unused(self) -> tuple[str, ...]:
        """Why answers of the choice were not taken, one sentence each."""
        return tuple(_why(name, value, self.questions.get(name)) for name, value in self._left())

    def _left(self) -> list[tuple[str, Value]]:
        taken = {name: q.answer for name, q in self.questions.items()}
        return [(name, value) for name, value in self.choice.values if taken.get(name) != value]


def _why(name: str, value: Value, question: Question | None) -> str:
    if question is None:
        return f"found {name} = {value}, which no rule asks for here"
    return f"found {name} = {value}, needed one of {', '.join(map(str, question.options))}"
