"""`inlay explain MODEL --board B`: where each operation runs, why, and why not elsewhere."""

from __future__ import annotations

import argparse
from dataclasses import asdict, fields
from pathlib import Path

from inlay.api import explain
from inlay.base.options import add_arguments
from inlay.cli._command import Command, Output
from inlay.cli._compiling import options_in
from inlay.cli._effects import refuse
from inlay.cli._externs import add_extern_argument, externs_in
from inlay.cli._numbers import integer
from inlay.pipeline.options import PlaceOptions
from inlay.placement.explain.report import check_pattern, describe, matches
from inlay.runtime.native import MOST_THREADS


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, help="a model (.onnx) or a program (.inl)")
    add_extern_argument(parser)
    parser.add_argument("--all", action="store_true", help="show every kernel and copy")
    parser.add_argument(
        "--op", default="", metavar="PATTERN", help="show these kernels: names as in --pin"
    )
    parser.add_argument(
        "--threads", type=integer(1, MOST_THREADS),
        help="threads that the host's kernels are predicted for; all processors by default",
    )  # fmt: skip
    add_arguments(parser, PlaceOptions)


def _run(arguments: argparse.Namespace, output: Output) -> int:
    refuse(arguments, (arguments.all, ("op",), "beside --all, which shows every kernel"))
    options = options_in(PlaceOptions, arguments)
    choices = {field.name: getattr(options, field.name) for field in fields(options)}
    found = explain(
        arguments.model, threads=arguments.threads, externs=externs_in(arguments.extern), **choices
    )
    if arguments.op:
        check_pattern(found, arguments.op)
    for line in describe(found, everything=arguments.all, pattern=arguments.op):
        output.say(line)
    record = found.to_json()
    if arguments.op:
        chosen = [asdict(o) for o in found.operations if matches(o, arguments.op)]
        record["operations"] = chosen
    output.record(**record)
    return 0


COMMAND = Command(_arguments, _run)
