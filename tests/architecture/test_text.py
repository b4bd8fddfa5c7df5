"""What every file owes its readers: docstrings, no paths of one machine."""

from __future__ import annotations

import ast
import re

from tests.architecture.sources import PACKAGE, ROOT, modules, place, tracked, tree

LARGE = 200_000
# Spelled in pieces, so that this file does not find itself.
FOREIGN = re.compile(
    r"(?<![\w.$}/])/(?:"
    "home|root|Users|opt|work"
    r")/[\w.-]+"
    "|"
    "pypi"
    r"\.org|files\."
    "pythonhosted"
    "|"
    "index"
    "-url"
)


def test_every_module_has_a_docstring() -> None:
    missing = [place(path) for path in modules() if not ast.get_docstring(tree(path))]
    assert not missing, "\n".join(missing)


def test_no_text_names_the_place_where_it_was_written() -> None:
    found: list[str] = []
    for path in tracked():
        if path.name == "LICENSE":
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            hit = FOREIGN.search(line)
            if hit:
                found.append(f"{place(path)}:{number}: {hit.group()}")
    assert not found, "\n".join(found)


def test_links_between_documents_lead_somewhere() -> None:
    link = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
    broken = [
        f"{place(path)}: {target}"
        for path in tracked()
        if path.suffix == ".md"
        for target in link.findall(path.read_text(encoding="utf-8"))
        if "://" not in target and not (path.parent / target).exists()
    ]
    assert not broken, "\n".join(broken)


def test_todo_comments_have_a_ticket() -> None:
    mark = re.compile(r"(?:#|//|/\*)\s*(?:TO" + r"DO|FIX" + r"ME|XXX)(?!\(#\d+\))")
    found = [
        f"{place(path)}:{number}"
        for path in tracked()
        if path.suffix in (".py", ".c", ".h")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if mark.search(line)
    ]
    assert not found, "\n".join(found)


def test_unit_tests_stand_in_folders_named_like_packages() -> None:
    unit = ROOT / "tests" / "unit"
    folders = {path.parent.relative_to(unit) for path in unit.rglob("test_*.py")}
    stray = [folder.as_posix() for folder in folders if not (PACKAGE / folder).is_dir()]
    assert not stray, "no package of that name: " + ", ".join(sorted(stray))


def test_tracked_files_are_small() -> None:
    """Larger data is generated, or read from the shared folder."""
    large = [f"{place(p)}: {p.stat().st_size} bytes" for p in tracked() if p.stat().st_size > LARGE]
    assert not large, "\n".join(large)
