"""Calls of other engines, for scripts that compare with them; what is not installed is left out."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

Call = Callable[[], Sequence[np.ndarray]]


def onnxruntime(model: Path, inputs: Mapping[str, np.ndarray], threads: int = 1) -> Call | str:
    """Return a call of onnxruntime, or why there is none."""
    if importlib.util.find_spec("onnxruntime") is None:
        return "not installed"
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 4
    try:
        session = ort.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
        session.run(None, inputs)
    except Exception as problem:
        return f"refuses: {str(problem).splitlines()[0][:80]}"
    return lambda: session.run(None, inputs)


def openvino(
    model: Path, inputs: Mapping[str, np.ndarray], threads: int = 1, precision: str = "f32"
) -> Call | str:
    """Return a call of OpenVINO, whose results the next call replaces, or why there is none."""
    if importlib.util.find_spec("openvino") is None:
        return "not installed"
    import openvino as ov

    try:
        settings = {
            "INFERENCE_NUM_THREADS": threads,
            "NUM_STREAMS": 1,
            "INFERENCE_PRECISION_HINT": precision,
            "PERFORMANCE_HINT": "LATENCY",
        }
        compiled = ov.Core().compile_model(str(model), "CPU", settings)
        request = compiled.create_infer_request()
        request.infer(inputs)
    except Exception as problem:
        return f"refuses: {str(problem).strip().splitlines()[-1][:80]}"

    def call() -> Sequence[np.ndarray]:
        request.infer(inputs)
        return [request.get_output_tensor(i).data for i in range(len(compiled.outputs))]

    return call
