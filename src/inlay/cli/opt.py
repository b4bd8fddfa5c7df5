"""`inlay opt FILE --passes a,b,c`: a program in text form through named passes, to text."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from inlay.analysis.blocks import is_anf
from inlay.api import load
from inlay.base.diagnostics import error
from inlay.base.files import write_text
from inlay.base.registry import unknown_name
from inlay.cli import _lists
from inlay.cli._command import Command, Output
from inlay.cli._effects import refuse
from inlay.cli._externs import add_extern_argument, externs_in
from inlay.cli._files import check_outputs, files_read
from inlay.codegen.backend_table import backend_of
from inlay.interp.tensor import evaluate_expr
from inlay.ir.module import Module
from inlay.ir.printer import print_module
from inlay.ir.verify import check
from inlay.ops.table import table
from inlay.passes.contract import PassContext, Property
from inlay.passes.discover import pass_table, passes_named
from inlay.passes.manager import Pipeline, order_fault, run_pipeline
from inlay.pipeline import build_kernels
from inlay.pipeline.building import build_options, explaining_options
from inlay.pipeline.options import PRECISIONS, PlaceOptions
from inlay.pipeline.planning import meanings_of, setting_of
from inlay.pipeline.route import LINK
from inlay.placement import plan_places
from inlay.placement.plan_places import PlanOptions
from inlay.transforms import round_operands, split_batch, unroll_loops
from inlay.transforms.round_operands import PrecisionOptions

_HINTS = {
    Property.ANF: "put to-anf before it",
    Property.EXPLICIT_STORAGE: "put explicit-alloc before it",
    Property.FUSED: "put fuse-ops before it",
    Property.LOWERED: "put fuse-ops,build-kernels before it",
}
"""How what a pass requires comes about."""

_FOR_BOARDS = (plan_places, unroll_loops, split_batch, build_kernels)
"""Passes that depend on the board."""


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, help="a program (.inl) or a model (.onnx, .tflite)")
    parser.add_argument("--passes", default="", metavar="A,B,C", help="passes, in order")
    add_extern_argument(parser)
    parser.add_argument("--board", default="host", help="the machine that passes plan for")
    parser.add_argument("--precision", choices=PRECISIONS, default=PRECISIONS[0], help="for round-operands")
    parser.add_argument("-o", "--output", type=Path, help="where to write; by default, print")
    parser.add_argument("--remarks", action="store_true", help="print what passes decided and why")


def _context(board: str, *, builds: bool) -> PassContext:
    """Return what passes are given that are for a board."""
    setting = setting_of(PlaceOptions(board=board))
    machine, context = setting.board, setting.context.with_options(PlanOptions(board, setting.board))
    if not builds:
        return context
    options = explaining_options(setting)
    if backend_of(machine, machine.host.name) is None:
        return context.with_options(*options)
    return context.with_options(*options, build_options(setting))


def _run(arguments: argparse.Namespace, output: Output) -> int:
    names = [name.strip().replace("_", "-") for name in arguments.passes.split(",")]
    builds = build_kernels.PASS.name in names
    users = [step.PASS.name for step in _FOR_BOARDS]
    neither = not set(users) & set(names)
    rounds = round_operands.PASS.name in names
    refuse(
        arguments,
        (neither, ("board",), f"without the pass {', '.join(users[:-1])} or {users[-1]}"),
        (not rounds, ("precision",), f"without the pass {round_operands.PASS.name}"),
    )
    check_outputs(arguments, arguments.output)
    tables = [pass_table(f"inlay.{p}") for p in ("placement", "memory", "pipeline", "transforms")]
    for name in filter(None, names):
        if name == LINK.name:
            message = f"found '{name}', which makes no module, needed passes"
            raise error("option.bad-value", message, hint="inlay compile runs it, behind the passes")
        if name not in (known := _lists.passes()):  # the folders hold helpers too
            raise unknown_name("pass", name, known)
    passes = passes_named(arguments.passes, tables)
    module = load(arguments.file, externs=externs_in(arguments.extern))
    if neither:
        operators = table()
        meanings = meanings_of(operators)
        context = PassContext(operators, lambda expression: evaluate_expr(expression, meanings))
    else:
        context = _context(arguments.board, builds=builds)
    if rounds:
        context = context.with_options(PrecisionOptions(arguments.precision))
    given = _held(module)
    fault = order_fault(passes, given)
    if fault is not None:
        needed = next(p for p in fault[0].requires if p in fault[1])
        raise error("option.pass-order", fault[1], hint=_HINTS.get(needed, ""))
    module = run_pipeline(Pipeline(passes, given), module, context, verify=check)
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


def _held(module: Module) -> frozenset[Property]:
    """Return what holds of a program as it was read."""
    held = {Property.TYPED}
    if is_anf(module):
        held.add(Property.ANF)
    if module.kernels:
        held |= {Property.LOWERED, Property.EXPLICIT_STORAGE}
    return frozenset(held)


COMMAND = Command(_arguments, _run)
