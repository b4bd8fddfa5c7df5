"""Convolutional networks in 8 bits against onnxruntime and OpenVINO, and against their own floats.

    python benchmarks/integers.py [--json] [--only NAME] [--threads N ...] [--seconds S] [--models FOLDER]

The networks of `network_models.py` with random weights are quantized by onnxruntime's quantizer: weights
i8, symmetric, per channel; activations u8, or i8 and symmetric; as QDQ and as QOperator. Outputs are
compared before anything is timed, in steps of the output, and against the evaluation of the QDQ graph in
f32: kernels of peers that saturate pairs of products are far from it, which the columns `far` show.
Programs take turns in short rounds, and a row gives the least time of each, as a machine that others use
makes runs longer and never shorter. OpenVINO takes part where its package is installed.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import onnxruntime as ort

import inlay
from integer_models import ACTIVATIONS, FORMATS, quantized
from measure import least
from network_models import NETWORKS

Call = Callable[[], np.ndarray]
NAMES = ("mobilenet_v2", "resnet50")


@dataclass(frozen=True)
class Row:
    """What was measured.

    Attributes:
        network: its name, format and activations.
        threads: of every program.
        ms: the least time of each program.
        ratio: the least of the peers' times by ours.
        floats: the time of the same network in f32 by ours.
        far: of each, the largest error against the QDQ graph in f32, by the largest output.
    """

    network: str
    threads: int
    ms: Mapping[str, float]
    ratio: float
    floats: float
    far: Mapping[str, float]


def onnxruntime_call(path: Path, x: np.ndarray, threads: int, *, exact: bool = False) -> Call:
    """Return a call of onnxruntime; `exact` computes a QDQ graph as it is written."""
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    if exact:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, {"x": x})[0]


def inlay_call(path: Path, x: np.ndarray, threads: int) -> Call:
    """Return a call of ours."""
    executable = inlay.compile(path, threads=threads, cache="none")
    return lambda: next(iter(executable.run({"x": x}).values()))


def openvino_call(path: Path, x: np.ndarray, threads: int) -> Call | None:
    """Return a call of OpenVINO, None where it is not installed or does not take the model."""
    try:
        import openvino as ov
    except ImportError:
        return None
    core = ov.Core()
    settings = {"INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1, "INFERENCE_PRECISION_HINT": "f32"}
    try:
        compiled = core.compile_model(core.read_model(path), "CPU", settings)
    except RuntimeError:
        return None
    request = compiled.create_infer_request()
    return lambda: next(iter(request.infer({"x": x}).values()))


def calls_of(path: Path, x: np.ndarray, threads: int) -> dict[str, Call]:
    """Return what is timed, by name."""
    calls: dict[str, Call | None] = {
        "inlay": inlay_call(path, x, threads),
        "ort": onnxruntime_call(path, x, threads),
        "openvino": openvino_call(path, x, threads),
    }
    return {name: call for name, call in calls.items() if call is not None}


def least_of(calls: Mapping[str, Call], threads: int, seconds: float) -> dict[str, float]:
    """Return the least milliseconds of each, taking turns."""
    best = dict.fromkeys(calls, float("inf"))
    end = time.perf_counter() + seconds * len(calls)
    while time.perf_counter() < end:
        for name, call in calls.items():
            # OpenVINO computes on threads of its own, whose time the clock of the caller does not have.
            clock = 2 if name == "openvino" else threads
            best[name] = min(best[name], 1e3 * least(call, clock, 0.1))
    return best


def measured(name: str, form: str, activations: str, threads: int, folder: Path, seconds: float) -> Row:
    """Compare outputs, then time."""
    whole, narrow = quantized(name, form, activations, folder)
    _, plain = quantized(name, "qdq", activations, folder)
    size = NETWORKS[name][1]
    x = np.random.default_rng(1).standard_normal((1, 3, size, size)).astype(np.float32)
    want = onnxruntime_call(plain, x, 2, exact=True)()
    calls = calls_of(narrow, x, threads)
    far = {n: float(np.abs(call() - want).max() / np.abs(want).max()) for n, call in calls.items()}
    ms = least_of({**calls, "floats": inlay_call(whole, x, threads)}, threads, seconds)
    floats = ms.pop("floats")
    peers = [t for n, t in ms.items() if n != "inlay"]
    return Row(f"{name} {form} {activations}", threads, ms, min(peers) / ms["inlay"], floats, far)


def show(row: Row, *, as_json: bool) -> None:
    """Print a row."""
    if as_json:
        print(json.dumps({"benchmark": "integers", **asdict(row)}), flush=True)
        return
    times = "".join(f"{row.ms.get(n, float('nan')):10.2f}" for n in ("inlay", "ort", "openvino"))
    far = "".join(f"{row.far.get(n, float('nan')):10.3f}" for n in ("inlay", "ort", "openvino"))
    print(f"{row.network:24} {row.threads:2}{times}{row.floats:10.2f}{row.ratio:8.2f}{far}", flush=True)


def main() -> None:
    """Print a row for each network, format and number of threads."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print rows as JSON lines")
    parser.add_argument("--only", default="", help="rows whose names contain this, such as 'resnet50 qdq'")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--seconds", type=float, default=5.0, help="for each program")
    parser.add_argument("--models", default="", help="folder that keeps the quantized networks")
    given = parser.parse_args()
    if not given.json:
        print(
            f"{'network':24} {'T':>2}{'inlay ms':>10}{'ort':>10}{'openvino':>10}{'floats':>10}{'ratio':>8}",
            end="",
        )
        print(f"{'far':>10}{'ort':>10}{'openvino':>10}")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(given.models or temporary)
        for name in NAMES:
            for form in FORMATS:
                for activations in ACTIVATIONS:
                    if given.only not in f"{name} {form} {activations}":
                        continue
                    for threads in given.threads:
                        row = measured(name, form, activations, threads, folder, given.seconds)
                        show(row, as_json=given.json)


if __name__ == "__main__":
    main()
