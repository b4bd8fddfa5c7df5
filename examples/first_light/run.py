"""First light: a face detector from its model file to native code, and what came of it.

`make run` runs this. It compiles the model next to this file for the machine it runs on, prints what
was imported, where each operation runs and what memory is needed at most, compares the result with
stored reference outputs, and measures the time of a run next to onnxruntime's where that is installed.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path

import numpy as np

from inlay.api import compilation
from inlay.base.diagnostics import CompileError, RunError
from inlay.base.instrument import Instrument
from inlay.cli._command import Output
from inlay.cli._model import describe_import, describe_memory, describe_placement
from inlay.cli._progress import watched
from inlay.cli.bench import compare, measure, onnxruntime_runner, ratios_of
from inlay.runtime.session import executable_of

HERE = Path(__file__).resolve().parent
MODEL = HERE / "ultraface_rfb320.onnx"
REFERENCE = HERE / "reference.npz"
ATOL, RTOL = 2e-5, 1e-3


def picture() -> np.ndarray:
    """Return the input: a synthetic picture [1, 3, 240, 320], the same on every machine."""
    y, x = np.mgrid[0:240, 0:320]
    disk = (x - 160) ** 2 + (y - 120) ** 2 < 70**2
    eyes = ((abs(x - 160) - 28) ** 2 + (y - 100) ** 2) < 81
    channels = [
        (x * 3 + y) % 256,
        np.where(disk, 180, (x + y * 2) % 256),
        np.where(eyes, 20, np.where(disk, 150, (x ^ y) % 256)),
    ]
    return ((np.stack(channels) - 127) / 128).astype(np.float32)[None]


def main() -> int:
    """Compile, run, compare, measure."""
    parser = argparse.ArgumentParser(description="Compile and run a real model.")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--no-cache", action="store_true", help="compile every kernel anew")
    parser.add_argument("--write-reference", action="store_true", help="by onnxruntime")
    arguments = parser.parse_args()
    inputs = {"input": picture()}
    if arguments.write_reference:
        np.savez_compressed(REFERENCE, **onnxruntime_runner(MODEL, inputs, 1)())
        return 0
    output = Output(as_json=False)
    begun = time.perf_counter()
    with watched(quiet=False) as (instrument, _):
        compiled = _compile(instrument, "none" if arguments.no_cache else "default")
    executable = executable_of(compiled.program, threads=arguments.threads)
    seconds = time.perf_counter() - begun
    facts = compiled.report.to_json()
    describe_import(MODEL, facts, output)
    describe_placement(facts, output, all_kernels=True)
    describe_memory(facts, executable.entries[0], inputs, output)
    cached = sum(kernel.cached for kernel in compiled.report.kernels)
    output.say(f"  compiled in {seconds:.2f} s ({cached} of {len(facts['kernels'])} kernels cached)")
    found = executable.run(inputs)
    with np.load(REFERENCE) as reference:
        difference = compare(found, dict(reference), ATOL, RTOL)
    output.say(f"  result agrees with the stored reference: largest difference {difference:.2g}")
    runners = {"inlay": lambda: executable.run(inputs)}
    try:
        runners["onnxruntime"] = onnxruntime_runner(MODEL, inputs, arguments.threads)
    except CompileError as missing:
        output.say(f"  {missing.diagnostics[0].message}")
    times = measure(runners, rounds=6, seconds=0.2, quiet=False)
    for name, values in times.items():
        output.say(f"  {name}: {statistics.median(values) * 1e3:.2f} ms a run, {arguments.threads} thread(s)")
    if len(times) == 2:
        ratio = statistics.median(ratios_of(times["inlay"], times["onnxruntime"]))
        output.say(f"  ratio to onnxruntime: {ratio:.2f}")
    return 0


def _compile(instrument: Instrument, cache: str):
    return compilation(MODEL, instrument=instrument, cache=cache)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (CompileError, RunError) as failure:
        print(failure, file=sys.stderr)
        sys.exit(1)
