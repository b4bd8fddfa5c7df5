"""`inlay errors [ID]`: what a diagnostic means and what to do about it."""

from __future__ import annotations

import argparse

from inlay.base.catalog.table import entries, find, page
from inlay.base.registry import unknown_name
from inlay.cli._command import Command, Output


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", nargs="?", help="a diagnostic id; without one, all are listed")


def _run(arguments: argparse.Namespace, output: Output) -> int:
    if arguments.id is None:
        for entry in entries().values():
            output.say(f"{entry.id:32} {entry.title}")
        output.record(errors={e.id: e.title for e in entries().values()})
        return 0
    entry = find(arguments.id)
    if entry is None:
        raise unknown_name("diagnostic", arguments.id, entries())
    output.show(page(entry))
    output.record(
        id=entry.id,
        title=entry.title,
        explanation=entry.explanation,
        remedy=entry.remedy,
        example=entry.example,
    )
    return 0


COMMAND = Command(_arguments, _run)
