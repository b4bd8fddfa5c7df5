"""Whether a placement that is predicted to be better is better: measured, not predicted.

    python benchmarks/placement.py [--json] [--boards host_two,opencl,slow_link] [--models mnist8,...]

For each board and model: kernels and copies are measured (as `inlay bench MODEL --calibrate BOARD`
does), then the model is compiled twice, with every operation on the first device that can run it and
with the placement of least predicted time. Outputs of both are compared; then they take turns.
`predicted`, `measured` and `least` are the time of the first over that of the second: as planned, the
middle of the ratios of all rounds, and the ratio of the shortest runs. `kernels` says how many of the
second are on each device.

`slow_link` is a board on which copies are expensive: its device, whose driver makes each copy take as
long as the board says, is asked first (benchmarks/slow_link.toml). Models come from tests/data.py, but
for `towers`, two equal halves that meet at the end: what two processors are good for.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import onnx

import inlay
from inlay.base.diagnostics import CompileError, RunError
from inlay.cli._calibrate import calibrate
from inlay.cli._command import Output
from inlay.runtime.session import Executable

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from tests.data import data_path, model_case  # noqa: E402

BOARDS = ("host_two", "opencl", "slow_link")
MODELS = (
    "mnist8",
    "micro_kws_fp32",
    "ultraface_rfb320",
    "super_resolution",
    "silero_vad_16k",
    "deeploy_cct_16",
    "minilm",
    "towers",
)
ROUNDS, SECONDS = 15, 0.15
Inputs = Mapping[str, np.ndarray]


def cases(names: list[str], folder: Path) -> Iterator[tuple[str, Path, Inputs]]:
    """Yield name, file and inputs of models."""
    for name in names:
        if name == "towers":
            onnx.save(towers(), folder / "towers.onnx")
            rng = np.random.default_rng(0)
            queries = {n: rng.standard_normal((256, 512), np.float32) for n in ("query", "item")}
            yield name, folder / "towers.onnx", queries
            continue
        if name != "minilm":
            case = model_case(name)
            yield name, case.model, next(iter(case.runs())).inputs
            continue
        source = HERE.parent / "examples" / "sentence_embedding" / "build_minilm.py"
        spec = importlib.util.spec_from_file_location("build_minilm", source)
        assert spec is not None
        assert spec.loader is not None
        builder = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(builder)
        onnx.save(builder.build(), folder / "minilm.onnx")
        with np.load(data_path("minilm", "runs.npz")) as stored:
            words = ("input_ids", "attention_mask", "token_type_ids")
            yield name, folder / "minilm.onnx", {w: stored[f"run0/in/{w}"] for w in words}


def towers(width: int = 512, rows: int = 256, depth: int = 4) -> onnx.ModelProto:
    """Return a network of two towers that meet in a product: halves that need nothing of each other."""
    helper, rng = onnx.helper, np.random.default_rng(1)
    weights: list[onnx.TensorProto] = []
    nodes: list[onnx.NodeProto] = []
    for tower in ("query", "item"):
        last = tower
        for level in range(depth):
            weight = rng.standard_normal((width, width), np.float32) / np.sqrt(np.float32(width))
            weights.append(onnx.numpy_helper.from_array(weight, f"{tower}.w{level}"))
            product, bent = f"{tower}.p{level}", f"{tower}.h{level}"
            nodes.append(helper.make_node("MatMul", [last, f"{tower}.w{level}"], [product]))
            nodes.append(helper.make_node("Relu", [product], [bent]))
            last = bent
        nodes.append(helper.make_node("ReduceMean", [last], [f"{tower}.m"], axes=[0], keepdims=1))
    nodes.append(helper.make_node("Mul", ["query.m", "item.m"], ["score"]))
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "towers",
        [value(n, onnx.TensorProto.FLOAT, [rows, width]) for n in ("query", "item")],
        [value("score", onnx.TensorProto.FLOAT, [1, width])],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def compared(first: Executable, best: Executable, inputs: Inputs) -> None:
    """Refuse to time two programs that do not give the same."""
    expected = first.run(inputs)
    for name, found in best.run(inputs).items():
        np.testing.assert_allclose(found, expected[name], rtol=1e-3, atol=1e-4)


def seconds_of(executable: Executable, inputs: Inputs) -> float:
    """Return the middle time of runs for a while."""
    times: list[float] = []
    end = time.perf_counter() + SECONDS
    while len(times) < 3 or time.perf_counter() < end:
        begun = time.perf_counter()
        executable.run(inputs)
        times.append(time.perf_counter() - begun)
    return statistics.median(times)


def row(board: str, name: str, path: Path, inputs: Inputs, folder: Path, mode: str) -> dict[str, object]:
    """Measure one model on one board."""
    place = board if board != "slow_link" else str(HERE / "slow_link.toml")
    file = folder / f"{board}.{name}.json"
    quiet = Output(as_json=True)
    calibrate(place, file, 0.2, quiet, (inlay.load(path), lambda _: inputs))
    sizes = tuple(f"{k}={v}" for k, v in dims_of(path, inputs).items())
    settings = {"board": place, "calibration": str(file), "typical": sizes, "cache": "none"}
    found = inlay.explain(path, place, threads=1, calibration=str(file), typical=sizes)
    first = inlay.compile(path, placement="first", threads=1, mode=mode, **settings)
    best = inlay.compile(path, threads=1, mode=mode, **settings)
    compared(first, best, inputs)
    pairs = [(seconds_of(first, inputs), seconds_of(best, inputs)) for _ in range(ROUNDS)]
    devices = [o.device for o in found.operations]
    return {
        "board": board,
        "model": name,
        "kernels": "/".join(str(devices.count(d)) for d in found.busy_ns),
        "copies": len(found.copies),
        "first ms": min(a for a, _ in pairs) * 1e3,
        "best ms": min(b for _, b in pairs) * 1e3,
        "predicted ms": found.total_ns / 1e6,
        "predicted": found.first_fit_ns / found.total_ns,
        "measured": statistics.median(a / b for a, b in pairs),
        "least": min(a for a, _ in pairs) / min(b for _, b in pairs),
    }


def dims_of(path: Path, inputs: Inputs) -> dict[str, int]:
    """Return the sizes of the dims that a model leaves open."""
    executable = inlay.compile(path, threads=1)
    entry = executable.entries[0]
    return {s.name: inputs[entry.inputs[s.input].name].shape[s.axis] for s in entry.symbols}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="first device that can, and least predicted time")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--boards", default=",".join(BOARDS))
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--mode", default="parallel")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as kept:
        for number, (name, path, inputs) in enumerate(cases(arguments.models.split(","), Path(kept))):
            for board in arguments.boards.split(","):
                try:
                    found = row(board, name, path, inputs, Path(kept), arguments.mode)
                except (CompileError, RunError) as failure:
                    print(f"{board} {name}: {failure.ids[0]}", flush=True)
                    continue
                if arguments.json:
                    print(json.dumps({"benchmark": "placement", **found}), flush=True)
                    continue
                if number == 0 and board == arguments.boards.split(",")[0]:
                    print("  ".join(f"{k:>14}" for k in found))
                shown = (f"{v:.3f}" if isinstance(v, float) else str(v) for v in found.values())
                print("  ".join(f"{s:>14}" for s in shown), flush=True)


if __name__ == "__main__":
    main()
