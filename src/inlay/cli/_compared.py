"""`inlay run --compare`: what devices give for each kernel against the host, as a table and as data."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from inlay.base.diagnostics import error
from inlay.base.instrument import SILENT
from inlay.cli._command import Output
from inlay.cli._compiling import compile_arguments, options_in
from inlay.cli._files import files_read
from inlay.cli._model import counted, inputs_of, run_once
from inlay.cli._progress import watched
from inlay.pipeline.compare import Compared, check_compared, comparing
from inlay.pipeline.differences import Difference
from inlay.pipeline.options import CompileOptions
from inlay.placement.choose.calibration import read_measured, write_measured
from inlay.placement.choose.costs import Measured


def run_compared(arguments: argparse.Namespace, output: Output) -> int:
    """Run a model once, every kernel of some devices on the host too, and say what differs."""
    names = [n.strip() for n in arguments.compare.split(",")]
    options = options_in(CompileOptions, arguments)
    with watched(quiet=output.as_json) as (instrument, _):
        compiled = compile_arguments(arguments, instrument)
    check_compared(names, compiled.run.setting.board)
    executable, seen = comparing(compiled, options, names[1:], SILENT, arguments.threads)
    run_once(arguments, executable, inputs_of(arguments, executable))
    width = max((len(x.kernel) for x in seen), default=0)
    output.say(
        f"{'run':>4} {'device':8} {'kernel':{width}} {'differing':>20} {'largest':>14} "
        f"{'predicted':>13} {'measured':>13} {names[0]:>13}"
    )
    for number, x in enumerate(seen, 1):
        for d in x.results:
            output.say(_line(number, x, d, width))
            if d.first is not None:
                output.say(f"{'':13} first at {list(d.first)}: {d.got}, and {d.want} on {names[0]}")
    wrong = sum(any(d.differing for d in x.results) for x in seen)
    output.say(
        f"{counted(wrong, 'kernel run')} of {len(seen)} differ; measured: by the clock of the device where "
        "it has one, else the time of its driver here"
    )
    if arguments.calibrate is not None:
        measured = recalibrated(read_measured(options.calibration), seen)
        write_measured(arguments.calibrate, compiled.run.setting.board.name, measured, files_read(arguments))
        for device, factor in _factors(seen).items():
            output.say(
                f"  {device} takes {factor:.2f} times what was predicted: --calibration {arguments.calibrate}"
            )
    output.record(model=str(arguments.model), reference=names[0], compared=_records(seen), differing=wrong)
    return 0


def recalibrated(known: Measured, seen: Sequence[Compared]) -> Measured:
    """Return what is known of a board, with a factor for all that each compared device runs.

    Raises:
        CompileError: `option.bad-value` where nothing was predicted.
    """
    found = _factors(seen)
    if not found:
        raise error("option.bad-value", "found no kernel with a predicted time to calibrate by")
    kept = {(device, name): f for (device, name), f in known.factors.items() if device not in found}
    return replace(known, factors={**kept, **{(device, "*"): f for device, f in found.items()}})


def _factors(seen: Sequence[Compared]) -> dict[str, float]:
    """Return measured over predicted time of all kernels of each device, by its clock where it has one."""
    found: dict[str, tuple[float, float]] = {}
    for x in seen:
        if x.predicted_ns:
            took, said = found.get(x.device, (0.0, 0.0))
            found[x.device] = (
                took + (x.device_ns if x.clock_ns is None else x.clock_ns),
                said + x.predicted_ns,
            )
    return {device: took / said for device, (took, said) in found.items() if took > 0}


def _line(number: int, x: Compared, d: Difference, width: int) -> str:
    differing = f"{d.differing} of {d.elements}" if d.differing else "none"
    most = f"{d.most:g} {d.unit}" if d.differing else ""
    predicted = "" if x.predicted_ns is None else _micros(x.predicted_ns)
    measured = x.device_ns if x.clock_ns is None else x.clock_ns
    return (
        f"{number:4} {x.device:8} {x.kernel:{width}} {differing:>20} {most:>14} "
        f"{predicted:>13} {_micros(measured):>13} {_micros(x.host_ns):>13}"
    )


def _micros(ns: float) -> str:
    return f"{ns / 1000:.1f} us"


def _records(seen: Sequence[Compared]) -> list[dict[str, Any]]:
    return [asdict(x) for x in seen]
