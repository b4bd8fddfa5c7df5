"""`inlay opt FILE --passes a,b,c`: a program in text form through named passes, to text."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from inlay.api import load
from inlay.base.files import write_text
from inlay.cli._command import Command, Output
from inlay.cli._externs import add_extern_argument, externs_in
from inlay.cli._files import check_outputs, files_read
from inlay.interp.tensor import evaluate_expr
from inlay.ir.printer import print_module
from inlay.ir.verify import check
from inlay.ops.table import table
from inlay.passes.contract import PassContext
from inlay.passes.discover import pass_table, passes_named
from inlay.passes.manager import Pipeline, run_pipeline
from inlay.pipeline.planning import meanings_of
from inlay.placement.plan_places import PlanOptions


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, help="a program (.inl) or a model (.onnx)")
    parser.add_argument("--passes", default="", metavar="A,B,C", help="passes, in order")
    add_extern_argument(parser)
    parser.add_argument("--board", default="host", help="the machine that passes plan for")
    parser.add_argument("-o", "--output", type=Path, help="where to write; by default, print")
    parser.add_argument("--remarks", action="store_true", help="print what passes decided and why")


def _run(arguments: argparse.Namespace, output: Output) -> int:
    check_outputs(arguments, arguments.output)
    operators = table()
    meanings = meanings_of(operators)
    tables = [pass_table(f"inlay.{p}") for p in ("placement", "memory", "transforms")]
    passes = passes_named(arguments.passes, tables) if arguments.passes else ()
    module = load(arguments.file, externs=externs_in(arguments.extern))
    context = PassContext(
        operators,
        lambda expression: evaluate_expr(expression, meanings),
        options={PlanOptions: PlanOptions(arguments.board)},
    )
    # The order is the user's: what the passes require is not checked, what they make is.
    pipeline = Pipeline(passes, frozenset())
    module = run_pipeline(pipeline, module, context, verify=check)
    text = print_module(module)
    if arguments.output is not None:
        write_text(arguments.output, text, inputs=[*files_read(arguments), *module.sources])
    else:
        output.show(text)
    for finding in context.diagnostics.diagnostics:
        print(finding, file=sys.stderr)
    if arguments.remarks:
        for remark in context.remarks.all:
            place = f"{remark.span}: " if remark.span else ""
            output.say(f"// {remark.pass_name}: {place}{remark.message}")
    output.record(
        text=text,
        passes=[p.name for p in passes],
        remarks=[
            {"pass": r.pass_name, "decision": r.decision, "reason": r.reason, "message": r.message}
            for r in context.remarks.all
        ],
    )
    return 0


COMMAND = Command(_arguments, _run)
