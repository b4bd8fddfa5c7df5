"""Tables of named things and of modules."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from inlay.base.diagnostics import CompileError
from inlay.base.registry import ModuleTable, module_names, nearest, unknown_name


def test_an_unknown_name_hints_at_the_nearest() -> None:
    names = ("fold-constants", "fuse-ops")
    close = unknown_name("pass", "fuse-op", names)
    assert close.ids == ("name.unknown",)
    assert close.diagnostics[0].hint == "did you mean fuse-ops?"
    far = unknown_name("pass", "zzz", names)
    assert far.diagnostics[0].notes == ("known: fold-constants, fuse-ops",)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    folder = tmp_path / "sample_passes"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "fold_all.py").write_text('"""Folds.\n\nAll."""\nPASS = "fold"\n')
    (folder / "broken.py").write_text("raise RuntimeError('imported')\n")
    (folder / "_shared.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "sample_passes"
    for name in [x for x in sys.modules if x.startswith("sample_passes")]:
        del sys.modules[name]


def test_modules_are_found_by_file_name_and_imported_on_use(package: str) -> None:
    assert module_names(package) == {"broken": "sample_passes.broken", "fold-all": "sample_passes.fold_all"}
    table = ModuleTable("pass", package, lambda module: module.PASS)
    assert sorted(table) == ["broken", "fold-all"]
    assert table.summary("fold-all") == "Folds."
    assert table.summary("broken") == ""
    assert "sample_passes.fold_all" not in sys.modules
    assert table["fold-all"] == "fold"
    assert table.get("fold-all") == "fold"
    assert table.get("absent") is None
    with pytest.raises(RuntimeError, match="imported"):
        table["broken"]
    for look in (table.__getitem__, table.summary):
        with pytest.raises(CompileError, match="did you mean fold-all"):
            look("fold-al")


def test_nearest_is_best_first() -> None:
    assert nearest("matmull", ["matmul", "batch-matmul", "add"])[0] == "matmul"
