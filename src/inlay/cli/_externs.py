"""`--extern FILE.py`: operators of the user, from a Python file that defines them.

The file is run like a program; every `inlay.extern(...)` bound to a name at its top is taken.
"""

from __future__ import annotations

import argparse
import runpy
from collections.abc import Sequence
from pathlib import Path

from inlay.base.diagnostics import CompileError, error
from inlay.base.span import Span
from inlay.runtime.extern import Extern


def add_extern_argument(parser: argparse.ArgumentParser) -> None:
    """Declare where operators of the user come from."""
    parser.add_argument(
        "--extern",
        action="append",
        default=[],
        type=Path,
        metavar="FILE.py",
        help="a Python file that defines operators with inlay.extern; it is run",
    )


def externs_in(files: Sequence[Path]) -> tuple[Extern, ...]:
    """Return the operators that files define, in order.

    Raises:
        CompileError: `load.missing`; `extern.file` where a file fails or defines none.
    """
    return tuple(e for file in files for e in _externs_in(file))


def _externs_in(file: Path) -> list[Extern]:
    if not file.is_file():
        what = "the folder" if file.is_dir() else "no file"
        raise error("load.missing", f"found {what} {file}, needed a Python file of operators")
    span = Span.named(str(file))
    try:
        names = runpy.run_path(str(file))
    except CompileError:
        raise
    except (Exception, SystemExit) as problem:
        raise error(
            "extern.file", f"running it raised {type(problem).__name__}: {problem}", span=span
        ) from problem
    found = list(dict.fromkeys(e for e in names.values() if isinstance(e, Extern)))
    if not found:
        raise error(
            "extern.file",
            "found no extern in it",
            span=span,
            hint="bind one to a name: my_op = inlay.extern('my_op', ...)",
        )
    return found
