"""Runs a model here and by onnxruntime, and compares: shapes, element types, values.

Sums of floats may differ in their order, so floats are compared within a tolerance.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context, parent_process
from threading import Thread

import numpy as np
import onnx

from inlay.api import compilation
from inlay.base.diagnostics import CompileError, RunError
from inlay.importers.onnx.graph import import_model
from inlay.importers.onnx.load import parse_model
from inlay.ops.table import table
from inlay.runtime.session import executable_of
from tests.fuzz.draw_control import inputs_of

RTOL, ATOL = 1e-4, 1e-4


class DifferenceError(Exception):
    """Our outcome is another one than that of onnxruntime."""


def compared(data: bytes) -> str:
    """Return what happened: `ok`, or why onnxruntime gives nothing to compare.

    How it is compiled follows from the model, too.

    Raises:
        DifferenceError: onnxruntime computes something else, or we nothing.
    """
    seed = zlib.crc32(data)
    model = parse_model(data, "drawn")
    inputs = inputs_of(model, seed)
    expected = _PEER(_without_passing(model).SerializeToString(), inputs)
    if isinstance(expected, str):
        return expected
    try:
        module = import_model(model, table())
        options = {"batch": seed & 1 == 1, "plan": "parallel" if seed & 2 == 2 else "serial", "verify": True}
        program = compilation(module, cache="none", **options).program
        executable = executable_of(program, threads=1 + (seed >> 2 & 1))
        found = executable(*inputs.values())
    except (CompileError, RunError) as failure:
        raise DifferenceError(f"onnxruntime computes what we refuse: {failure}") from failure
    results = found if isinstance(found, tuple) else (found,)
    for info, a, b in zip(model.graph.output, results, expected, strict=True):
        _compare(info.name, np.asarray(a), b)
    return "ok"


def _without_passing(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the same with a node for each value that a body only hands on.

    onnxruntime leaves such outputs of bodies undefined, or all turns with the value of the last.
    """
    plain = onnx.ModelProto()
    plain.CopyFrom(model)
    pending = [plain.graph]
    while pending:
        graph = pending.pop()
        made = {o for n in graph.node for o in n.output}
        given = {i.name for i in graph.input}
        for output in graph.output:
            if output.name in given - made:
                name = f"{output.name}_handed_on"
                graph.node.append(onnx.helper.make_node("Identity", [output.name], [name]))
                output.name = name
        for n in graph.node:
            pending += [a.g for a in n.attribute if a.HasField("g")]
    return plain


class Peer:
    """onnxruntime in a process of its own: some models end it."""

    def __init__(self) -> None:
        self._pool: ProcessPoolExecutor | None = None

    def __call__(self, data: bytes, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray] | str:
        """Return the outputs of a model, or why there are none: `invalid`, `stopped`, `crashed`."""
        if self._pool is None:
            self._pool = ProcessPoolExecutor(1, get_context("spawn"), _end_with_parent)
        try:
            return self._pool.submit(_peer, data, dict(inputs)).result()
        except BrokenProcessPool:
            self._pool = None
            return "crashed"


def _end_with_parent() -> None:
    """End this process when the one that made it ends, in whatever way: the pool sees to good ends only."""

    def watch() -> None:
        if parent := parent_process():
            parent.join()
        os._exit(1)

    Thread(target=watch, daemon=True).start()


def _peer(data: bytes, inputs: dict[str, np.ndarray]) -> list[np.ndarray] | str:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    except Exception:
        return "invalid"
    try:
        return session.run(None, inputs)
    except Exception:
        return "stopped"


_PEER = Peer()


def _compare(name: str, found: np.ndarray, expected: np.ndarray) -> None:
    expected = np.asarray(expected)
    if found.dtype == expected.dtype and not found.size and not expected.size:
        return  # what no turn has stacked has sizes that nobody defines
    if found.dtype != expected.dtype or found.shape != expected.shape:
        raise DifferenceError(
            f"{name}: found {found.dtype}{list(found.shape)}, needed {expected.dtype}{list(expected.shape)}"
        )
    if found.dtype.kind == "f":
        same = np.allclose(found, expected, rtol=RTOL, atol=ATOL, equal_nan=True)
    else:
        same = np.array_equal(found, expected)
    if not same:
        raise DifferenceError(f"{name}: found {found.tolist()}, needed {expected.tolist()}")
