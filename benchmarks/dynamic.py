"""Models whose control flow and shapes depend on data, against onnxruntime, OpenVINO and PyTorch.

    python benchmarks/dynamic.py [--json] [--only NAME] [--seconds S]

Every engine runs on one thread, on the same inputs. Outputs are compared before anything is timed,
and an engine that is not installed or refuses a model is left out with its reason. Engines take turns
in rounds, so that other load on the machine meets all of them: a row gives the median over the rounds
of `peer time / our time`, with the least and the greatest. `load` is the time to compile the model
with an empty cache, `steps` the machine's instructions of one call where the runtime counts them.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import dynamic_models
import inlay
import trees
from peers import Call, onnxruntime, openvino

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
ROUNDS = 9
TOLERANCE = 2e-4
"""Of outputs, relative and absolute."""


@dataclass(frozen=True)
class Case:
    """One row: who runs what.

    Attributes:
        name: of the row.
        ours: a call of the compiled program.
        load: seconds to compile it.
        peers: a call for each engine, or the reason why there is none.
        exact: peers whose outputs are to be ours to the bit.
    """

    name: str
    ours: Call
    load: float
    peers: dict[str, Call | str]
    exact: frozenset[str] = frozenset()


@dataclass
class Row:
    """What was measured: microseconds of our call, and ratios per peer and round."""

    ours: float = 0.0
    ratios: dict[str, list[float]] = field(default_factory=dict[str, list[float]])


def onnx_case(name: str, model: Path, inputs: dict[str, np.ndarray]) -> Case:
    """Return a model with its peers."""
    start = time.perf_counter()
    executable = inlay.compile(model, threads=1, cache="none")
    load = time.perf_counter() - start
    order = [spec.name for spec in executable.inputs]
    given = [inputs[n] for n in order]

    def ours() -> Sequence[np.ndarray]:
        found = executable(*given)
        return found if isinstance(found, tuple) else (found,)

    peers = {"onnxruntime": onnxruntime(model, inputs), "openvino": openvino(model, inputs)}
    return Case(name, ours, load, peers)


def tree_case(width: int, count: int = 20) -> Case:
    """Return Tree-LSTMs of a width over real parse trees, one at a time; nodes of one tree may be batched."""
    found = trees.load(DATA / "trees", count)
    weights = trees.weights(width, width)
    start = time.perf_counter()
    executable = inlay.compile(trees.program(weights), threads=1, cache="none", batch=True)
    load = time.perf_counter() - start

    def ours() -> Sequence[np.ndarray]:
        return [x for tree in found for x in executable(*tree)]

    return Case(f"tree_lstm_{width}", ours, load, {"torch": trees.torch_call(found, weights)})


def forest_case(width: int, count: int = 32) -> Case:
    """Return Tree-LSTMs over many trees in one call, batched by the machine, against themselves and PyTorch.

    `levels` is PyTorch with all nodes of a height as one batch, written by hand.
    """
    forest = trees.joined(trees.load(DATA / "trees", count))
    weights = trees.weights(width, width)
    module = trees.program(weights, forest=True)
    start = time.perf_counter()
    batched = inlay.compile(module, threads=1, cache="none", batch=True)
    load = time.perf_counter() - start
    plain = inlay.compile(module, threads=1, cache="none")

    def call_of(executable: inlay.Executable) -> Call:
        return lambda: [executable(*forest)]

    peers = {"unbatched": call_of(plain), "levels": trees.torch_levels_call(forest, weights)}
    return Case(f"forest_{width}", call_of(batched), load, peers, frozenset({"unbatched"}))


def cases(folder: Path, only: str) -> Iterator[Case]:
    """Yield the rows whose names contain `only`."""
    import onnx

    rng = np.random.default_rng(0)

    def noise(*dims: int) -> np.ndarray:
        return rng.standard_normal(dims).astype(np.float32)

    made: dict[str, tuple[Callable[[], onnx.ModelProto], dict[str, np.ndarray]]] = {
        "loop_16000": (
            dynamic_models.loop_scan,
            {"n": np.array(16000), "x": noise(16000, 16), "h_in": noise(16)},
        ),
        "scan_16000": (dynamic_models.scan, {"x": noise(16000, 16), "h_in": noise(16)}),
        "lstm_scan": (
            dynamic_models.lstm_scan,
            {"x": noise(200, 1, 32), "h_in": noise(1, 64), "c_in": noise(1, 64)},
        ),
        "growing_cache": (dynamic_models.growing_cache, {"n": np.array(256), "q": noise(1, 32)}),
        "written_cache": (
            lambda: dynamic_models.written_cache(1024),
            {"n": np.array(1024), "q": noise(1, 32)},
        ),
    }
    for name, (make, inputs) in made.items():
        if only in name:
            path = folder / f"{name}.onnx"
            onnx.save(make(), path)
            yield onnx_case(name, path, inputs)
    for name in (
        "gen_greedy_decode_onnx",
        "gen_scan_rnn_onnx",
        "gen_tree_lstm_onnx",
        "gen_early_exit_script_onnx",
        "gen_dyn_transformer_onnx",
        "silero_vad_16k",
    ):
        if only in name and (DATA / "cases" / name).is_dir():
            with np.load(DATA / "cases" / name / "runs.npz") as data:
                last = max(int(key.split("/")[0][3:]) for key in data.files)
                prefix = f"run{last}/in/"
                inputs = {k[len(prefix) :]: data[k] for k in data.files if k.startswith(prefix)}
            yield onnx_case(name, DATA / "cases" / name / "model.onnx", inputs)
    for width in (32, 150, 256):
        if only in f"tree_lstm_{width}" and (DATA / "trees").is_dir():
            yield tree_case(width)
        if only in f"forest_{width}" and (DATA / "trees").is_dir():
            yield forest_case(width)


def timed(call: Call, seconds: float) -> float:
    """Return the seconds of one call, over as many as fit."""
    count, start = 0, time.perf_counter()
    while True:
        call()
        count += 1
        spent = time.perf_counter() - start
        if spent >= seconds:
            return spent / count


def check(case: Case) -> None:
    """Compare outputs; a peer that differs is a fault to look at, not to time."""
    ours = case.ours()
    for peer, call in case.peers.items():
        if isinstance(call, str):
            continue
        for index, (a, b) in enumerate(zip(ours, call(), strict=True)):
            b = np.asarray(b)
            tolerance = 0.0 if peer in case.exact else TOLERANCE
            if a.shape != b.shape or not np.allclose(a, b, tolerance, tolerance):
                far = "shapes" if a.shape != b.shape else np.abs(a.astype(float) - b).max()
                raise SystemExit(f"{case.name}: output {index} differs from {peer}: {far}")


def measure(case: Case, seconds: float) -> Row:
    """Time all engines in turns."""
    row = Row()
    ours: list[float] = []
    for _ in range(ROUNDS):
        ours.append(timed(case.ours, seconds))
        for peer, call in case.peers.items():
            if not isinstance(call, str):
                row.ratios.setdefault(peer, []).append(timed(call, seconds) / ours[-1])
    row.ours = 1e6 * statistics.median(ours)
    return row


def show(case: Case, row: Row, *, as_json: bool) -> None:
    """Print a row."""
    if as_json:
        record: dict[str, Any] = {"name": case.name, "us": row.ours, "load_s": case.load}
        record["skipped"] = {p: c for p, c in case.peers.items() if isinstance(c, str)}
        record["ratios"] = row.ratios
        print(json.dumps(record), flush=True)
        return
    print(f"{case.name:28} {row.ours:11.1f} us  load {case.load:5.2f} s", end="")
    for peer, call in case.peers.items():
        if isinstance(call, str):
            print(f"   {peer}: {call}", end="")
        else:
            found = row.ratios[peer]
            print(
                f"   {peer} {statistics.median(found):7.2f}x ({min(found):.2f} .. {max(found):.2f})", end=""
            )
    print(flush=True)


def main() -> None:
    """Run all cases, or those that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print rows as JSON lines")
    parser.add_argument("--only", default="", help="part of the names of cases")
    parser.add_argument("--seconds", type=float, default=0.05, help="of each engine in each round")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for case in cases(Path(folder), options.only):
            check(case)
            show(case, measure(case, options.seconds), as_json=options.json)


if __name__ == "__main__":
    main()
