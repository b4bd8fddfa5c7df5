"""Which files a command line reads, so that none is written over; looked at before work begins."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

from inlay.base.diagnostics import error
from inlay.base.files import check_output
from inlay.runtime.extern import Extern

_READ = ("model", "file", "inputs", "extern", "calibration", "tuned", "board", "calibrate", "key")
"""Arguments that may name files to read; a name of a board is a file where there is one."""


def files_read(arguments: argparse.Namespace, externs: Iterable[Extern] = ()) -> list[str]:
    """Return the files that a command line says to read, and the libraries of operators."""
    found: list[str] = []
    for name in _READ:
        value: Any = getattr(arguments, name, None)
        values = cast("list[Any]", value) if isinstance(value, list) else [value]
        found += [str(x) for x in values if x]
    return found + [e.c.library for e in externs if e.c is not None]


def check_outputs(arguments: argparse.Namespace, *outputs: Path | None) -> None:
    """Say of outputs, before anything is computed, that they cannot be written.

    Raises:
        CompileError: `save.over-input` where one is an input, or two are one file.
        OSError: one cannot be written.
    """
    seen: dict[str, Path] = {}
    for path in outputs:
        if path is None:
            continue
        check_output(path, files_read(arguments))
        place = os.path.realpath(path)
        if place in seen and (path.is_file() or not path.exists()):
            raise error(
                "save.over-input",
                f"found two outputs that are one file: {seen[place]} and {path}",
                hint="give each output its own name",
            )
        seen[place] = path
