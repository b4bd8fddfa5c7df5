"""`inlay explain MODEL --board B`: where each operation runs, why, and why not elsewhere."""

from __future__ import annotations

import argparse
from pathlib import Path

from inlay.api import load
from inlay.cli._command import Command, Output
from inlay.pipeline.explain import explanation
from inlay.placement.explain import describe


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, help="a model (.onnx) or a program (.inl)")
    parser.add_argument("--board", default="host", help="the machine, by name or as a .toml file")
    parser.add_argument(
        "--pin", action="append", default=[], metavar="PATTERN=DEVICE",
        help="put operations on a device: by name of operator or node, or @f for a function",
    )  # fmt: skip
    parser.add_argument(
        "--typical", action="append", default=[], metavar="NAME=SIZE", help="size to predict for"
    )
    parser.add_argument("--calibration", default="", help="measured costs, as `bench` writes them")


def _run(arguments: argparse.Namespace, output: Output) -> int:
    found = explanation(
        load(arguments.model),
        arguments.board,
        pins=tuple(arguments.pin),
        typical=tuple(arguments.typical),
        calibration=arguments.calibration,
    )
    for line in describe(found):
        output.say(line)
    output.record(**found.to_json())
    return 0


COMMAND = Command("say where each operation runs, why, and why not elsewhere", _arguments, _run)
