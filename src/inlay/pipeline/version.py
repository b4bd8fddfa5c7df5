"""What the code of a kernel depends on besides the kernel: this compiler, as installed.

Lowering, schedules and code generation take facts from other packages, so which files count is read
off their import statements. All of them stand at the head of a file, unindented, absolute and before
the first two empty lines (the linter and the formatter see to it, and a test), so that reading them
takes a regular expression and no parser.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
from pathlib import Path

_ROOTS = ("codegen/", "lower/", "ops/", "schedule/")
"""The packages that turn a group of operators into code."""

_CALLERS = ("pipeline/build_kernels.py", "pipeline/compile.py")
"""Who puts these together. What else they import is no part of it."""

_FORMS = ("transforms/_packings.py", "transforms/pack_weights.py")
"""Who says in which form products come to it."""

_IMPORT = re.compile(rb"^(?:from|import) (inlay[\w.]*)(?: import (\([^)]*\)|.*))?", re.MULTILINE)
_HEAD = 1 << 14
_NAME = re.compile(rb"(\w+)(?: as \w+)?")


@functools.cache
def lowering_version(root: Path = Path(__file__).parent.parent) -> str:
    """Return a text that changes when a file does that what is made of a kernel may depend on.

    Files are told apart by size and time of change, so that asking costs milliseconds: a cache that
    misses once too often does no harm.

    Args:
        root: the folder of the package.
    """
    digest = hashlib.blake2b(digest_size=16)
    for path, facts in sorted(lowering_files(root).items()):
        digest.update(f"{path} {facts.st_size} {facts.st_mtime_ns}\n".encode())
    return digest.hexdigest()


@functools.cache
def rules_version(root: Path = Path(__file__).parent.parent) -> str:
    """Return a text that changes when the content of a file does that makes code of kernels.

    For what is kept for long and goes from machine to machine; reading all files takes some 10 ms.

    Args:
        root: the folder of the package.
    """
    digest = hashlib.blake2b(digest_size=16)
    for path in sorted({*lowering_files(root), *_FORMS}):
        digest.update(f"{path}\n".encode())
        digest.update(hashlib.blake2b((root / path).read_bytes()).digest())
    return digest.hexdigest()


def lowering_files(root: Path) -> dict[str, os.stat_result]:
    """Return the files below a folder that lowering consists of or imports, directly or not."""
    top = str(root)
    known = {
        f"{folder[len(top) + 1 :]}/{name}" if folder != top else name
        for folder, _, names in os.walk(top)
        for name in names
        if name.endswith(".py")
    }
    found = {name: (root / name).stat() for name in _CALLERS if name in known}
    pending = [name for name in known if name.startswith(_ROOTS)]
    while pending:
        name = pending.pop()
        if name in found:
            continue
        file = os.open(f"{top}/{name}", os.O_RDONLY)
        found[name] = os.fstat(file)
        head = os.read(file, _HEAD).partition(b"\n\n\n")[0]
        os.close(file)
        for module, names in _IMPORT.findall(head):
            pending += _files(module.decode(), names, known)
    return found


def _files(module: str, names: bytes, known: set[str]) -> list[str]:
    """Return where an imported module is, and the modules that are imported from a package."""
    place = module[len("inlay.") :].replace(".", "/")
    if f"{place}.py" in known:
        return [f"{place}.py"]
    # The facade imports everything, and is not meant where a package is imported from it.
    found = [f"{place}/__init__.py"] if place else []
    for name in _NAME.findall(names):
        inside = f"{place}/{name.decode()}".lstrip("/")
        found += [f"{inside}.py", f"{inside}/__init__.py"]
    return [name for name in found if name in known]
