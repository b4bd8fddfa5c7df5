"""What the running processor can do, so that code for another one is refused before it runs.

Feature names are those of LLVM. Linux gives its own names in `/proc/cpuinfo`; they are the same
but for punctuation, and for the few in `_LINUX_NAMES`. Where the system does not tell (not Linux),
nothing is refused.
"""

from __future__ import annotations

import functools
import platform
from collections.abc import Iterable
from pathlib import Path

from inlay.base.diagnostics import error
from inlay.bytecode.program import Target

_LINUX_NAMES = {
    "lzcnt": "abm", "sse3": "pni", "bmi": "bmi1", "rdrnd": "rdrand", "pclmul": "pclmulqdq",
    "sahf": "lahflm", "prfchw": "3dnowprefetch", "sha": "shani", "xsave": "xsave",
    "64bit": "lm", "neon": "asimd", "fullfp16": "asimdhp", "dotprod": "asimddp", "lse": "atomics",
    "fxsr": "fxsr", "x87": "fpu", "crc32": "sse42", "fparmv8": "fp",
}  # fmt: skip
_ARCHITECTURES = {"amd64": "x86_64", "arm64": "aarch64", "i686": "i386", "i586": "i386"}


def architecture() -> str:
    """Return the first part of the triple of this machine."""
    name = platform.machine().lower()
    return _ARCHITECTURES.get(name, name)


def _plain(name: str) -> str:
    return name.replace(".", "").replace("_", "").replace("-", "").lower()


@functools.cache
def features() -> frozenset[str] | None:
    """Return the features of this processor as Linux names them; None where it does not say."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("flags", "Features"):
            return frozenset(_plain(word) for word in value.split())
    return None


def missing(wanted: Iterable[str]) -> list[str]:
    """Return those of LLVM's feature names that this processor lacks."""
    known = features()
    if known is None:
        return []
    return [
        name for name in wanted if not {_plain(name), _LINUX_NAMES.get(_plain(name), "")} & known
    ]


def check_target(target: Target) -> None:
    """Refuse code that this machine cannot run.

    Raises:
        CompileError: `container.target`.
    """
    if not target.triple:
        return
    needed = target.triple.partition("-")[0]
    if _ARCHITECTURES.get(needed, needed) != architecture():
        raise error(
            "container.target",
            f"the executable holds code for {target.triple}, this machine is {architecture()}",
            hint="compile the model for this machine",
        )
    if lacking := missing(target.features):
        raise error(
            "container.target",
            "the executable needs CPU features that this machine lacks: " + ", ".join(lacking),
            hint="compile the model on this machine, or for fewer features",
        )
