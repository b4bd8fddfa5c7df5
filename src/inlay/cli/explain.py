"""`inlay explain MODEL --board B`: where each operation runs, why, and why not elsewhere."""

from __future__ import annotations

import argparse
from dataclasses import fields
from pathlib import Path

from inlay.api import explain
from inlay.base.options import add_arguments, arguments_layer, resolve
from inlay.cli._command import Command, Output
from inlay.cli._externs import add_extern_argument, externs_in
from inlay.pipeline.options import PlaceOptions
from inlay.placement.report import describe


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, help="a model (.onnx) or a program (.inl)")
    add_extern_argument(parser)
    parser.add_argument("--all", action="store_true", help="show every kernel and copy")
    parser.add_argument(
        "--op", default="", metavar="PATTERN", help="show these kernels: names as in --pin"
    )
    add_arguments(parser, PlaceOptions)


def _run(arguments: argparse.Namespace, output: Output) -> int:
    options = resolve(PlaceOptions, arguments_layer(arguments, PlaceOptions)).options
    choices = {field.name: getattr(options, field.name) for field in fields(options)}
    found = explain(arguments.model, externs=externs_in(arguments.extern), **choices)
    for line in describe(found, everything=arguments.all, pattern=arguments.op):
        output.say(line)
    output.record(**found.to_json())
    return 0


COMMAND = Command(_arguments, _run)
