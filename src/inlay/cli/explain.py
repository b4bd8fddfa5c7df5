"""`inlay explain MODEL --board B`: where each operation runs and why; where each value lives."""

from __future__ import annotations

import argparse
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from inlay.api import explain, explain_memory
from inlay.arith.expr import Int
from inlay.base.options import add_arguments
from inlay.cli._command import Command, Output
from inlay.cli._compiling import options_in
from inlay.cli._effects import refuse
from inlay.cli._externs import add_extern_argument, externs_in
from inlay.cli._model import counted, size_text
from inlay.cli._numbers import integer
from inlay.memory.plan_memory import CONSTANTS
from inlay.pipeline.options import PlaceOptions
from inlay.placement.explain.report import check_pattern, describe, matches
from inlay.runtime.native import MOST_THREADS


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, help="a model (.onnx) or a program (.inl)")
    add_extern_argument(parser)
    parser.add_argument(
        "--view",
        choices=("placement", "memory"),
        default="placement",
        help="what to show: where operations run, or where values live",
    )
    parser.add_argument(
        "--all", action="store_true", help="show every kernel and copy; every value in memory"
    )
    parser.add_argument("--op", default="", metavar="PATTERN", help="show these kernels: names as in --pin")
    parser.add_argument(
        "--threads",
        type=integer(1, MOST_THREADS),
        help="threads that the host's kernels are predicted for; all processors by default",
    )
    add_arguments(parser, PlaceOptions)


def _run(arguments: argparse.Namespace, output: Output) -> int:
    in_memory = arguments.view == "memory"
    refuse(
        arguments,
        (arguments.all, ("op",), "beside --all, which shows every kernel"),
        (in_memory, ("op",), "with --view memory"),
    )
    options = options_in(PlaceOptions, arguments)
    choices = {field.name: getattr(options, field.name) for field in fields(options)}
    if in_memory:
        _memory(arguments, choices, output)
        return 0
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


def _memory(arguments: argparse.Namespace, choices: dict[str, Any], output: Output) -> None:
    found = explain_memory(
        arguments.model, threads=arguments.threads, externs=externs_in(arguments.extern), **choices
    )
    output.say(f"memory on {found.board.name}:")
    for plan in found.plans:
        output.say(f"  {plan.name}:")
        for part in plan.parts:
            pool = found.board.memory(part.memory) or found.board.memories[0]
            of = "" if pool.bytes is None else f" of {size_text(pool.bytes)}"
            number, unit = len(part.members), "constant" if plan.name == CONSTANTS else "buffer"
            gap = "" if part.block == part.bound else f", at least {_text(part.bound)} needed"
            output.say(
                f"    {pool.name} ({part.kind}): {_text(part.block)}{of} for {counted(number, unit)} "
                f"({_text(part.total)} unshared{gap})"
            )
            for name, offset, size in part.members if arguments.all else ():
                output.say(f"      {name or 'a constant'}: {_text(size)} at {offset}")
        for name, why in plan.counted:
            output.say(f"    {name}: while the program runs, for {why}")
    output.record(**found.to_json())


def _text(size: Int) -> str:
    return size_text(str(size) if size.value is None else size.value)


COMMAND = Command(_arguments, _run)
