"""The runner of text tests, with a command line that stands in for ours."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import pytest

from tests.text_files import RunError, commands, execute


@pytest.fixture(autouse=True)
def echo(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prints its arguments, complains, and fails when told to."""

    def main(arguments: list[str]) -> int:
        print("got", *arguments[:1])
        print("complaint", file=sys.stderr)
        return int("fail" in arguments)

    module = types.ModuleType("inlay.cli.main")
    module.main = main
    monkeypatch.setitem(sys.modules, "inlay.cli.main", module)


def run(folder: Path, text: str) -> None:
    path = folder / "a.inl"
    path.write_text(text)
    for command in commands(path, folder / "t"):
        execute(command)


def test_what_is_printed_is_checked(tmp_path: Path) -> None:
    run(tmp_path, "// RUN: inlay opt %s | filecheck %s\n// CHECK: got opt\n")
    with pytest.raises(RunError, match="Couldn't match"):
        run(tmp_path, "// RUN: inlay opt %s | filecheck %s\n// CHECK: got run\n")
    with pytest.raises(RunError, match="got opt"):
        run(tmp_path, "// RUN: inlay opt %s | filecheck %s\n// CHECK-NOT: opt\n")


def test_status_is_checked(tmp_path: Path) -> None:
    run(tmp_path, "// RUN: not inlay fail\n")
    with pytest.raises(RunError, match="needed success"):
        run(tmp_path, "// RUN: inlay fail\n")
    with pytest.raises(RunError, match="needed failure"):
        run(tmp_path, "// RUN: not inlay opt\n")


def test_errors_are_seen_only_where_asked_for(tmp_path: Path) -> None:
    run(tmp_path, "// RUN: inlay x 2>&1 | filecheck %s\n// CHECK: complaint\n")
    with pytest.raises(RunError):
        run(tmp_path, "// RUN: inlay x | filecheck %s\n// CHECK: complaint\n")


def test_prefixes_tell_runs_apart(tmp_path: Path) -> None:
    run(
        tmp_path,
        "// RUN: inlay a | filecheck %s --check-prefix=A\n"
        "// RUN: inlay b | filecheck %s --check-prefix=B\n"
        "// A: got a\n// B: got b\n",
    )


def test_other_commands_are_refused(tmp_path: Path) -> None:
    for line in ("// RUN: rm x", "// RUN: inlay x | grep y", "nothing"):
        with pytest.raises(RunError):
            run(tmp_path, line)
