"""Measures operators on the devices of a board that this machine has, against what is predicted.

One small program for each operator; time is the least of several runs, on one thread, which is what
predictions are of. The factors go into a file that `explain --calibration` reads.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from inlay import api
from inlay.base.diagnostics import unsupported
from inlay.bytecode.spec import TensorSpec
from inlay.cli._command import Output
from inlay.cli._model import shape_of
from inlay.ir.parser import parse_module
from inlay.machine.board import NATIVE
from inlay.machine.board_file import find_board
from inlay.ops.table import table
from inlay.pipeline.explain import explanation
from inlay.placement.calibration import write_factors

PROGRAMS = {
    "matmul": "x: Tensor[256, 256, f32], y: Tensor[256, 256, f32]) { matmul(x, y) }",
    "conv": "x: Tensor[1, 32, 56, 56, f32], y: Tensor[32, 32, 3, 3, f32]) { conv(x, y) }",
    "add": "x: Tensor[1024, 1024, f32], y: Tensor[1024, 1024, f32]) { add(x, y) }",
    "exp": "x: Tensor[512, 512, f32]) { exp(x) }",
    "tanh": "x: Tensor[512, 512, f32]) { tanh(x) }",
    "softmax": "x: Tensor[512, 512, f32]) { softmax(x) }",
    "reduce_sum": "x: Tensor[1024, 1024, f32]) { reduce_sum{axes=[1]}(x) }",
    "transpose": "x: Tensor[1024, 1024, f32]) { transpose{perm=[1, 0]}(x) }",
}
"""What is measured: an operator, and the rest of a program that calls it once."""


def calibrate(board: str, path: Path, seconds: float, output: Output) -> None:
    """Measure, and write the factors.

    Raises:
        UnsupportedError: `bench.nothing-to-measure` where no device of the board is this machine.
    """
    machine = find_board(board)
    native = [d.name for d in machine.devices if d.arch == NATIVE]
    if not native:
        raise unsupported(
            "bench.nothing-to-measure",
            f"found no device of board '{board}' that this machine has",
            hint="measure on the machine itself, or describe `speed` in the board's file",
        )
    factors: dict[tuple[str, str], float] = {}
    for name, rest in PROGRAMS.items():
        measured = _measure(f"fn main({rest}", seconds)
        for device in native:
            pins = (f"*={device}",) if len(machine.devices) > 1 else ()
            module = parse_module(f"fn main({rest}", table())
            found = explanation(module, board, pins=pins)
            predicted = sum(o.ns for o in found.operations)
            if predicted:
                factors[device, name] = measured / predicted
                output.say(f"{device:8} {name:12} {measured / 1000:9.1f} us measured, "
                           f"{predicted / 1000:9.1f} us predicted")  # fmt: skip
    for device in native:
        own = [f for (d, _), f in factors.items() if d == device]
        if own:
            factors[device, "*"] = float(np.exp(np.mean(np.log(own))))
    write_factors(path, board, factors)
    output.say(f"wrote {path}")
    output.record(file=str(path), factors={f"{d}.{n}": f for (d, n), f in factors.items()})


def _measure(text: str, seconds: float) -> float:
    """Return the least time of a run, in nanoseconds."""
    executable = api.compile(parse_module(text, table()), threads=1)
    rng = np.random.default_rng(0)
    inputs = {
        s.name: rng.random(shape_of(s, ()), np.float32)
        for s in executable.entries[0].inputs
        if isinstance(s, TensorSpec)
    }
    least, end = float("inf"), time.perf_counter() + seconds
    executable.run(inputs)
    while time.perf_counter() < end:
        begin = time.perf_counter_ns()
        executable.run(inputs)
        least = min(least, time.perf_counter_ns() - begin)
    return least
