"""Runs the route: a module in, a program and a report out."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from inlay.base.diagnostics import unsupported
from inlay.base.instrument import Instrument
from inlay.bytecode.program import RELATIONS, Program
from inlay.codegen.backend_table import backend_of, target_of, unavailable
from inlay.codegen.cache import ObjectCache
from inlay.codegen.interface import Backend, Generator, Request
from inlay.ir.expr import Function
from inlay.ir.kernel import Batch
from inlay.ir.module import Module
from inlay.ir.verify import check
from inlay.loop.func import LoopFunction
from inlay.lower.lower import lower
from inlay.lower.ops_to_loops import SampleBatch as TeBatch
from inlay.lower.ops_to_loops import ops_to_loops
from inlay.machine.board import Board
from inlay.machine.target import Target
from inlay.memory import read_first
from inlay.memory.choose_memories import MemoryOptions
from inlay.memory.plan_memory import plan_module
from inlay.ops.table import OperatorTable
from inlay.passes.manager import run_pipeline
from inlay.pipeline.batches import find_batches
from inlay.pipeline.build_kernels import build_kernels
from inlay.pipeline.devices import apart, device_part, off_host
from inlay.pipeline.externs import externs_of
from inlay.pipeline.memories import memories_of_program
from inlay.pipeline.options import CompileOptions
from inlay.pipeline.planning import check_code, meanings_of, setting_of
from inlay.pipeline.relations import relations_text
from inlay.pipeline.report import Report, count_kernels, count_operators
from inlay.pipeline.route import memory_pipeline, tensor_pipeline
from inlay.pipeline.version import lowering_version
from inlay.runtime.extern import Extern
from inlay.runtime.native import Callback
from inlay.runtime.trace import QUEUES
from inlay.schedule.choose import schedule_function
from inlay.vm.link import link


@dataclass(frozen=True, slots=True)
class Compilation:
    """What a compilation gives.

    Attributes:
        program: the executable as data.
        module: the last module: kernels, explicit storage.
        report: what was done.
        externs: the operators of the user that the program calls.
        functions: of this process, that are kernels of devices, by name.
    """

    program: Program
    module: Module
    report: Report
    externs: tuple[Extern, ...] = ()
    functions: Mapping[str, Callback] = field(default_factory=dict[str, Callback])


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
    folder = options.cache_folder
    cache = None if folder is None else ObjectCache(folder)
    backend, target, generator = _host(board, cache)
    # A device elsewhere is asked when the first of its kernels is lowered, if one is there.
    target_for = functools.cache(partial(target_of, board))
    meanings = meanings_of(operators)
    externs = externs_of(module)
    operator_counts, constant_bytes = count_operators(module)
    verify = check if options.verify else None
    module = run_pipeline(tensor_pipeline(), module, context, verify=verify)
    check_code(module, board)
    with instrument.span("build-kernels"):
        lower_here = _Lowering(operators, board, backend, target_for)
        lower_apart = {d: replace(lower_here, backend=b, device=d) for d, b in apart(board).items()}
        batches = find_batches(module, operators) if options.batch else None
        version = lowering_version()
        built = build_kernels(module, operators, meanings, lower_here, version, batches, lower_apart)
    module = run_pipeline(memory_pipeline(), built.module, context, verify=verify)
    with instrument.span("plan-memory"):
        module, plans = plan_module(module, context.options_for(MemoryOptions), overlap=options.overlap)
        if verify is not None:
            verify(module)
    with instrument.span("generate"):
        artifact = generator.compile(_counted(built.requests, instrument))
        part = device_part(board, built, target_for, cache)
    cached = {name: code.cached for name, code in artifact.kernels.items()}
    counts, size = count_kernels(module, cached, board.host.name), len(artifact.image.data)
    copies = context.remarks.of(read_first.PASS.name)
    report = Report(operator_counts, constant_bytes, *counts, plans, size, module.metadata, copies)
    with instrument.span("link"):
        program = link(
            module,
            artifact,
            target.triple,
            memories=memories_of_program(board),
            devices=part.devices,
            spaces=off_host(board),
            of_devices=part.kernels,
            properties={
                "report": json.dumps(report.to_json(), sort_keys=True),
                QUEUES: json.dumps(part.queues, sort_keys=True),
                RELATIONS: relations_text(module),
            },
            shapes=partial(generator.add_shapes, artifact.image),
        )
    return Compilation(program, module, report, externs, part.functions)


def _counted(requests: Sequence[Request], instrument: Instrument) -> list[Request]:
    """Return requests that tell the instrument how far generating has come."""

    def counted(index: int, request: Request) -> Request:
        def lower() -> LoopFunction:
            instrument.progress("kernels", index, len(requests))
            return request.lower()

        return replace(request, lower=lower)

    return [counted(index, request) for index, request in enumerate(requests)]


def _host(board: Board, cache: ObjectCache | None) -> tuple[Backend, Target, Generator]:
    """Return the back end of the host, what its code is made for, and what makes it.

    Raises:
        UnsupportedError: `target.no-generator`.
    """
    host = board.host.name
    backend, reason = backend_of(board, host), unavailable(board, host)
    if backend is not None and not reason:
        target = backend.target(board, host)
        generator = backend.generator(target, cache)
        if generator is not None:
            return backend, target, generator
        reason = f"code for {board.arch_of(host).name} cannot be that of a host"
    raise unsupported(
        "target.no-generator",
        f"found the architecture '{board.host.arch}' on board '{board.name}' for the host: {reason}",
        hint="`inlay targets` lists what can be compiled for",
    )


@dataclass(frozen=True, slots=True)
class _Lowering:
    """How groups become loops on a device; on the host where none is named."""

    operators: OperatorTable
    board: Board
    backend: Backend
    targets: Callable[[str], Target]
    device: str = ""

    def __call__(self, function: Function, name: str, batch: Batch | None) -> LoopFunction:
        many = None if batch is None else TeBatch(batch.count, batch.shared)
        found = self.operators.definition
        loops = ops_to_loops(function, found, name, many, in_place=not self.device)
        device = self.device or self.board.host.name
        target, arch = self.targets(device), self.board.arch_of(device)
        scheduled = schedule_function(loops, target, self.backend.rules(arch))
        return lower(scheduled, target, self.backend.hooks(arch))
