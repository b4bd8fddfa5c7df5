"""What ARCHITECTURE.md and the other pages name exists: files, packages, passes."""

from __future__ import annotations

import re

import pytest

from inlay.pipeline.route import ROUTE
from tests.architecture.sources import PACKAGE, ROOT

PAGES = ("ARCHITECTURE.md", "CONTRIBUTING.md", "README.md", "docs/glossary.md")
# `a/b.py`, `tests/unit`, `ops/<family>.py`: a placeholder stands for at least one file.
PATH = re.compile(r"`((?:[\w<>*.-]+/)+[\w<>*.-]*|[\w<>]+\.(?:py|md|toml|c))`")
LINK = re.compile(r"\]\(([^)#:]+)\)")


def exists(path: str) -> bool:
    pattern = re.sub(r"<\w+>", "*", path).rstrip("/")
    return any(any(base.glob(pattern)) for base in (ROOT, PACKAGE, PACKAGE / "pipeline"))


def named(page: str) -> list[str]:
    text = (ROOT / page).read_text(encoding="utf-8")
    made_by_users = {"docs/lessons/NN_name.py", ".venv/bin"}
    return [p for p in PATH.findall(text) if p not in made_by_users]


@pytest.mark.parametrize("page", PAGES)
def test_paths_that_a_page_names_exist(page: str) -> None:
    assert [p for p in named(page) if not exists(p)] == []


@pytest.mark.parametrize("page", PAGES)
def test_links_of_a_page_lead_somewhere(page: str) -> None:
    folder = (ROOT / page).parent
    text = (ROOT / page).read_text(encoding="utf-8")
    assert [x for x in LINK.findall(text) if not (folder / x).exists()] == []


def test_the_map_names_every_pass_of_the_route() -> None:
    chart = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    assert [p.name for p in ROUTE if f"`{p.name}`" not in chart] == []
