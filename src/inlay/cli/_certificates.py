"""Certificates of memory plans: written to files, and what is said of them."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from inlay.base.files import write_text
from inlay.cli._command import Output
from inlay.cli._model import counted
from inlay.packing.certificate import certificate_text

PROGRAM = "python -m inlay.packing.check_certificate"


def add_certificate_argument(parser: argparse.ArgumentParser, where: str = "") -> None:
    """Declare the argument; `where` says when it means something."""
    parser.add_argument(
        "--certificate",
        type=Path,
        metavar="F.json",
        help=f"{where}write where everything is, and why it cannot take less, for `{PROGRAM}` to check",
    )


def write_certificate(
    path: Path,
    plans: Sequence[dict[str, Any]],
    without: Sequence[str],
    read: Iterable[Path | str],
    output: Output,
) -> list[str]:
    """Write certified plans, and return what is to be said of them: of which the bound is not shown.

    Args:
        path: the file.
        plans: as `packing.certificate` makes them.
        without: what has no certificate, because a dim has no size.
        read: files that must not be written over.
        output: what programs get.
    """
    write_text(path, certificate_text(plans), inputs=read)
    proved = sum(p["proved"] for p in plans)
    number = counted(len(plans), "plan")
    lines = [f"certificate of {number} in {path}; no less is possible: shown for {proved}"]
    for p in plans:
        if "unchecked" in p:
            found = f"{p['unchecked']:,} bytes, which a longer search found"
            lines.append(f"  for '{p['name']}' at least {p['bound']:,} bytes are shown, and not {found}")
    lines += [f"  none for '{name}': a dim in it has no size" for name in without]
    output.record(certificate={"plans": len(plans), "proved": proved, "without": list(without)})
    return lines
