"""Runs the route: a module in, a program and a report out."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from inlay.base.diagnostics import unsupported
from inlay.base.instrument import Instrument
from inlay.bytecode.program import RELATIONS, Program
from inlay.codegen.backend_table import backend_of, unavailable
from inlay.codegen.cache import ObjectCache
from inlay.codegen.interface import Artifact, Generator, Needs, Request
from inlay.ir.module import Module
from inlay.loop.func import LoopFunction
from inlay.machine.board import Board
from inlay.machine.target import Target
from inlay.passes.contract import PassContext
from inlay.pipeline.batches import own_batches
from inlay.pipeline.build_kernels import BuildOptions, host_requests
from inlay.pipeline.building import build_options, explaining_options
from inlay.pipeline.devices import DevicePart, copies_of, device_of_kernel, device_part, off_host, regions_of
from inlay.pipeline.externs import externs_of
from inlay.pipeline.generate import GenerateOptions, needs_of
from inlay.pipeline.hooking import check_hooks
from inlay.pipeline.leases import Leases
from inlay.pipeline.memories import memories_of_program
from inlay.pipeline.options import CompileOptions
from inlay.pipeline.planning import Setting, setting_of
from inlay.pipeline.relations import relations_text
from inlay.pipeline.report import Report, count_kernels, count_operators
from inlay.pipeline.required import check_required
from inlay.pipeline.route import LINK
from inlay.pipeline.running import Run, run_passes
from inlay.pipeline.state import state_properties
from inlay.pipeline.tuned_use import tuned_use
from inlay.runtime.calls import with_calls
from inlay.runtime.extern import Extern
from inlay.runtime.native import HAND_OFF, OWN_BATCHES, Callback
from inlay.runtime.promise import BUDGET
from inlay.runtime.streams import with_streams
from inlay.runtime.trace import QUEUES
from inlay.vm.link import link


@dataclass(frozen=True, slots=True)
class Compilation:
    """What a compilation gives.

    Attributes:
        program: the executable as data.
        module: the last module: kernels, explicit storage.
        report: what was done.
        run: of the passes: what they decided, which `pipeline.explain` makes readable.
        externs: the operators of the user that the program calls.
        functions: of this process, that are kernels of devices, by name.
    """

    program: Program
    module: Module
    report: Report
    run: Run
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
    setting = setting_of(options, instrument, threads)
    board, folder = setting.board, options.cache_folder
    cache = None if folder is None else ObjectCache(folder)
    target, generator = host_generator(board, cache)
    externs = externs_of(module)
    operator_counts, constant_bytes = count_operators(module)
    made: list[tuple[Artifact, DevicePart]] = []

    def make(kernels: Module, context: PassContext) -> dict[str, Needs]:
        code = generator.compile(_counted(host_requests(kernels), instrument))
        mine = needs_of(kernels, code)
        leases = Leases(kernels, mine, context, partial(regions_of, board))
        made.append((code, device_part(board, kernels, setting.targets, cache, leases)))
        return {**mine, **made[-1][1].needs}

    kernels = _building(setting, options), GenerateOptions(make, stays=partial(regions_of, board))
    dry = explaining_options(setting, cache, batch=options.batch)
    run = run_passes(module, setting, kernels, verify=options.verify, dry=dry)
    check_hooks(setting.context.remarks, options.required)
    module, (artifact, part) = run.module, made[-1]
    cached = {name: code.cached for name, code in artifact.kernels.items()}
    counts, size = count_kernels(module, cached, board.host.name), len(artifact.image.data)
    remarks = setting.context.remarks.all
    decided = remarks, run.promise, tuned_use(run)
    report = Report(operator_counts, constant_bytes, *counts, run.plans, size, module.metadata, *decided)
    with instrument.span(LINK.name):
        program = link(
            module,
            artifact,
            target.triple,
            memories=memories_of_program(board),
            devices=part.devices,
            spaces=off_host(board),
            of_devices={**part.kernels, **copies_of(module)},
            properties={
                "report": json.dumps(report.to_json(), sort_keys=True),
                QUEUES: json.dumps(part.queues, sort_keys=True),
                RELATIONS: relations_text(module),
                **state_properties(module),
                **({} if run.promise is None else {BUDGET: run.promise.to_json()}),
                HAND_OFF: str(target.hand_off_ns),
                **_of_batches(module, constant_bytes, target),
            },
            shapes=partial(generator.add_shapes, artifact.image),
        )
        program = with_streams(with_calls(program, part.calls, _owners(module, part)), part.streams)
    return Compilation(program, module, report, run, externs, part.functions)


def _of_batches(module: Module, constant_bytes: int, target: Target) -> dict[str, str]:
    """Return what the runtime is told of batches, where kernels have them."""
    if all(kernel.batch is None for kernel in module.kernels.values()):
        return {}
    return {OWN_BATCHES: str(own_batches(constant_bytes, target))}


def _building(setting: Setting, options: CompileOptions) -> BuildOptions:
    """Return what kernels are built with, once places have code and are those that are required."""
    building = build_options(setting, batch=options.batch, verify=options.verify)

    def check(planned: Module) -> None:
        assert building.check is not None, "who compiles asks whether there is code"
        building.check(planned)
        check_required(planned, setting.board, options.required, setting.operators)

    return replace(building, check=check)


def _owners(module: Module, part: DevicePart) -> dict[str, str]:
    """Return whose the kernels are that only this process has, by name."""
    return {n: device_of_kernel(module.kernels[n]) for n in part.functions if n not in part.streams}


def _counted(requests: Sequence[Request], instrument: Instrument) -> list[Request]:
    """Return requests that tell the instrument how far generating has come."""

    def counted(index: int, request: Request) -> Request:
        def lower() -> LoopFunction:
            instrument.progress("kernels", index, len(requests))
            return request.lower()

        return replace(request, lower=lower)

    return [counted(index, request) for index, request in enumerate(requests)]


def host_generator(board: Board, cache: ObjectCache | None) -> tuple[Target, Generator]:
    """Return what the code of the host is made for, and what makes it.

    Raises:
        UnsupportedError: `target.no-generator`.
    """
    host = board.host.name
    backend, reason = backend_of(board, host), unavailable(board, host)
    if backend is not None and not reason:
        target = backend.target(board, host)
        generator = backend.generator(target, cache)
        assert generator is not None, "a board whose host runs no program is refused before (`no_host`)"
        return target, generator
    raise unsupported(
        "target.no-generator",
        f"found the architecture '{board.host.arch}' on board '{board.name}' for the host: {reason}",
        hint="`inlay targets` lists what can be compiled for",
    )
