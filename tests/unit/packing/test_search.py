"""Laws of the search in C, on more lists than Python could draw: `search_laws.c` says which."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.data import REPOSITORY
from tests.native import compiled, linked
from tests.system import needs

SOURCES = REPOSITORY / "src/inlay/packing/_ext"
LAWS = Path(__file__).with_name("search_laws.c")
FLAGS = ["-std=c99", "-O2", "-Wall", "-Wextra", "-Wshadow", "-I", str(SOURCES)]

pytestmark = needs("gcc")


@pytest.fixture(scope="module")
def laws():
    sources = [p for p in sorted(SOURCES.glob("*.c")) if p.name != "module.c"]
    return linked(compiled([*sources, LAWS], FLAGS), ["-O2"])


@pytest.mark.parametrize(
    ("law", "count"),
    [
        ("plans", 1_000),
        ("blocks", 20_000),
        ("exact", 1_000),
        pytest.param("plans", 1_000_000, marks=pytest.mark.slow),
        pytest.param("exact", 10_000, marks=pytest.mark.slow),
    ],
)
def test_laws_hold_on_drawn_lists(laws, law, count):
    done = subprocess.run([laws, law, str(count), str(count)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.returncode}: {done.stdout}"
    assert done.stdout == f"{count} lists\n"
