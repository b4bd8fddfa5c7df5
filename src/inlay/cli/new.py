"""`inlay new accelerator NAME`: a description to fill in, and a board that has the device."""

from __future__ import annotations

import argparse
import re
from importlib import resources
from pathlib import Path

from inlay.base.diagnostics import error
from inlay.base.files import write_text
from inlay.cli._command import Command, Output
from inlay.machine.board_file import board_text

_NAME = re.compile(r"[a-z][a-z0-9_]*")
_MODEL = "vanilla"
"""The board whose text a new one is made of."""


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kind", choices=("accelerator",), help="what to begin")
    parser.add_argument("name", help="as boards will call it: small letters, digits, underscores")
    parser.add_argument(
        "--output", type=Path, default=Path(), metavar="FOLDER", help="where; by default, here"
    )


def _run(arguments: argparse.Namespace, output: Output) -> int:
    name, folder = arguments.name, arguments.output
    if not _NAME.fullmatch(name):
        raise error("option.bad-value", f"found the name {name!r}, needed small letters, digits, underscores")
    if not folder.is_dir():
        raise error("load.missing", f"found no folder {folder}", hint=f"make it: mkdir {folder}")
    description, board = folder / f"{name}.py", folder / f"{name}.toml"
    if there := [str(p) for p in (description, board) if p.exists()]:
        raise error(
            "option.bad-value", f"found {' and '.join(there)}, which would be lost", hint="move it away"
        )
    write_text(description, _description(name))
    write_text(board, _board(name))
    output.say(f"{description}: the description, every section empty; docs/reference/accelerators.md")
    output.say(f"{board}: the processor of this machine, and the device")
    output.say(f"next: inlay check {description}, inlay explain MODEL --board {board}")
    output.record(description=str(description), board=str(board))
    return 0


def _description(name: str) -> str:
    text = (resources.files("inlay.accelerators") / "null.py").read_text(encoding="utf-8")
    title = "".join(word.capitalize() for word in name.split("_"))
    body = text[text.index("from inlay.accel.api") :]
    changes = {
        "Absent, Accelerator, CCalls, MHz, Param, Shared": "Accelerator, CCalls, MHz, Mock, Param, Shared",
        "class Null(": f"class {title}(",
        "A device that takes nothing.": "Say in one line what it does.",
        'Absent("it is a template, and takes nothing")': "Mock()",
    }
    for old, new in changes.items():
        assert old in body, f"the template has {old!r}"
        body = body.replace(old, new)
    return f'"""{name}: say what the device is, and what it does not have."""\n\n{body}'


def _board(name: str) -> str:
    text = board_text(_MODEL)
    changes = {
        f'loader = "{_MODEL}"': f'loader = "{name}.py"',
        f'"{_MODEL}"': f'"{name}"',
        "a model of an array of multiply-accumulate units in its memory": f"the accelerator {name}",
        "sums of products of bytes, a C call each": f"as {name}.py describes it",
    }
    for old, new in changes.items():
        assert old in text, f"the board of {_MODEL} has {old!r}"
        text = text.replace(old, new)
    return text


COMMAND = Command(_arguments, _run)
