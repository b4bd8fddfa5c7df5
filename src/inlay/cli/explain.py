"""`inlay explain MODEL --board B`: what a compilation decides of places, kernels, loops, memory; and why."""

from __future__ import annotations

import argparse
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from inlay.api import explain
from inlay.base.diagnostics import error
from inlay.base.files import write_text
from inlay.base.options import add_arguments
from inlay.cli._certificates import add_certificate_argument, write_certificate
from inlay.cli._command import Command, Output
from inlay.cli._compiling import options_in
from inlay.cli._effects import refuse
from inlay.cli._explained import lines_of
from inlay.cli._externs import add_extern_argument, externs_in
from inlay.cli._files import check_outputs
from inlay.cli._numbers import integer
from inlay.pipeline.explain.certificates import certificates_of
from inlay.pipeline.explain.memory import MemoryExplanation
from inlay.pipeline.explain.views import View
from inlay.pipeline.options import PlaceOptions
from inlay.placement.explain.reasons import Explanation
from inlay.placement.explain.report import check_pattern, describe, matches
from inlay.runtime.native import MOST_THREADS
from inlay.viz.memory_svg import memory_svg


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, help="a model (.onnx, .tflite) or a program (.inl)")
    add_extern_argument(parser)
    parser.add_argument(
        "--view",
        choices=tuple(str(v) for v in View),
        default=str(View.PLACEMENT),
        help="what to show: where operations run, what becomes one kernel, how kernels are scheduled, where "
        "values live, or in what formats products are computed and constants stored",
    )
    parser.add_argument(
        "--at", default="", metavar="NODE", help="show all of that about one operation: names as in --pin"
    )
    parser.add_argument(
        "--all", action="store_true", help="show every kernel and copy, or border; every value in memory"
    )
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="F.svg",
        help="with --view memory: draw memory over time into a file that browsers show",
    )
    add_certificate_argument(parser, "with --view memory: ")
    parser.add_argument("--op", default="", metavar="PATTERN", help="show these kernels: names as in --pin")
    parser.add_argument(
        "--threads",
        type=integer(1, MOST_THREADS),
        help="threads that the host's kernels are predicted for; all processors by default",
    )
    add_arguments(parser, PlaceOptions)


def _run(arguments: argparse.Namespace, output: Output) -> int:
    refuse(
        arguments,
        (
            bool(arguments.at),
            ("view", "all", "op", "output", "certificate"),
            "beside --at, which shows all about one operation",
        ),
        (arguments.all, ("op",), "beside --all, which shows every kernel"),
        (arguments.view != View.PLACEMENT, ("op",), f"with --view {arguments.view}"),
        (
            arguments.view != View.MEMORY and not arguments.at,
            ("plan", "budget", "output", "certificate"),
            f"with --view {arguments.view}: it is about memory",
        ),
        (
            arguments.view not in (View.LOOPS, View.MEMORY) and not arguments.at,
            ("batch",),
            f"with --view {arguments.view}: it is about kernels",
        ),
        (
            arguments.view == View.PLACEMENT and not arguments.at,
            ("tuned",),
            f"with --view {arguments.view}: it is about kernels",
        ),
    )
    if arguments.output is not None:
        _check_picture(arguments)
    check_outputs(arguments, arguments.output, arguments.certificate)
    options = options_in(PlaceOptions, arguments)
    choices: dict[str, Any] = {field.name: getattr(options, field.name) for field in fields(options)}
    choices |= {"threads": arguments.threads, "externs": externs_in(arguments.extern)}
    view: str = arguments.view
    found = explain(arguments.model, view=view, at=str(arguments.at), **choices)
    record = found.to_json()
    if isinstance(found, Explanation):
        if arguments.op:
            check_pattern(found, arguments.op)
            record["operations"] = [asdict(o) for o in found.operations if matches(o, arguments.op)]
        lines = describe(found, everything=arguments.all, pattern=arguments.op)
    else:
        lines = lines_of(found, everything=arguments.all)
    for line in lines:
        output.say(line)
    if arguments.output is not None:
        assert isinstance(found, MemoryExplanation), "nothing else is drawn"
        write_text(arguments.output, memory_svg(found), inputs=[str(arguments.model)])
        output.say(f"drawn in {arguments.output}")
    if arguments.certificate is not None:
        assert isinstance(found, MemoryExplanation), "nothing else has a certificate"
        made = certificates_of(found)
        for line in write_certificate(
            arguments.certificate, made.plans, made.without, [str(arguments.model)], output
        ):
            output.say(line)
    output.record(**record)
    return 0


def _check_picture(arguments: argparse.Namespace) -> None:
    """Say early that no picture can be written there.

    Raises:
        CompileError: `option.bad-value` for what is no name of a picture.
    """
    if arguments.output.suffix.lower() != ".svg":
        found = f"found --output {arguments.output}, needed a name that ends in .svg"
        raise error("option.bad-value", found, hint="--json prints the same facts as data")


COMMAND = Command(_arguments, _run)
