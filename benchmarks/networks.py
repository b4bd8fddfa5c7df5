"""Well-known convolutional networks against onnxruntime.

    python benchmarks/networks.py [--json] [--only NAME] [--threads N] [--seconds S]

Weights are random; outputs are compared before anything is timed. Both take turns in short rounds, so
that other load on the machine meets both; a row gives the least time of each, as a machine that others
use makes runs longer and never shorter. With one thread that is the time of the thread. `compile` is
the processor time of compiling with an empty cache, of all processes.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort

import inlay
from measure import least
from network_models import NETWORKS

TOLERANCE = 1e-4
"""Of outputs, relative to the largest."""


@dataclass(frozen=True)
class Row:
    """What was measured; times in milliseconds, of compiling in seconds."""

    network: str
    threads: int
    ours: float
    onnxruntime: float
    ratio: float
    compile: float


def processor_seconds() -> float:
    """Return the processor time of this process and of its children that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def measured(name: str, path: Path, size: int, threads: int, seconds: float) -> Row:
    """Compare outputs, then time both."""
    x = np.random.default_rng(1).standard_normal((1, 3, size, size)).astype(np.float32)
    begun = processor_seconds()
    executable = inlay.compile(path, threads=threads, cache="none")
    spent = processor_seconds() - begun
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    calls: list[Callable[[], object]] = [
        lambda: executable.run({"x": x}),
        lambda: session.run(None, {"x": x}),
    ]
    for found, expected in zip(executable.run({"x": x}).values(), session.run(None, {"x": x})):
        far = np.abs(found - expected).max() / np.abs(expected).max()
        if not far <= TOLERANCE:
            raise SystemExit(f"{name}: an output differs from onnxruntime's by {far:.2g}")
    best = [float("inf")] * 2
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        best = [min(b, least(c, threads, 0.1)) for b, c in zip(best, calls, strict=True)]
    ours, theirs = (1e3 * b for b in best)
    return Row(name, threads, ours, theirs, ours / theirs, spent)


def main() -> None:
    """Print a row for each network."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print rows as JSON lines")
    parser.add_argument("--only", default="", help="networks whose names contain this")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=10.0, help="for each network")
    given = parser.parse_args()
    if not given.json:
        print(f"{'network':16} {'ours ms':>9} {'ort ms':>9} {'ours/ort':>9} {'compile s':>9}")
    for name, (make, size) in NETWORKS.items():
        if given.only not in name:
            continue
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"{name}.onnx"
            onnx.save(make(size), path)
            row = measured(name, path, size, given.threads, given.seconds)
        if given.json:
            print(json.dumps({"benchmark": "networks", **asdict(row)}), flush=True)
        else:
            print(
                f"{name:16} {row.ours:9.3f} {row.onnxruntime:9.3f} {row.ratio:9.2f} {row.compile:9.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
