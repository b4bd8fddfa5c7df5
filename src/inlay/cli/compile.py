"""`inlay compile MODEL -o X.inlay`: write an executable that needs no compiler to run."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from inlay.bytecode.writer import save
from inlay.cli._certificates import add_certificate_argument, write_certificate
from inlay.cli._command import Command, Output
from inlay.cli._effects import of_model, refuse
from inlay.cli._files import check_outputs, files_read
from inlay.cli._model import (
    add_model_arguments,
    compile_arguments,
    counted,
    describe_copies,
    describe_import,
    describe_placement,
    size_text,
)
from inlay.cli._progress import watched
from inlay.pipeline.explain.certificates import certificates_of
from inlay.pipeline.explain.memory import memory_of
from inlay.runtime.calls import owners_of


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_model_arguments(parser, meaning="a model (.onnx, .tflite) or a program (.inl)", runs=False)
    parser.add_argument("-o", "--output", type=Path, required=True, help="the file to write")
    add_certificate_argument(parser)
    parser.add_argument("--kernels", action="store_true", help="list every kernel")


def _run(arguments: argparse.Namespace, output: Output) -> int:
    refuse(arguments, *of_model(arguments))
    check_outputs(arguments, arguments.output, arguments.certificate)
    begun = time.perf_counter()
    with watched(quiet=output.as_json) as (instrument, kept):
        compiled = compile_arguments(arguments, instrument)
        with instrument.span("save"):
            read = [*files_read(arguments, compiled.externs), *compiled.module.sources]
            save(compiled.program, arguments.output, read)
    seconds = time.perf_counter() - begun
    facts = compiled.report.to_json()
    describe_import(arguments.model, facts, output)
    describe_placement(facts, output, all_kernels=arguments.kernels)
    describe_copies(facts, output)
    times = kept.durations()
    if arguments.timings:
        for name, ns in times.items():
            output.say(f"  {name:24}{ns / 1e6:10.1f} ms")
    if arguments.certificate is not None:
        made = certificates_of(memory_of(compiled.run))
        for line in write_certificate(arguments.certificate, made.plans, made.without, read, output):
            output.say(line)
    if owners := owners_of(compiled.program.properties):
        listed = ", ".join(dict.fromkeys(owners.values()))
        output.say(f"  runs only where `callbacks` are given: {counted(len(owners), 'kernel')} of {listed}")
    size = arguments.output.stat().st_size
    output.say(f"  {arguments.output}: {size_text(size)}, compiled in {seconds:.2f} s")
    output.record(
        model=str(arguments.model),
        output=str(arguments.output),
        bytes=size,
        seconds=seconds,
        report=facts,
        times={name: ns / 1e9 for name, ns in times.items()},
    )
    return 0


COMMAND = Command(_arguments, _run)
