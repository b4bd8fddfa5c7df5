"""The processor time of the tests, by part, beside the budget that `budget.toml` gives each part.

A part is a folder of `tests` or, below `tests/unit`, a package. What a test costs is the processor
time that its process and the processes it waited for used while it was set up, ran and was torn
down, so the sum does not depend on what else the machine does. With `pytest --budget` the sums are
printed at the end. They are for whoever adds tests: nothing fails because of them.
"""

from __future__ import annotations

import collections
import os
import tomllib
from collections.abc import Generator
from pathlib import Path

import pytest

BUDGETS = Path(__file__).with_name("budget.toml")
START = "start"
"""What is no test's: importing and collecting in each process, and handing tests out."""
FILES = 40
"""How many files are listed: where to look when a part is beyond its budget."""


def used() -> float:
    """Return the processor seconds of this process and of the children that it waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def part_of(nodeid: str) -> str:
    """Return the part of a test: `models` of `tests/models/test_x.py::f`, `unit/ir` of a unit test."""
    folders = nodeid.partition("::")[0].split("/")[1:-1]
    return "/".join(folders[: 2 if folders[:1] == ["unit"] else 1]) or "."


class Budget:
    """Measures each test where it runs, and sums up where the run is reported."""

    def __init__(self) -> None:
        self._mark = 0.0
        self._start = 0.0
        self._spent: collections.Counter[str] = collections.Counter()
        self._files: collections.Counter[str] = collections.Counter()

    def pytest_collection_finish(self) -> None:
        self._start = self._mark = used()

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, call: pytest.CallInfo) -> Generator:
        outcome = yield
        if call.when != "teardown":
            return
        now = used()
        # A report carries its attributes from the process of the test to the one that prints.
        report = outcome.get_result()
        report.processor_seconds = now - self._mark
        report.start_seconds = self._start  # with the first report of a process
        self._mark, self._start = now, 0.0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        seconds = getattr(report, "processor_seconds", 0.0)
        self._spent[part_of(report.nodeid)] += seconds
        self._spent[START] += getattr(report, "start_seconds", 0.0)
        self._files[report.nodeid.partition("::")[0]] += seconds

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        budgets = tomllib.loads(BUDGETS.read_text(encoding="utf-8"))
        terminalreporter.section("processor seconds by part")
        if terminalreporter.config.getoption("numprocesses", None):
            times = os.times()
            self._spent[START] += times.user + times.system  # of the process that hands out tests
        for part, seconds in self._spent.most_common():
            budget = budgets["parts"].get(part, budgets["other"])
            mark = "  beyond its budget" if seconds > budget else ""
            terminalreporter.line(f"{part:24}{seconds:8.1f} of {budget:4}{mark}")
        terminalreporter.line(f"{'all':24}{sum(self._spent.values()):8.1f}")
        terminalreporter.section("processor seconds of the longest files")
        for file, seconds in self._files.most_common(FILES):
            terminalreporter.line(f"{seconds:8.1f}  {file}")
