"""`inlay run MODEL`: compile a model, run it once, and say what happened."""

from __future__ import annotations

import argparse
import importlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

from inlay.base.files import write_text
from inlay.bytecode.program import FunctionBody, HostBody
from inlay.cli._arrays import write_arrays
from inlay.cli._command import Command, Output
from inlay.cli._effects import of_model, refuse
from inlay.cli._files import check_outputs
from inlay.cli._model import (
    add_input_arguments,
    add_model_arguments,
    arrays_record,
    describe_arrays,
    describe_import,
    describe_memory,
    describe_placement,
    inputs_of,
    prepare,
    run_once,
    size_text,
)
from inlay.cli._progress import watched
from inlay.runtime.session import Executable
from inlay.runtime.trace import Event, kernel_times, queue_names, table, timeline

_MOST_RUNS, _LONG_SECONDS = 5, 2.0
"""How often a program is run to say what it takes, unless that takes longer."""


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_model_arguments(parser)
    add_input_arguments(parser)
    parser.add_argument("--output", type=Path, metavar="Y.npz", help="where to write the outputs")
    parser.add_argument(
        "--trace", type=Path, metavar="T.json", help="write a timeline for Perfetto or Chrome"
    )
    parser.add_argument(
        "--profile", action="store_true", help="print the time of every kernel in the fastest of a few runs"
    )
    parser.add_argument("--kernels", action="store_true", help="list every kernel")
    parser.add_argument(
        "--compare",
        metavar="HOST,DEVICE",
        help="run each kernel of a device on the host too, from the same operands, and say how far they "
        "are apart and what each took",
    )
    parser.add_argument(
        "--calibrate",
        type=Path,
        metavar="FILE",
        help="beside --compare: write how much longer each device took than predicted, for --calibration; "
        "what --calibration names is in it, too",
    )
    parser.add_argument(
        "--races",
        action="store_true",
        help="end with run.race where two operations touch the same "
        "bytes or cell and nothing orders them, or a kernel writes what it is said to read; with "
        "--mode replay, the default then, --schedule names an order",
    )


def _run(arguments: argparse.Namespace, output: Output) -> int:
    if arguments.races and arguments.mode is None:
        arguments.mode = "replay"
    refuse(arguments, *of_model(arguments), *_of_comparing(arguments))
    if arguments.compare is not None:
        # It compiles: who runs an executable does not wait for the compiler.
        comparing = importlib.import_module("inlay.cli._compared")
        return int(comparing.run_compared(arguments, output))
    check_outputs(arguments, arguments.output, arguments.trace)
    begun = time.perf_counter()
    has_trace = arguments.profile or arguments.trace is not None
    loaded = prepare(arguments, output, trace=has_trace, races=arguments.races)
    compiled = time.perf_counter() - begun
    inputs = inputs_of(arguments, loaded.executable)
    begun = time.perf_counter()
    with watched(quiet=output.as_json) as (instrument, _), instrument.span("run"):
        inputs, outputs = run_once(arguments, loaded.executable, inputs)
    first = time.perf_counter() - begun
    best, runs, events = _best(loaded.executable, inputs, first)
    if loaded.facts:
        describe_import(arguments.model, loaded.facts, output)
        describe_placement(loaded.facts, output, all_kernels=arguments.kernels)
        describe_memory(loaded.facts, loaded.executable.entries[0], inputs, output)
    usage = loaded.executable.usage()
    output.say(f"  a call took {size_text(usage.peak_bytes)} for tensors at most at once, beside inputs")
    describe_arrays(inputs, output, what="input")
    describe_arrays(outputs, output, what="output")
    output.say(f"  mode {loaded.executable.mode}")
    of = f" (the best of {runs}; first {first * 1e3:.2f} ms)" if runs > 1 else ""
    output.say(f"  prepared in {compiled:.2f} s, ran in {best * 1e3:.2f} ms{of}")
    if arguments.profile:
        output.show(table(events))
    if arguments.trace is not None:
        rows = queue_names(loaded.executable.program)
        write_text(arguments.trace, json.dumps(timeline(events, rows)), inputs=loaded.sources)
        output.say(f"  timeline written to {arguments.trace}")
    if arguments.output is not None:
        write_arrays(arguments.output, outputs, loaded.sources)
        output.say(f"  outputs written to {arguments.output}")
    output.record(
        model=str(arguments.model),
        report=dict(loaded.facts),
        mode=asdict(loaded.executable.mode),
        usage=asdict(usage),
        inputs=arrays_record(inputs),
        outputs=arrays_record(outputs),
        prepare_seconds=compiled,
        run_seconds=best,
        first_run_seconds=first,
        runs=runs,
        kernels=[asdict(t) for t in kernel_times(events)],
        times={name: ns / 1e9 for name, ns in loaded.times.items()},
    )
    return 0


_BESIDE = ("mode", "schedule", "races", "trace", "profile", "kernels", "output", "timings")
"""Arguments that say how a program runs as it is."""


def _of_comparing(arguments: argparse.Namespace) -> tuple[tuple[bool, tuple[str, ...], str], ...]:
    saved = arguments.model.suffix.lower() == ".inlay"
    return (
        (arguments.compare is not None, _BESIDE, "beside --compare"),
        (arguments.compare is None, ("calibrate",), "without --compare"),
        (saved, ("compare",), f"for {arguments.model}: give the model that it was compiled from"),
    )


def _best(
    executable: Executable, inputs: Mapping[str, np.ndarray], first: float
) -> tuple[float, int, Sequence[Event]]:
    """Return the shortest of a few runs with the first, how many there were, and what happened in it.

    The first one finds nothing in caches. It stays alone where it took long, and where operators of
    the user are called, which may do more than compute.
    """
    best, runs, spent, events = first, 1, first, executable.events()
    calls_others = any(
        isinstance(kernel.body, HostBody | FunctionBody) for kernel in executable.program.kernels
    )
    while not calls_others and runs < _MOST_RUNS and spent < _LONG_SECONDS:
        begun = time.perf_counter()
        executable.run(inputs)
        taken = time.perf_counter() - begun
        runs, spent, found = runs + 1, spent + taken, executable.events()
        if taken < best:
            best, events = taken, found
    return best, runs, events


COMMAND = Command(_arguments, _run)
