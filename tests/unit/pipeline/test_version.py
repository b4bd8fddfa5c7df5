"""The version of lowering changes with every file that lowering may take facts from."""

from __future__ import annotations

import ast
import os
import shutil
from pathlib import Path

import pytest

import inlay
from inlay.pipeline.version import lowering_files, lowering_version

ROOT = Path(inlay.__file__).parent


@pytest.fixture(scope="module")
def files() -> set[str]:
    return set(lowering_files(ROOT))


@pytest.mark.parametrize(
    "name",
    [
        "analysis/register_tiles.py",  # from which schedules take the sizes of tiles
        "arith/solve.py",
        "base/diagnostics.py",
        "ir/types.py",
        "loop/stmt.py",
        "lower/simplify.py",
        "machine/target.py",
        "ops/matmul.py",
        "schedule/rules/contraction.py",
        "codegen/llvm_math.py",
        "pipeline/compile.py",
    ],
)
def test_what_lowering_imports_counts(files, name):
    assert name in files


def test_what_it_does_not_import_does_not_count(files):
    assert not {f for f in files if f.startswith(("cli", "importers", "vm", "transforms", "placement"))}


def test_imports_are_read_as_the_parser_reads_them(files):
    """Every import of a file that counts leads to files that count."""
    for name in files - {"pipeline/compile.py", "pipeline/build_kernels.py"}:
        for node in ast.parse((ROOT / name).read_text()).body:
            if isinstance(node, ast.Import):
                modules = [a.name for a in node.names]
            elif isinstance(node, ast.ImportFrom):
                modules = [node.module, *(f"{node.module}.{a.name}" for a in node.names)]
            else:
                continue
            for module in modules:
                place = module.split(".")
                path = "/".join(place[1:]) + ".py"
                if place[0] == "inlay" and (ROOT / path).is_file():
                    assert path in files, f"{name} imports {module}"


@pytest.mark.parametrize(
    ("name", "counts"), [("analysis/register_tiles.py", True), ("ir/expr.py", True), ("cli/main.py", False)]
)
def test_a_change_changes_the_version(tmp_path, name, counts):
    copy = tmp_path / "inlay"
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    before = lowering_version(copy)
    facts = (copy / name).stat()
    os.utime(copy / name, ns=(facts.st_atime_ns, facts.st_mtime_ns + 1))
    lowering_version.cache_clear()
    assert (lowering_version(copy) != before) is counts
