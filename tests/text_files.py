"""Text tests: ``tests/text/**/*.inl`` files that say what to run and what to look for.

A file has lines ``// RUN: inlay opt %s --passes fuse-ops | filecheck %s`` and ``// CHECK`` lines in
the syntax of LLVM's FileCheck. Every RUN line is one run, in this process, because to start Python
and numpy for each would take most of the time. What may stand in a RUN line is therefore little:

* ``inlay ARGUMENTS`` with ``%s`` for the file and ``%t`` for a path that is the test's own;
* ``not`` in front, where the command must fail (for files named ``*.reject.inl``);
* ``2>&1``, to look at errors as well;
* ``| filecheck ARGUMENTS`` at the end. Without it only success is asked for.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from filecheck.finput import FInput
from filecheck.matcher import Matcher
from filecheck.options import parse_argv_options
from filecheck.parser import Parser

MARK = "RUN:"


class RunError(Exception):
    """A RUN line that did not do what it says; the text is the report."""


@dataclass(frozen=True)
class Command:
    """A RUN line, taken apart."""

    arguments: list[str]
    must_fail: bool
    with_errors: bool
    check: list[str] | None


def commands(path: Path, own: Path) -> list[Command]:
    """Read the RUN lines of a file."""
    found: list[Command] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        _, mark, rest = line.partition(MARK)
        if not mark or not line.lstrip().startswith("//"):
            continue
        run, pipe, check = rest.partition("|")
        words = [w.replace("%s", str(path)).replace("%t", str(own)) for w in shlex.split(run)]
        must_fail = words[:1] == ["not"]
        words = words[1:] if must_fail else words
        with_errors = "2>&1" in words
        words = [w for w in words if w != "2>&1"]
        if words[:1] != ["inlay"]:
            raise RunError(f"a RUN line runs inlay, not {words[:1]}")
        checked = [w.replace("%s", str(path)) for w in shlex.split(check)] if pipe else None
        if checked is not None and checked[:1] != ["filecheck"]:
            raise RunError(f"a RUN line pipes into filecheck, not {checked[:1]}")
        found.append(Command(words[1:], must_fail, with_errors, checked))
    if not found:
        raise RunError(f"{path.name} has no RUN line")
    return found


def execute(command: Command) -> None:
    """Run a command and look at what it prints.

    Raises:
        RunError: The status or the text is not what the file says.
    """
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out if command.with_errors else err):
        try:
            status = importlib.import_module("inlay.cli.main").main(command.arguments) or 0
        except SystemExit as leave:
            status = leave.code or 0
    said = out.getvalue()
    if bool(status) != command.must_fail:
        wanted = "failure" if command.must_fail else "success"
        raise RunError(f"found status {status}, needed {wanted}\n{said}{err.getvalue()}")
    if command.check is not None:
        look(said, command.check)


def look(text: str, check: list[str]) -> None:
    """Match a text against the CHECK lines of a file.

    Raises:
        RunError: With the report of filecheck and the whole text.
    """
    options = parse_argv_options(list(check))
    matcher = Matcher(options, FInput("-", text), Parser.from_opts(options))
    report = matcher.stderr = io.StringIO()
    if matcher.run() != 0:
        raise RunError(f"{report.getvalue()}\nin this text:\n{text}")


class TextFile(pytest.File):
    """A file of tests; one test for each RUN line."""

    def collect(self) -> Iterator[pytest.Item]:
        """Yield a test for each RUN line."""
        text = self.path.read_text(encoding="utf-8")
        for number in range(sum(MARK in line for line in text.splitlines())):
            yield TextTest.from_parent(self, name=f"run{number}", number=number)


class TextTest(pytest.Item):
    """One RUN line."""

    def __init__(self, *, number: int, **more) -> None:
        super().__init__(**more)
        self.number = number

    def runtest(self) -> None:
        """Run it."""
        own = self.config._tmp_path_factory.mktemp("text") / "t"
        execute(commands(self.path, own)[self.number])

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style=None):
        """Show the report and not our frames."""
        if isinstance(excinfo.value, RunError):
            return f"{self.path}\n{excinfo.value}"
        return super().repr_failure(excinfo, style)

    def reportinfo(self):
        """Say where the test is."""
        return self.path, None, f"{self.path.name}::{self.name}"
