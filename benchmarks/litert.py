"""TFLite models against the LiteRT interpreter.

    python benchmarks/litert.py FILE.tflite... [--json] [--threads N] [--seconds S] [--fixed]

The interpreter is made ready for the sizes that it runs with. A model whose batch is open is compiled for any
batch; with `--fixed`, for one, as the interpreter is.
Inputs are drawn at random. Outputs are compared before anything is timed: `steps` is the largest
difference of an integer output, in steps; the interpreter's kernels round otherwise than the reference
kernels, whose results ours are. What a model keeps goes from run to run on both sides, and the first runs
are compared. Both take turns in short rounds and a row gives the least time of each.
The interpreter is the package `ai-edge-litert`, with its default kernels.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from ai_edge_litert.interpreter import Interpreter

import inlay
from measure import least


@dataclass(frozen=True)
class Row:
    """What was measured; times in microseconds, `ratio` is how many times as long the interpreter takes."""

    model: str
    threads: int
    ours: float
    litert: float
    ratio: float
    steps: float


def drawn(detail: dict[str, Any], rng: np.random.Generator) -> np.ndarray:
    """Return a random input as the interpreter describes it."""
    dtype, shape = np.dtype(detail["dtype"]), detail["shape"]
    if dtype.kind == "f":
        return rng.standard_normal(shape).astype(dtype)
    info = np.iinfo(dtype)
    return rng.integers(info.min, int(info.max) + 1, shape).astype(dtype)


def compiled(path: Path, threads: int, *, is_fixed: bool) -> inlay.Executable:
    """Compile a model; open dims as 1 where they are to be fixed."""
    executable = inlay.compile(path, threads=threads)
    open_dims = {d for spec in executable.inputs for d in map(str, spec.shape) if not d.isdigit()}
    if not is_fixed or not open_dims:
        return executable
    return inlay.compile(path, threads=threads, dims=tuple(f"{d}=1" for d in sorted(open_dims)))


def measured(path: Path, threads: int, seconds: float, *, is_fixed: bool) -> Row:
    """Compare outputs, then time both."""
    theirs = Interpreter(str(path), num_threads=threads)
    theirs.allocate_tensors()
    inputs, outputs = theirs.get_input_details(), theirs.get_output_details()
    rng = np.random.default_rng(1)
    values = [drawn(d, rng) for d in inputs]
    executable = compiled(path, threads, is_fixed=is_fixed)
    session = executable.session() if executable.state else None
    names = [s.name for s in executable.inputs if s.name not in executable.state]
    kept = set(executable.state.values())
    results = [s.name for s in executable.outputs if s.name not in kept]

    def our_call() -> list[object]:
        if session is not None:
            given = session.run(dict(zip(names, values, strict=True)))
            return [given[n] for n in results]
        found = executable(*values)
        return [found] if len(results) == 1 else list(found)

    for d, value in zip(inputs, values, strict=True):
        theirs.set_tensor(d["index"], value)
    theirs.invoke()
    found = our_call()
    steps = max(
        float(np.abs(np.asarray(f, np.float64) - theirs.get_tensor(d["index"])).max())
        for f, d in zip(found, outputs, strict=True)
    )

    def their_call() -> None:
        for d, value in zip(inputs, values, strict=True):
            theirs.set_tensor(d["index"], value)
        theirs.invoke()
        for d in outputs:
            theirs.get_tensor(d["index"])

    calls: list[Callable[[], object]] = [our_call, their_call]
    best = [float("inf")] * 2
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        best = [min(b, least(c, threads, 0.1)) for b, c in zip(best, calls, strict=True)]
    ours, other = (1e6 * b for b in best)
    return Row(path.parent.name, threads, ours, other, other / ours, steps)


def main() -> None:
    """Print a row for each model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE.tflite")
    parser.add_argument("--json", action="store_true", help="print rows as JSON lines")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=5.0, help="for each model")
    parser.add_argument("--fixed", action="store_true", help="compile for a batch of one where it is open")
    given = parser.parse_args()
    if not given.json:
        print(f"{'model':24} {'ours us':>9} {'litert us':>9} {'litert/ours':>11} {'steps':>6}")
    for path in given.files:
        row = measured(path, given.threads, given.seconds, is_fixed=given.fixed)
        if given.json:
            print(json.dumps({"benchmark": "litert", **asdict(row)}), flush=True)
        else:
            print(
                f"{row.model:24} {row.ours:9.1f} {row.litert:9.1f} {row.ratio:11.2f} {row.steps:6.3g}",
                flush=True,
            )


if __name__ == "__main__":
    main()
