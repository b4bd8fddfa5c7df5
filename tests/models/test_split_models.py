"""Whole models split over the devices of a board, by pins and by predicted time."""

from __future__ import annotations

import importlib.util

import numpy as np
import onnx
import pytest

import inlay
from inlay.base.diagnostics import CompileError
from inlay.bytecode.program import CopyBody, DeviceBody
from tests.data import REPOSITORY, data_path, minilm, model_case

pytestmark = [pytest.mark.llvm, pytest.mark.data]
SLOW = pytest.mark.slow
ACTIVATIONS = ("sigmoid=DEVICE", "mul=DEVICE", "relu=DEVICE")


def opened(compile):
    """Load or compile; skip where the device is not here."""
    try:
        return compile()
    except CompileError as failure:
        if failure.ids != ("run.device-absent",):
            raise
        pytest.skip(str(failure))


def split(path, board: str, pins: tuple[str, ...], mode: str = "parallel"):
    device = {"host_two": "cpu1", "opencl": "cl0"}[board]
    named = tuple(p.replace("DEVICE", device) for p in pins)
    exe = opened(
        lambda: inlay.compile(path, board=board, pins=named, cache="none", threads=2, mode=mode)
    )
    bodies = [k.body for k in exe.program.kernels]
    if pins:
        assert any(isinstance(b, DeviceBody) for b in bodies)
        assert any(isinstance(b, CopyBody) for b in bodies)
    return exe


@pytest.mark.parametrize("mode", ["sequential", "parallel"])
@pytest.mark.parametrize(
    ("id", "board", "pins"),
    [
        ("mnist8", "host_two", ("*=DEVICE",)),
        pytest.param("micro_kws_qdq", "host_two", ("*=DEVICE",), marks=SLOW),
        pytest.param("ultraface_rfb320", "host_two", ("conv*=DEVICE",), marks=SLOW),
        pytest.param("ultraface_rfb320", "host_two", (), marks=SLOW),
        pytest.param("silero_vad_16k", "host_two", ACTIVATIONS, marks=SLOW),
        pytest.param("silero_vad_16k", "host_two", (), marks=SLOW),
        pytest.param("mnist8", "opencl", ("*=DEVICE",), marks=SLOW),
        pytest.param("micro_kws_qdq", "opencl", ("conv*=DEVICE",), marks=SLOW),
        pytest.param("silero_vad_16k", "opencl", ACTIVATIONS, marks=SLOW),
        pytest.param("ultraface_rfb320", "opencl", ("relu=DEVICE",), marks=SLOW),
    ],
)
def test_models(id, board, pins, mode):
    """Equal to what is stored, and two runs are equal bit for bit."""
    case = model_case(id)
    exe = split(case.model, board, pins, mode)
    for run in case.runs():
        first = exe.run(run.inputs)
        case.check(first, run.outputs)
        again = exe.run(run.inputs)
        for name, value in first.items():
            np.testing.assert_array_equal(again[name], value)
    assert exe.live_objects() == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("board", "pins"), [("host_two", ("*matmul*=DEVICE",)), ("host_two", ()), ("opencl", ())]
)
def test_sentence_embeddings(board, pins, tmp_path):
    """MiniLM of any batch and length."""
    minilm()
    source = REPOSITORY / "examples" / "sentence_embedding" / "build_minilm.py"
    spec = importlib.util.spec_from_file_location("build_minilm", source)
    builder = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(builder)
    path = tmp_path / "minilm.onnx"
    onnx.save(builder.build(), path)
    exe = split(path, board, pins)
    with np.load(data_path("minilm", "runs.npz")) as stored:
        for run in range(3):
            inputs = {
                name: stored[f"run{run}/in/{name}"]
                for name in ("input_ids", "attention_mask", "token_type_ids")
            }
            found = exe.run(inputs)["embedding"]
            np.testing.assert_allclose(found, stored[f"run{run}/out/embedding"], atol=1e-5)
