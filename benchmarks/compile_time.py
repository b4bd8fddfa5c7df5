"""Compile time against the number of operations: it must be linear.

    python benchmarks/compile_time.py [--json]

The model is a chain of dense layers with a residual connection, `relu(x @ w + b) + x`, all of one
width, as in a network of repeated blocks: the number of operations grows, the number of distinct
kernels does not. What is measured is everything from the file to the executable, without the object
cache. The last column should not grow.
"""

from __future__ import annotations

import gc
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import inlay
from measure import Report

WIDTH = 16
LAYER = ("MatMul", "Add", "Relu", "Add")
SIZES = (100, 300, 1_000, 3_000, 10_000)


def network(operations: int) -> onnx.ModelProto:
    """Return a chain with this many operations."""
    rng = np.random.default_rng(0)
    weights = {"w": rng.standard_normal((WIDTH, WIDTH)) / 8, "b": rng.standard_normal(WIDTH)}
    nodes, layer_input, x = [], "x", "x"
    for i in range(operations):
        op = LAYER[i % len(LAYER)]
        second = {0: ["w"], 1: ["b"], 2: [], 3: [layer_input]}[i % len(LAYER)]
        nodes.append(helper.make_node(op, [x, *second], [f"v{i}"]))
        x = f"v{i}"
        if i % len(LAYER) == len(LAYER) - 1:
            layer_input = x
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "chain",
        [value("x", TensorProto.FLOAT, ["n", WIDTH])],
        [value(x, TensorProto.FLOAT, ["n", WIDTH])],
        [numpy_helper.from_array(a.astype(np.float32), n) for n, a in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def seconds(operations: int) -> tuple[float, float]:
    """Return the time to load and the time to compile a chain."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "chain.onnx"
        onnx.save(network(operations), path)
        gc.collect()
        start = time.perf_counter()
        module = inlay.load(path)
        loaded = time.perf_counter()
        inlay.compile(module, cache="none")
        return loaded - start, time.perf_counter() - loaded


def main() -> None:
    """Print a row for each size."""
    report = Report("compile time", ["operations", "load s", "compile s", "us/operation"])
    seconds(SIZES[0])  # imports
    for size in SIZES:
        load, compiling = seconds(size)
        report.row(size, round(load, 3), round(compiling, 3), round((load + compiling) / size * 1e6))


if __name__ == "__main__":
    main()
