"""Memory of a run beside onnxruntime, and whether it grows with the number of runs.

    python benchmarks/memory.py MODEL.onnx ... [--json]

A model is compiled and saved; then a process of its own loads it, runs it on random inputs 1, 20 and
220 times with one thread, and says how much more is resident than before it was loaded. The same is
done with onnxruntime where it is installed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import inlay
from inlay.cli._model import inputs_of
from measure import Report

SOURCE = Path(inlay.__file__).parent.parent
CHILD = """
import json, os, sys
import numpy as np
engine, path, given = sys.argv[1:]
def resident():
    with open("/proc/self/statm") as stream:
        return int(stream.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
with np.load(given) as archive:
    inputs = {name: archive[name] for name in archive.files}
if engine == "inlay":
    import inlay
    load = inlay.load_executable
    before = resident()
    run = load(path, threads=1).run
else:
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    before = resident()
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    run = lambda values: session.run(None, values)
found = [resident() - before]
for count in (1, 19, 200):
    for _ in range(count):
        run(inputs)
    found.append(resident() - before)
print(json.dumps([before, *found]))
"""


def measured(engine: str, path: Path, inputs: Path) -> list[float]:
    """Return MB: before, loaded, and after 1, 20 and 220 runs."""
    done = subprocess.run(
        [sys.executable, "-c", CHILD, engine, str(path), str(inputs)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
    )
    return [round(value, 1) for value in json.loads(done.stdout.splitlines()[-1])]


def main() -> None:
    """Print a row for each model and engine."""
    models = [Path(word) for word in sys.argv[1:] if not word.startswith("-")]
    sys.argv[1:] = [word for word in sys.argv[1:] if word.startswith("-")]
    report = Report("memory of runs, MB", ["model", "engine", "before", "loaded", "1", "20", "220"])
    arguments = argparse.Namespace(inputs=None, dim=[], seed=0)
    for model in models:
        with tempfile.TemporaryDirectory() as folder:
            saved, inputs = Path(folder) / "model.inlay", Path(folder) / "inputs.npz"
            executable = inlay.compile(model, threads=1)
            executable.save(saved)
            np.savez(inputs, **inputs_of(arguments, executable))
            name = model.parent.name if model.stem == "model" else model.stem
            report.row(name[-16:], "inlay", *measured("inlay", saved, inputs))
            report.row(name[-16:], "onnxruntime", *measured("onnxruntime", model, inputs))


if __name__ == "__main__":
    main()
