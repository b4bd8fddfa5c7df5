from __future__ import annotations

import importlib
import sys
import textwrap
from pathlib import Path

import pytest

from inlay.base.diagnostics import CompileError, InternalError
from inlay.passes.discover import pass_table, passes_named

GOOD = """
    from inlay.passes.contract import Pass
    PASS = Pass(__name__, lambda module, context: module, "nothing")
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Makes a package of pass files; its name is new each time, so nothing is cached."""
    folder = tmp_path / f"passes_{tmp_path.name}"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))

    def add(**files):
        for name, text in files.items():
            (folder / f"{name}.py").write_text(textwrap.dedent(text))
        importlib.invalidate_caches()
        return folder.name

    return add


def test_the_name_of_a_file_is_the_name_of_its_pass_and_it_is_read_when_asked_for(package):
    name = package(turn_over=GOOD, broken="raise RuntimeError", _shared="")
    helpers = importlib.import_module(name).__path__[0] + "/helpers"
    Path(helpers).mkdir()
    (Path(helpers) / "__init__.py").write_text("")
    table = pass_table(name)
    assert list(table) == ["broken", "turn-over"]
    assert f"{name}.turn_over" not in sys.modules
    assert table["turn-over"].name == "turn-over"


def test_lists_of_names_take_both_spellings_and_keep_their_order(package):
    table = pass_table(package(turn_over=GOOD, stand_still=GOOD))
    found = passes_named("turn_over, stand-still,turn-over", [table])
    assert [p.name for p in found] == ["turn-over", "stand-still", "turn-over"]


def test_an_unknown_name_gives_near_names(package):
    table = pass_table(package(turn_over=GOOD))
    with pytest.raises(CompileError, match="turn-over") as caught:
        passes_named("turn-ovre", [table])
    assert caught.value.ids == ("name.unknown",)


def test_a_file_without_a_record_or_with_anothers_is_our_fault(package):
    table = pass_table(
        package(empty="", copied="from inlay.passes.contract import Pass\nPASS = Pass('x.other', None, '')")
    )
    with pytest.raises(InternalError, match="defines its record as PASS"):
        table["empty"]
    with pytest.raises(InternalError, match="made with __name__"):
        table["copied"]
