"""Questions of rules: a choice answers with what a rule offers, and nothing else is ever taken."""

from __future__ import annotations

import json

import pytest

from inlay.analysis.choices import NO_CHOICE, Asked, Choice


def test_a_choice_answers_what_is_offered() -> None:
    asked = Asked(Choice.of({"mm.steps": 8, "mm.order": "lines"}))
    assert asked.pick("mm.steps", 4, (1, 2, 8)) == 8
    assert asked.pick("mm.order", "panels", ("lines",)) == "lines"
    assert asked.pick("mm.rows", 6, (5, 4)) == 6
    assert [(q.name, q.default, q.options, q.answer) for q in asked.questions.values()] == [
        ("mm.steps", 4, (4, 1, 2, 8), 8),
        ("mm.order", "panels", ("panels", "lines"), "lines"),
        ("mm.rows", 6, (6, 5, 4), 6),
    ]
    assert asked.unused == ()


@pytest.mark.parametrize("value", [3, -1, 1 << 70, "8", "", "on"])
def test_what_is_not_offered_is_not_taken_and_told(value: int | str) -> None:
    asked = Asked(Choice.of({"mm.steps": value}))
    assert asked.pick("mm.steps", 4, (1, 2, 8)) == 4
    assert asked.unused == (f"found mm.steps = {value}, needed one of 4, 1, 2, 8",)


def test_answers_to_what_nobody_asks_are_told() -> None:
    assert Asked(Choice.of({"mm.steps": 4})).unused == ("found mm.steps = 4, which no rule asks for here",)


def test_questions_of_yes_or_no() -> None:
    asked = Asked(Choice.of({"a": "off", "b": "on"}))
    answers = [asked.switch(name, default=d) for name in "abc" for d in (False, True)]
    assert answers == [False, False, True, True, False, True]


def test_equal_choices_have_one_key() -> None:
    a, b = Choice.of({"x": 1, "y": "on"}), Choice.of({"y": "on", "x": 1})
    assert a == b
    assert a.key == b.key
    assert json.loads(a.key) == {"x": 1, "y": "on"}
    assert len({Choice.of({"x": v}).key for v in (1, "1", 2)}) == 3
    assert not NO_CHOICE
    assert a
