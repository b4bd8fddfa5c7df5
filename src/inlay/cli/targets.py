"""`inlay targets [check FILE | show BOARD]`: what there is, by name: boards, passes, operators.

`check` reads the description of a board, says everything that is wrong with it, and else shows it.
`show` prints the file of a known board, to begin one's own from.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Mapping
from typing import Any

from inlay.base.diagnostics import UnsupportedError, error
from inlay.cli._command import Command, Output
from inlay.cli._effects import refuse
from inlay.machine.board import Board
from inlay.machine.board_file import board_names, board_text, find_board
from inlay.machine.device import Device
from inlay.machine.target import host


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action",
        nargs="?",
        choices=("check", "show"),
        help="check a board file, or print that of a known board",
    )
    parser.add_argument("file", nargs="?", help="the board file to check, or the name of a board")
    parser.add_argument("--operators", action="store_true", help="list operators too")
    parser.add_argument("--passes", action="store_true", help="list passes too")


def _run(arguments: argparse.Namespace, output: Output) -> int:
    is_list = arguments.action is None
    why = f"beside {arguments.action}: it belongs to the list of all targets"
    refuse(arguments, (not is_list, ("operators", "passes"), why))
    if not is_list:
        if arguments.file is None:
            hint = f"inlay targets {arguments.action} NAME"
            raise error("option.bad-value", "found no name of a board or file", hint=hint)
        if arguments.action == "show":
            text = board_text(arguments.file)
            output.show(text.rstrip())
            found = _detected(arguments.file, output)
            output.record(text=text, detected=found)
            return 0
        board: Board = _compiler_lists().find_usable(arguments.file)
        without_code: dict[str, str] = _compiler_lists().without_code(board)
        describe(board, without_code, output)
        output.record(board=board_record(board), without_code=without_code)
        return 0
    boards = [find_board(name) for name in board_names()]
    output.say("boards:")
    for board in boards:
        devices = ", ".join(_device_text(board, d) for d in board.devices)
        output.say(f"  {board.name:12} {board.summary}; devices: {devices}")
    try:
        native = host()
        described = f"{native.triple}, {native.cpu}, {native.vector_bytes * 8}-bit vectors"
        for what, kinds in (("dot", native.dot_kinds), ("matrix", native.matrix_kinds)):
            described += f", {what} products of {' '.join(k.name for k in kinds)}" if kinds else ""
    except UnsupportedError as failure:
        described = failure.diagnostics[0].message
    output.say(f"this machine: {described}")
    record: dict[str, object] = {"boards": {b.name: board_record(b) for b in boards}, "native": described}
    if arguments.passes:
        lists = _compiler_lists()
        passes, stages, route = lists.passes(), lists.stages(), lists.route()
        output.say("a compilation runs, in order:")
        for name in route:
            output.say(f"  {name:20} {(passes | stages)[name]}")
        output.say("passes besides:")
        for name in sorted(passes.keys() - set(route)):
            output.say(f"  {name:20} {passes[name]}")
        record |= {"passes": passes, "route": route}
    if arguments.operators:
        operators: dict[str, str] = _compiler_lists().operators()
        output.say("operators:")
        for name in sorted(operators):
            output.say(f"  {name:20} {operators[name]}")
        record["operators"] = operators
    output.record(**record)
    return 0


def _device_text(board: Board, device: Device) -> str:
    """Return a device in a list; where no code is made for it is known without the compiler."""
    described = "" if board.arch_of(device.name).generator else ", described only"
    return f"{device.name} ({device.arch}{described})"


def _detected(name: str, output: Output) -> list[str]:
    """Say, in comments, what the devices of a board that are here give instead of its guesses."""
    board = find_board(name)
    if not any(a.detect for a in board.archs):
        return []
    detect: Any = importlib.import_module("inlay.pipeline.detect")  # imports NumPy and the compiler
    board, found = detect.detected(board)
    for device in found:
        arch = board.arch_of(device.devices[0])
        speed, types = arch.speed, ", ".join(arch.dtypes or ("all",))
        say = (
            f"here, {device}",
            f"so '{arch.name}' counts with macs_per_ns = {speed.macs_per_ns:g},",
            f"elements_per_ns = {speed.elements_per_ns:g},",
            f"transcendentals_per_ns = {speed.transcendentals_per_ns:g}",
            f"element types: {types}",
        )
        output.show("\n" + "\n".join(f"# {line}" for line in say))
    if not found:
        output.show("\n# no such device was found here: the figures above serve for planning")
    return [str(device) for device in found]


def describe(board: Board, without_code: Mapping[str, str], output: Output) -> None:
    """Print the parts of a board, and for which devices no code is made."""
    output.say(f"{board.name}: {board.summary}")
    for d in board.devices:
        arch = board.arch_of(d.name)
        code = "described only" if d.name in without_code else f"code by {arch.generator}"
        shares = f", shares {d.shares}" if d.shares else ""
        host = ", the host" if d is board.host else ""
        output.say(f"  device {d.name} ({d.arch}; {code}{shares}{host}): {', '.join(d.memories)}")
    for m in board.memories:
        size = "unbounded" if m.bytes is None else f"{m.bytes} bytes"
        output.say(f"  memory {m.name}: {m.kind}, {size}" + (f", of {m.owner}" if m.owner else ""))
    for link in board.links:
        output.say(
            f"  link {link.source} -> {link.target} by {link.engine}: {link.bytes_per_ns:g} GB/s, "
            f"{link.latency_ns:g} ns"
        )
    for name, devices in board.hardware:
        output.say(f"  {' and '.join(devices)} share {name} and exclude each other")
    if board.unread:
        output.say(f"  for readers of the file alone, no plan reads it: {', '.join(board.unread)}")
    if without_code:
        output.say("  plans are made for all of it; one that uses these is explained and not compiled:")
    for device, reason in without_code.items():
        output.say(f"  {device}: {reason}")


def board_record(board: Board) -> dict[str, object]:
    """Return a board as plain data."""
    return {
        "summary": board.summary,
        "default": board.default_device,
        "devices": [
            {
                "name": d.name,
                "arch": d.arch,
                "memories": d.memories,
                "shares": d.shares,
                "generator": board.arch_of(d.name).generator,
                "loader": board.arch_of(d.name).loader,
            }
            for d in board.devices
        ],
        "memories": [
            {"name": m.name, "kind": m.kind, "bytes": m.bytes, "owner": m.owner} for m in board.memories
        ],
        "links": [{"from": x.source, "to": x.target, "engine": x.engine} for x in board.links],
    }


def _compiler_lists() -> Any:
    """Return what lists the parts of the compiler, which takes longer to import than all else."""
    return importlib.import_module("inlay.cli._lists")


COMMAND = Command(_arguments, _run)
