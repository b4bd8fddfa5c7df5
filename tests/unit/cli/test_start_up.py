"""What a command imports before it does its work: those who wait for a prompt wait for imports."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import inlay
from tests.unit.test_api import SRC, tiny_model

COMPILER = "inlay.api inlay.pipeline.compile inlay.ir inlay.ops inlay.loop inlay.codegen onnx llvmlite"
PARSERS_OF_METADATA = "importlib.metadata email"

_SCRIPT = """
import json, sys
from inlay.cli.main import main
try:
    code = main(sys.argv[1:])
except SystemExit as end:
    code = end.code
json.dump(sorted(sys.modules), sys.stderr)
sys.exit(code)
"""


def imported_by(*words: str) -> set[str]:
    """Return the modules that a command line leaves imported in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, *words],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(SRC), "PATH": "/usr/bin:/bin", "HOME": "/nonexistent"},
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stderr))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("start-up")
    model = tiny_model(path / "tiny.onnx")
    inlay.compile(model, cache=str(path / "cache")).save(path / "tiny.inlay")
    return path


@pytest.mark.parametrize("words", ["--help", "errors", "targets"])
def test_what_needs_no_arrays_imports_neither_numpy_nor_the_compiler(words):
    imported = imported_by(words)
    assert imported.isdisjoint(f"numpy {COMPILER} {PARSERS_OF_METADATA}".split())


def test_help_of_a_command_imports_no_compiler():
    assert imported_by("run", "--help").isdisjoint(f"{COMPILER} {PARSERS_OF_METADATA}".split())


def test_running_an_executable_imports_no_compiler(folder):
    imported = imported_by("run", str(folder / "tiny.inlay"))
    assert "inlay.runtime.session" in imported
    assert imported.isdisjoint(f"{COMPILER} {PARSERS_OF_METADATA}".split())


def test_compiling_what_is_cached_imports_no_llvm(folder):
    imported = imported_by("run", str(folder / "tiny.onnx"), "--cache", str(folder / "cache"), "--json")
    assert "inlay.pipeline.compile" in imported
    assert "llvmlite" not in imported
