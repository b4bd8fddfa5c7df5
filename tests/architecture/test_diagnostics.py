"""Every diagnostic id that the sources can raise has an entry in the catalog."""

from __future__ import annotations

import ast
import functools
import re

from inlay.base.catalog.table import entries, find, page
from tests.architecture.sources import modules, nodes, place

ID = re.compile(r"[a-z][a-z0-9]*\.[a-z0-9]+(?:-[a-z0-9]+)*")
# A call whose name says that it makes a finding; ids also reach these through helpers.
MAKES_FINDING = re.compile(r"error|unsupported|warn|diagnostic|finding|fail|refus|report|reject", re.I)


@functools.cache
def raised() -> dict[str, str]:
    """Return the ids in the sources, each with the first place that has it."""
    known = {id.partition(".")[0] for id in entries()}
    found: dict[str, str] = {}
    for path in modules():
        if "catalog" in path.parts:
            continue
        for node in nodes(path):
            if not isinstance(node, ast.Call):
                continue
            makes = bool(MAKES_FINDING.search(_name(node.func)))
            first = [*node.args[:2], *(k.value for k in node.keywords if k.arg == "id")]
            for value in first:
                text = value.value if isinstance(value, ast.Constant) else None
                if isinstance(text, str) and ID.fullmatch(text):
                    if makes or (text.split(".")[0] in known and "-" in text):
                        found.setdefault(text, f"{place(path)}:{node.lineno}")
    return found


def _name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def test_every_raised_id_has_an_entry() -> None:
    missing = [f"{where}: {id}" for id, where in sorted(raised().items()) if find(id) is None]
    assert not missing, "add these to src/inlay/base/catalog:\n" + "\n".join(missing)


def test_the_search_finds_ids() -> None:
    assert {"parse.expected", "option.unknown", "name.unknown"} <= set(raised())


def test_entries_say_something() -> None:
    for id, entry in entries().items():
        assert ID.fullmatch(id), id
        assert entry.title[:1].islower(), id
        assert not entry.title.endswith("."), id
        assert len(entry.explanation) > 20, id
        assert entry.remedy, id
        assert entry.explanation in page(entry)
        assert entry.remedy in page(entry)
