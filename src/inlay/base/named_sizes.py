"""Sizes of dims by name, as people write them on a command line and in options."""

from __future__ import annotations

from collections.abc import Sequence

from inlay.base.diagnostics import error


def named_sizes(texts: Sequence[str], flag: str = "--typical") -> dict[str, int]:
    """Return sizes by name from `NAME=SIZE`.

    Args:
        texts: as they were written.
        flag: behind which they were.

    Raises:
        CompileError: `option.bad-value`.
    """
    found: dict[str, int] = {}
    for text in texts:
        name, sign, size = text.rpartition("=")
        if not sign or not name or not (size.isascii() and size.isdigit() and len(size) < 20):
            raise error("option.bad-value", f"found {flag} {text}, needed NAME=SIZE")
        if found.setdefault(name, int(size)) != int(size):
            raise error("option.bad-value", f"found two sizes of {name}: {found[name]} and {size}")
    return found
