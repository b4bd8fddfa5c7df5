"""What parallel mode costs or gains on whole models: one call in sequential and in parallel mode.

    python benchmarks/modes.py [--json] [--only NAME] [--rounds N]

Both modes run the same program on the same number of threads, and take turns; outputs are compared
first, bit by bit. `ratio` is the time in parallel mode over that in sequential mode, of the shortest
times, and the median over the rounds: above 1, parallel mode loses. `cpu` is the same for the time of
processors, all threads together, the median: on a loaded machine it says more.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import inlay
from inlay.runtime.session import load_executable

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
THREADS = 2
SECONDS = 2.0


def times_of(call: Any, again: int) -> tuple[float, float]:
    """Return the least time of some calls in seconds, and the least time of processors."""
    walls: list[float] = []
    works: list[float] = []
    for _ in range(again):
        start, before = time.perf_counter(), time.process_time()
        call()
        walls.append(time.perf_counter() - start)
        works.append(time.process_time() - before)
    return min(walls), min(works)


def compare(file: Path, inputs: list[np.ndarray], rounds: int) -> dict[str, float]:
    """Return the shortest times of a saved program in both modes in us, and their ratios."""
    sequential = load_executable(file, threads=THREADS, mode="sequential")
    parallel = load_executable(file, threads=THREADS, mode="parallel")
    for one, other in zip(flat(sequential(*inputs)), flat(parallel(*inputs)), strict=True):
        assert np.array_equal(one, other, equal_nan=True), "the modes disagree"
    again = max(1, int(SECONDS / rounds / 2 / times_of(lambda: sequential(*inputs), 3)[0]))
    pairs = [
        (times_of(lambda: sequential(*inputs), again), times_of(lambda: parallel(*inputs), again))
        for _ in range(rounds)
    ]
    one, two = (min(wall for wall, _ in times) for times in zip(*pairs, strict=True))
    return {
        "sequential us": one * 1e6,
        "parallel us": two * 1e6,
        "ratio": two / one,
        "median": statistics.median(b[0] / a[0] for a, b in pairs),
        "cpu": statistics.median(b[1] / a[1] for a, b in pairs),
    }


def flat(outputs: Any) -> list[np.ndarray]:
    """Return outputs that may be one, or structured, as a list of arrays."""
    if isinstance(outputs, np.ndarray):
        return [outputs]
    return [array for item in outputs for array in flat(item)]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Sequential against parallel mode on whole models.")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    for folder in sorted((DATA / "cases").iterdir()):
        model = folder / "model.onnx"
        if options.only not in folder.name or not model.exists():
            continue
        with tempfile.TemporaryDirectory() as place, np.load(folder / "runs.npz") as runs:
            file = Path(place) / "model.inlay"
            try:
                compiled = inlay.compile(model, threads=THREADS)
                compiled.save(file)
                row = compare(file, [runs[f"run0/in/{s.name}"] for s in compiled.inputs], options.rounds)
            except (inlay.CompileError, inlay.RunError) as failure:
                print(f"{folder.name}: left out: {str(failure)[:100]}")
                continue
        if options.json:
            print(json.dumps({"benchmark": "modes", "model": folder.name, **row}))
        else:
            print(f"{folder.name:28}" + "".join(f"{k} {v:10.2f}  " for k, v in row.items()), flush=True)


if __name__ == "__main__":
    main()
