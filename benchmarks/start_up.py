"""What commands cost before and besides their work: processor time, modules, resident memory.

    python benchmarks/start_up.py [--json]

Each command runs in processes of its own; the least of several runs counts. Modules of ours are
those whose name begins with `inlay`.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import inlay
from measure import Report

RUNS = 5
SOURCE = Path(inlay.__file__).parent.parent
PROBE = """
import sys
try:
    exec(sys.argv.pop(1))
except SystemExit:
    pass
import json, pathlib
own = sum(name.split(".")[0] == "inlay" for name in sys.modules)
status = pathlib.Path("/proc/self/status").read_text()
peak = int(status.partition("VmHWM:")[2].split()[0])
json.dump([len(sys.modules), own, peak], sys.stderr)
"""
COMMAND = "from inlay.cli.main import main; sys.exit(main())"


def model(path: Path) -> Path:
    """Write a model of one dense layer."""
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "dense",
        [value("x", TensorProto.FLOAT, [4, 8])],
        [value("y", TensorProto.FLOAT, [4, 8])],
        [numpy_helper.from_array(np.ones((8, 8), np.float32), "w")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path


def measured(program: str, *words: str) -> tuple[float, float, int, int, float]:
    """Return elapsed and processor seconds, modules, modules of ours and MB of a program."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPATH"] = str(SOURCE)
    elapsed, spent, facts = float("inf"), float("inf"), [0, 0, 0]
    for _ in range(RUNS):
        before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-c", PROBE, program, *words],
            capture_output=True,
            text=True,
            check=True,
            env=environment,
        )
        elapsed = min(elapsed, time.perf_counter() - begun)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        spent, facts = min(spent, used), json.loads(done.stderr.splitlines()[-1])
    return elapsed, spent, facts[0], facts[1], facts[2] / 1024


def main() -> None:
    """Print a row for each command."""
    columns = ["command", "elapsed s", "processor s", "modules", "ours", "MB"]
    report = Report("start-up", columns)
    with tempfile.TemporaryDirectory() as folder:
        path = model(Path(folder) / "dense.onnx")
        saved = Path(folder) / "dense.inlay"
        cache = str(Path(folder) / "cache")
        inlay.compile(path, cache=cache).save(saved)
        cases = {
            "python": ("pass",),
            "import numpy": ("import numpy",),
            "load_executable": ("import inlay; inlay.load_executable",),
            "compile": ("import inlay; inlay.compile",),
            "inlay --help": (COMMAND, "--help"),
            "inlay run -h": (COMMAND, "run", "--help"),
            "run X.inlay": (COMMAND, "run", str(saved)),
            "run X.onnx": (COMMAND, "run", str(path), "--cache", cache, "--json"),
        }
        for name, (program, *words) in cases.items():
            elapsed, spent, modules, own, megabytes = measured(program, *words)
            report.row(name, round(elapsed, 3), round(spent, 3), modules, own, round(megabytes))


if __name__ == "__main__":
    main()
