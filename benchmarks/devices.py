"""What a command of a device costs: a chain of small kernels, each of which needs the one before.

    python benchmarks/devices.py [--json]

The same chain of products of 8 x 8 matrices runs on the host, on the processor as a second device, on
an OpenCL device if there is one, and on a device that does nothing; one command after the other, and
in parallel mode. Each row is the time of a run divided by the number of kernels, the rounds of all rows
interleaved.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from inlay.analysis.infer_types import infer_types
from inlay.api import compilation
from inlay.base.diagnostics import CompileError, RunError
from inlay.bytecode.program import Program
from inlay.ir.parser import parse_module
from inlay.ops.table import table
from inlay.runtime.session import Executable, executable_of
from measure import Report, Timing, measure

LENGTH = 100
SIZE = 8
ROUNDS = 40


def chain() -> str:
    """Return a program of `LENGTH` products."""
    square = f"Tensor[{SIZE}, {SIZE}, f32]"
    lets = "\n".join(f"  let x{i + 1} = tanh(matmul(x{i}, w));" for i in range(LENGTH))
    return f"""
fn main(x0: {square}, w: {square}) -> {square} {{
{lets}
  x{LENGTH}
}}

entry main("x", "w") -> ("y");
"""


def program_on(board: str, device: str) -> Program:
    """Compile the chain for a device of a board."""
    module = infer_types(parse_module(chain(), table()))
    pins = (f"*={device}",) if device else ()
    return compilation(module, board=board, pins=pins).program


def without_work(program: Program) -> Program:
    """Return a program whose devices accept everything and do nothing."""
    devices = tuple(replace(d, driver="null", options="") for d in program.devices)
    return replace(program, devices=devices)


def main() -> None:
    """Print the table."""
    report = Report("devices", ["device", "mode", "us a kernel", "median"])
    programs = {
        "host": program_on("host", ""),
        "host_two": (two := program_on("host_two", "cpu1")),
        "opencl": program_on("opencl", "cl0"),
        "null": without_work(two),
    }
    inputs = [np.eye(SIZE, dtype=np.float32)] * 2
    executables: dict[tuple[str, str], Executable] = {}
    for name, program in programs.items():
        for mode in ("sequential", "parallel"):
            try:
                executables[name, mode] = executable_of(program, threads=2, mode=mode)
            except (CompileError, RunError) as failure:
                report.row(name, mode, failure.ids[0], "-")
    runs: dict[tuple[str, str], list[float]] = {key: [] for key in executables}
    for _ in range(ROUNDS):
        for key, executable in executables.items():
            runs[key] += measure(lambda e=executable: e(*inputs), repeat=1).runs
    for (name, mode), seconds in runs.items():
        found = Timing(tuple(seconds))
        report.row(name, mode, found.least / LENGTH * 1e6, found.median / LENGTH * 1e6)


if __name__ == "__main__":
    main()
