"""The quantized LSTM of onnxruntime's quantizer, against onnxruntime."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

import inlay
from tests.unit.importers.onnx.models import load, model, run, value

STEPS, BATCH, INPUTS, HIDDEN = 6, 2, 5, 4


def lstm(direction: str, *, per_column: bool, lengths: bool, unsigned: bool):
    """Return a model of one LSTM, with weights as the quantizer writes them."""
    rng = np.random.default_rng(7)
    count = 2 if direction == "bidirectional" else 1
    size = (count, 4 * HIDDEN) if per_column else (count,)
    kind = np.uint8 if unsigned else np.int8
    # Products of the peer saturate in 16 bits on some machines where signed weights have 8.
    low, high = (0, 256) if unsigned else (-64, 64)
    zero = rng.integers(120, 136, size) if unsigned else np.zeros(size)
    fixed = {
        "w": rng.integers(low, high, (count, INPUTS, 4 * HIDDEN)).astype(kind),
        "r": rng.integers(low, high, (count, HIDDEN, 4 * HIDDEN)).astype(kind),
        "b": rng.standard_normal((count, 8 * HIDDEN)).astype(np.float32) / 4,
        "h": rng.standard_normal((count, BATCH, HIDDEN)).astype(np.float32) / 4,
        "c": rng.standard_normal((count, BATCH, HIDDEN)).astype(np.float32) / 4,
        "ws": (rng.random(size) / 100 + 0.002).astype(np.float32),
        "wz": zero.astype(kind),
        "rs": (rng.random(size) / 100 + 0.002).astype(np.float32),
        "rz": zero.astype(kind),
    }
    names = ["x", "w", "r", "b", "lengths" if lengths else "", "h", "c", ""]
    node = helper.make_node(
        "DynamicQuantizeLSTM",
        [*names, "ws", "wz", "rs", "rz"],
        ["y", "yh", "yc"],
        domain="com.microsoft",
        direction=direction,
        hidden_size=HIDDEN,
    )
    if lengths:
        fixed["lengths"] = np.array([6, 3], np.int32)
    shape: list[int | str | None] = ["steps", BATCH, INPUTS]
    outputs = [value(n, None) for n in node.output]
    m = model([node], [value("x", shape, TensorProto.FLOAT)], outputs, fixed, ir_version=9)
    m.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return m


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize(
    ("per_column", "lengths", "unsigned"), [(False, False, False), (True, False, False), (False, True, True)]
)
def test_as_onnxruntime(direction: str, per_column: bool, lengths: bool, unsigned: bool) -> None:
    m = lstm(direction, per_column=per_column, lengths=lengths, unsigned=unsigned)
    x = np.random.default_rng(1).standard_normal((STEPS, BATCH, INPUTS)).astype(np.float32)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(m.SerializeToString(), options, providers=["CPUExecutionProvider"])
    wanted = session.run(None, {"x": x})
    for got, want in zip(run(load(m), {"x": x}).values(), wanted, strict=True):
        np.testing.assert_allclose(got, want, atol=2e-3)


@pytest.mark.parametrize("per_column", [False, True])
def test_compiled(per_column: bool) -> None:
    """A product whose operand is scaled by one number that its kernel computes."""
    module = load(lstm("forward", per_column=per_column, lengths=False, unsigned=False))
    x = np.random.default_rng(1).standard_normal((STEPS, BATCH, INPUTS)).astype(np.float32)
    found = inlay.compile(module, cache="none").run({"x": x})
    for got, want in zip(found.values(), run(module, {"x": x}).values(), strict=True):
        np.testing.assert_allclose(got, want, atol=2e-3)
