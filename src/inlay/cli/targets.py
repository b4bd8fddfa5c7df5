"""`inlay targets`: what there is, by name: boards, passes, operators."""

from __future__ import annotations

import argparse

from inlay.base.diagnostics import UnsupportedError
from inlay.cli._command import Command, Output
from inlay.machine.board import board_names, find_board
from inlay.machine.target import host
from inlay.ops.table import table
from inlay.passes.discover import pass_table


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--operators", action="store_true", help="list operators too")
    parser.add_argument("--passes", action="store_true", help="list passes too")


def _run(arguments: argparse.Namespace, output: Output) -> int:
    boards = [find_board(name) for name in board_names()]
    output.say("boards:")
    for board in boards:
        devices = ", ".join(f"{d.name} ({d.arch})" for d in board.devices)
        output.say(f"  {board.name:12} {board.summary}; devices: {devices}")
    try:
        native = host()
        described = f"{native.triple}, {native.cpu}, {native.vector_bytes * 8}-bit vectors"
    except UnsupportedError as failure:
        described = failure.diagnostics[0].message
    output.say(f"this machine: {described}")
    record: dict[str, object] = {
        "boards": {b.name: [d.name for d in b.devices] for b in boards},
        "native": described,
    }
    if arguments.passes:
        passes = {
            found.name: found.summary
            for package in ("inlay.transforms", "inlay.placement", "inlay.memory")
            for found in all_passes(package)
        }
        output.say("passes:")
        for name, summary in passes.items():
            output.say(f"  {name:20} {summary}")
        record["passes"] = passes
    if arguments.operators:
        operators = {d.name: d.op.doc for d in table()}
        output.say("operators:")
        for name in sorted(operators):
            output.say(f"  {name:20} {operators[name]}")
        record["operators"] = operators
    output.record(**record)
    return 0


def all_passes(package: str):  # noqa: ANN201
    """Return the passes of a package; files that define none are helpers."""
    found = pass_table(package)
    return [found[name] for name in found if package != "inlay.memory" or name != "lifetimes"]


COMMAND = Command("list boards, and what this machine is", _arguments, _run)
