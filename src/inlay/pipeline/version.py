"""What the code of a kernel depends on besides the kernel: this compiler, as installed."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

_PACKAGES = ("arith", "codegen", "loop", "lower", "machine", "ops", "schedule")
"""Where rules, schedules, lowering and code generation live."""


@functools.cache
def lowering_version() -> str:
    """Return a text that changes when a file of those packages does.

    Files are told apart by size and time of change, so that asking costs a millisecond: a cache that
    misses once too often does no harm.
    """
    root = Path(__file__).parent.parent
    digest = hashlib.blake2b(digest_size=16)
    for package in _PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            facts = path.stat()
            digest.update(f"{path.relative_to(root)} {facts.st_size} {facts.st_mtime_ns}\n".encode())
    return digest.hexdigest()
