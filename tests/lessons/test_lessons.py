"""Each lesson under docs/lessons runs from top to bottom, and its first line says what it teaches.

A lesson is a plain script with prose in comments. What it asserts are its claims; what it prints is
for its reader.
"""

from __future__ import annotations

import ast
import runpy
from pathlib import Path

import pytest

from tests.data import REPOSITORY

LESSONS = sorted((REPOSITORY / "docs" / "lessons").glob("[0-9][0-9]_*.py"))


LONG = ("06_", "07_")
"""Of accelerators, whose checks run hundreds of programs."""


@pytest.mark.parametrize(
    "lesson",
    [pytest.param(x, marks=pytest.mark.slow) if x.name.startswith(LONG) else x for x in LESSONS],
    ids=lambda path: path.stem,
)
def test_a_lesson_runs(
    lesson: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(lesson), run_name="__main__")
    assert capsys.readouterr().out, "a lesson shows something"
    assert not list(tmp_path.iterdir()), "a lesson leaves no files behind"


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.stem)
def test_a_lesson_makes_claims_and_introduces_itself(lesson: Path) -> None:
    tree = ast.parse(lesson.read_text(encoding="utf-8"))
    assert ast.get_docstring(tree), "a lesson begins with what it teaches"
    assert any(isinstance(node, ast.Assert) for node in ast.walk(tree)), "a lesson claims something"


def test_lessons_are_numbered_without_gaps() -> None:
    assert [int(path.name[:2]) for path in LESSONS] == list(range(1, len(LESSONS) + 1))
