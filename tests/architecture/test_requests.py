"""What the page of requests names exists, and each of its rows shows something or says why not."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from inlay.base.catalog.table import entries
from tests.architecture.sources import ROOT, tree

PAGE = ROOT / "docs" / "requests.md"
QUOTED = re.compile(r"`([^`]+)`")
TEST = re.compile(r"([\w/]+\.py)::(test_\w+)")
COMMAND = re.compile(r"inlay (\w+)")


def rows() -> list[list[str]]:
    """Return the cells of all rows, without the heads of tables."""
    lines = [x for x in PAGE.read_text(encoding="utf-8").splitlines() if x.startswith("|")]
    found = [[cell.strip() for cell in x.strip("|").split(" | ")] for x in lines]
    return [[*cells, ""][:3] for cells in found if cells[0] != "request" and not cells[0].startswith("---")]


def functions(path: Path) -> set[str]:
    return {n.name for n in ast.walk(tree(path)) if isinstance(n, ast.FunctionDef)}


def lacks(shown: str) -> str:
    """Return why nothing is shown by what a cell names, or nothing."""
    test, command = TEST.fullmatch(shown), COMMAND.fullmatch(shown)
    if test is not None:
        path = ROOT / "tests" / test[1]
        return "" if path.is_file() and test[2] in functions(path) else "is no test"
    if command is not None:
        return "" if (ROOT / "src" / "inlay" / "cli" / f"{command[1]}.py").is_file() else "is no command"
    if "/" in shown:
        return "" if any((base / shown).exists() for base in (ROOT, ROOT / "tests")) else "is no file"
    return "" if shown in entries() else "is no diagnostic"


def test_each_request_is_shown_by_what_there_is_or_has_a_reason() -> None:
    found = rows()
    assert len(found) > 100
    wrong: list[str] = []
    for asked, shown, missing in found:
        names = QUOTED.findall(shown)
        if shown == "`-`" and missing:
            continue
        if not names:
            wrong.append(f"{asked}: nothing shows it")
        wrong += [f"{asked}: {name} {why}" for name in names if (why := lacks(name))]
    assert not wrong, "\n".join(wrong)


def test_what_does_not_exist_is_found() -> None:
    assert lacks("unit/ir/test_text.py::test_nothing_of_the_kind") == "is no test"
    assert lacks("unit/ir/test_no_file.py::test_types") == "is no test"
    assert lacks("inlay nothing") == "is no command"
    assert lacks("docs/nothing.md") == "is no file"
    assert lacks("memory.nothing") == "is no diagnostic"
