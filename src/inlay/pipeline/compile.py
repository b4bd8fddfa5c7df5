"""Runs the route: a module in, a program and a report out."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from inlay.base.diagnostics import unsupported
from inlay.base.instrument import Instrument
from inlay.bytecode.program import RELATIONS, Program
from inlay.codegen.cache import ObjectCache
from inlay.codegen.interface import Request
from inlay.codegen.llvm_generator import LlvmGenerator
from inlay.ir.expr import Function
from inlay.ir.kernel import Batch
from inlay.ir.module import Module
from inlay.ir.verify import check
from inlay.loop.func import LoopFunction
from inlay.lower.lower import lower
from inlay.lower.ops_to_loops import Batch as TeBatch
from inlay.lower.ops_to_loops import ops_to_loops
from inlay.machine.board import NATIVE, Board
from inlay.machine.target import Target, host
from inlay.memory import read_first
from inlay.memory.plan_memory import plan_module
from inlay.ops.table import OperatorTable
from inlay.passes.manager import run_pipeline
from inlay.pipeline.batches import find_batches
from inlay.pipeline.build_kernels import LowerPrimitive, build_kernels
from inlay.pipeline.devices import away, device_part, rules_for, target_of
from inlay.pipeline.externs import externs_of
from inlay.pipeline.options import CompileOptions
from inlay.pipeline.planning import check_code, meanings_of, setting_of
from inlay.pipeline.relations import relations_text
from inlay.pipeline.report import Report, count_kernels, count_operators
from inlay.pipeline.route import memory_pipeline, tensor_pipeline
from inlay.pipeline.version import lowering_version
from inlay.runtime.extern import Extern
from inlay.runtime.trace import QUEUES
from inlay.schedule.choose import RULES, Rule, schedule_function
from inlay.vm.link import link


@dataclass(frozen=True, slots=True)
class Compilation:
    """What a compilation gives.

    Attributes:
        program: the executable as data.
        module: the last module: kernels, explicit storage.
        report: what was done.
        externs: the operators of the user that the program calls.
    """

    program: Program
    module: Module
    report: Report
    externs: tuple[Extern, ...] = ()


def compile_module(
    module: Module, options: CompileOptions, instrument: Instrument, threads: int | None = None
) -> Compilation:
    """Compile a module for a board; `threads` are those that the host's kernels are predicted for.

    Raises:
        CompileError, UnsupportedError: what passes and stages say of the program.
        RunError: `run.device-absent` where a device that must be asked does not answer.
    """
    setting = setting_of(options, instrument, threads=threads)
    board, operators, context = setting.board, setting.operators, setting.context
    target = _target(board)
    # A device elsewhere is asked when the first of its kernels is lowered, if one is there.
    target_for = functools.cache(partial(target_of, board))
    meanings = meanings_of(operators)
    externs = externs_of(module)
    operator_counts, constant_bytes = count_operators(module)
    verify = check if options.verify else None
    module = run_pipeline(tensor_pipeline(), module, context, verify=verify)
    check_code(module, board)
    with instrument.span("build-kernels"):
        lower_away = _lowerings_away(operators, board, target_for)
        lower_here = _lowering(operators, lambda: target)
        batches = find_batches(module, operators) if options.batch else None
        version = lowering_version()
        built = build_kernels(module, operators, meanings, lower_here, version, batches, lower_away)
    module = run_pipeline(memory_pipeline(), built.module, context, verify=verify)
    with instrument.span("plan-memory"):
        module, plans = plan_module(module, overlap=options.overlap)
        if verify is not None:
            verify(module)
    with instrument.span("generate"):
        folder = options.cache_folder
        generator = LlvmGenerator(target, None if folder is None else ObjectCache(folder))
        artifact = generator.compile(_counted(built.requests, instrument))
        part = device_part(
            board, built.device_requests, built.module.kernels,
            lambda device: replace(generator, target=target_for(device)),
        )  # fmt: skip
    cached = {name: code.cached for name, code in artifact.kernels.items()}
    counts, size = count_kernels(module, cached, board.host.name), len(artifact.image.data)
    copies = context.remarks.of(read_first.PASS.name)
    report = Report(operator_counts, constant_bytes, *counts, plans, size, module.metadata, copies)
    with instrument.span("link"):
        program = link(
            module,
            artifact,
            target.triple,
            memories=tuple(m.name for m in board.memories),
            devices=part.devices,
            homes=away(board),
            of_devices=part.kernels,
            properties={
                "report": json.dumps(report.to_json(), sort_keys=True),
                QUEUES: json.dumps(part.queues, sort_keys=True),
                RELATIONS: relations_text(module),
            },
            shapes=partial(generator.add_shapes, artifact.image),
        )
    return Compilation(program, module, report, externs)


def _counted(requests: Sequence[Request], instrument: Instrument) -> list[Request]:
    """Return requests that tell the instrument how far generating has come."""

    def counted(index: int, request: Request) -> Request:
        def lower() -> LoopFunction:
            instrument.progress("kernels", index, len(requests))
            return request.lower()

        return replace(request, lower=lower)

    return [counted(index, request) for index, request in enumerate(requests)]


def _target(board: Board) -> Target:
    if board.host.arch != NATIVE:
        raise unsupported(
            "target.no-generator",
            f"found the architecture '{board.host.arch}' on board '{board.name}', which no code "
            "generator supports",
            hint="`inlay targets` lists what can be compiled for",
        )
    return host()


def _lowerings_away(
    operators: OperatorTable, board: Board, target_for: Callable[[str], Target]
) -> dict[str, LowerPrimitive]:
    """Return how groups become loops on each device that is away, by its name."""
    return {
        d: _lowering(operators, partial(target_for, d), rules_for(board, d)) for d in away(board)
    }


def _lowering(
    operators: OperatorTable, target: Callable[[], Target], rules: Sequence[Rule] | None = None
) -> LowerPrimitive:
    """Return how groups become loops: for the host, or by rules for a device that is away."""

    def run(function: Function, name: str, batch: Batch | None) -> LoopFunction:
        many = None if batch is None else TeBatch(batch.count, batch.shared)
        in_place = rules is None
        loops = ops_to_loops(function, operators.definition, name, many, in_place=in_place)
        known = target()
        return lower(schedule_function(loops, known, rules or RULES), known)

    return run
