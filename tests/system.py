"""Parts of the system that some tests need: where one is absent they skip, and name its package."""

from __future__ import annotations

import functools
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from inlay.runtime.drivers import zeromq_library

PACKAGES = {"gcc": "gcc", "cc": "gcc", "objcopy": "binutils", "nm": "binutils", "qemu-aarch64": "qemu-user"}
"""Commands, and what has them on Debian."""


def absent(*commands: str) -> str:
    """Return why tests that need commands skip; empty where all are there."""
    missing = [c for c in commands if shutil.which(c) is None]
    return ", ".join(f"no {c} (package {PACKAGES[c]})" for c in missing)


def needs(*commands: str) -> pytest.MarkDecorator:
    """Return a mark for tests that need commands."""
    return pytest.mark.skipif(bool(absent(*commands)), reason=absent(*commands))


def need(*commands: str) -> None:
    """Skip the test that runs where a command is absent."""
    if reason := absent(*commands):
        pytest.skip(reason)


@functools.cache
def lacks_sanitizer(kinds: str) -> str:
    """Return why the C compiler builds nothing with sanitizers (`address,undefined`); empty where it does."""
    if reason := absent("gcc"):
        return reason
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "empty.c").write_text("int main(void) { return 0; }\n")
        command = ["gcc", f"-fsanitize={kinds}", "empty.c", "-o", "empty"]
        done = subprocess.run(command, check=False, capture_output=True, cwd=folder)
    names = {"address": "libasan", "undefined": "libubsan", "thread": "libtsan"}
    wanted = ", ".join(names.get(kind, kind) for kind in kinds.split(","))
    return f"the C compiler has no sanitizers (packages {wanted})" if done.returncode else ""


def need_sanitizer(kinds: str) -> None:
    """Skip the test that runs where the C compiler has no such sanitizers."""
    if reason := lacks_sanitizer(kinds):
        pytest.skip(reason)


def need_zeromq() -> None:
    """Skip the test that runs where pyzmq, which has the library, is not installed."""
    if zeromq_library() is None:
        pytest.skip("no libzmq (package pyzmq)")
