"""Calls of other engines, for scripts that compare with them; what is not installed is left out."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

Call = Callable[[], Sequence[np.ndarray]]
ABSENT = "not installed"


def onnxruntime(model: Path, inputs: Mapping[str, np.ndarray], threads: int = 1) -> Call | str:
    """Return a call of onnxruntime, or why there is none."""
    if importlib.util.find_spec("onnxruntime") is None:
        return ABSENT
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
        return ABSENT
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


def torch(model: Path, inputs: Mapping[str, np.ndarray], threads: int = 1) -> Call | str:
    """Return a call of the model as a module of PyTorch, operator by operator, or why there is none."""
    return _module_call(model, inputs, threads, is_compiled=False)


def inductor(model: Path, inputs: Mapping[str, np.ndarray], threads: int = 1) -> Call | str:
    """Return a call of the same module behind `torch.compile`, or why there is none. Needs a C++ compiler.

    Its patterns of attention take no scale that is a tensor, as converted models have: then it goes without.
    """
    call = _module_call(model, inputs, threads, is_compiled=True)
    if isinstance(call, str) and call != ABSENT:
        import torch._inductor.config

        with torch._inductor.config.patch(pattern_matcher=False):
            call = _module_call(model, inputs, threads, is_compiled=True)
    return call


def _module_call(
    model: Path, inputs: Mapping[str, np.ndarray], threads: int, *, is_compiled: bool
) -> Call | str:
    if any(importlib.util.find_spec(name) is None for name in ("torch", "onnx2torch")):
        return ABSENT
    import onnx
    import torch
    from onnx2torch import convert

    torch.set_num_threads(threads)
    try:
        loaded = onnx.load(model)
        module = convert(loaded).eval()
        # A module takes its inputs by position, in the order of the graph.
        given = [torch.from_numpy(inputs[x.name]) for x in loaded.graph.input if x.name in inputs]
        call = torch.compile(module, dynamic=False) if is_compiled else module
        with torch.inference_mode():
            call(*given)
    except Exception as problem:
        return f"refuses: {str(problem).splitlines()[0][:80]}"

    def run() -> Sequence[np.ndarray]:
        with torch.inference_mode():
            found = call(*given)
        return [x.numpy() for x in (found if isinstance(found, tuple | list) else (found,))]

    return run
