"""What a call from Python costs: a small network, against onnxruntime with bound inputs and outputs.

    python benchmarks/call.py [--json] [--layers N] [--width N] [--seconds S]

Weights are random, outputs are compared first. Rows are ways to call; a time is the least mean of a burst of
100 calls, and all ways take turns.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable

import numpy as np
import onnxruntime as ort
from onnx import ModelProto, TensorProto, helper, numpy_helper

import inlay

BURST = 100


def network(layers: int, width: int) -> ModelProto:
    """Return a perceptron of one row."""
    rng = np.random.default_rng(0)
    nodes, constants, last = [], [], "x"
    for i in range(layers):
        w = (rng.standard_normal((width, width)) / width**0.5).astype(np.float32)
        b = rng.standard_normal(width).astype(np.float32)
        constants += [numpy_helper.from_array(w, f"w{i}"), numpy_helper.from_array(b, f"b{i}")]
        nodes.append(helper.make_node("Gemm", [last, f"w{i}", f"b{i}"], [f"s{i}"]))
        nodes.append(helper.make_node("Relu", [f"s{i}"], [f"y{i}"]))
        last = f"y{i}"
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, (1, width)) for n in ("x", last)]
    graph = helper.make_graph(nodes, "perceptron", ends[:1], ends[1:], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def ways(layers: int, width: int) -> dict[str, Callable[[], object]]:
    """Return the ways to call the network, ours first."""
    model = network(layers, width)
    x = np.random.default_rng(1).standard_normal((1, width)).astype(np.float32)
    executable = inlay.compile(model, threads=1)
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    [expected] = session.run(None, {"x": x})
    np.testing.assert_allclose(executable(x), expected, rtol=1e-4, atol=1e-4)
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", ort.OrtValue.ortvalue_from_numpy(x))
    binding.bind_ortvalue_output(
        session.get_outputs()[0].name, ort.OrtValue.ortvalue_from_numpy(expected.copy())
    )
    return {
        "executable(x)": lambda: executable(x),
        "executable.run": lambda: executable.run({"x": x}),
        "onnxruntime run": lambda: session.run(None, {"x": x}),
        "onnxruntime bound": lambda: session.run_with_iobinding(binding),
    }


def burst(call: Callable[[], object]) -> float:
    """Return the mean microseconds of some calls."""
    begun = time.perf_counter()
    for _ in range(BURST):
        call()
    return (time.perf_counter() - begun) / BURST * 1e6


def main() -> None:
    """Print a row for each way."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print rows as JSON lines")
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=5.0)
    given = parser.parse_args()
    calls = ways(given.layers, given.width)
    best = dict.fromkeys(calls, float("inf"))
    end = time.perf_counter() + given.seconds
    while time.perf_counter() < end:
        for name, call in calls.items():
            best[name] = min(best[name], burst(call))
    bound = best["onnxruntime bound"]
    if not given.json:
        print(f"{'way':>20} {'us':>8} {'of bound':>9}")
    for name, us in best.items():
        if given.json:
            print(json.dumps({"benchmark": "call", "way": name, "us": us, "of_bound": us / bound}))
        else:
            print(f"{name:>20} {us:8.2f} {us / bound:9.2f}")


if __name__ == "__main__":
    main()
