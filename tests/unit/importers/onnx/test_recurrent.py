"""LSTM, GRU and RNN in all their forms, against onnxruntime."""

from __future__ import annotations

from random import Random

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from inlay.ir.expr import Call, OpRef
from inlay.ir.walk import postorder
from tests.unit.importers.onnx.models import load, model, run, value

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def random_case(seed: int) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """Return a model of one recurrent node, and inputs for it."""
    random, numbers = Random(seed), np.random.default_rng(seed)
    kind = random.choice(list(GATES))
    direction = random.choice(["forward", "reverse", "bidirectional"])
    flows = 2 if direction == "bidirectional" else 1
    steps, batch, inputs, hidden = (random.randint(1, n) for n in (5, 3, 4, 4))
    gates = GATES[kind] * hidden
    shapes = {"x": (steps, batch, inputs), "w": (flows, gates, inputs), "r": (flows, gates, hidden)}
    optional: dict[str, tuple[int, ...]] = {"b": (flows, 2 * gates), "lengths": (batch,)}
    optional["h"] = (flows, batch, hidden)
    if kind == "LSTM":
        optional |= {"c": (flows, batch, hidden), "p": (flows, 3 * hidden)}
    names = ["x", "w", "r"]
    for name, shape in optional.items():
        given = random.random() < 0.6
        names.append(name if given else "")
        if given:
            shapes[name] = shape
    feeds = {
        n: numbers.integers(1, steps + 1, s).astype(np.int32)
        if n == "lengths"
        else numbers.normal(size=s).astype(np.float32)
        for n, s in shapes.items()
    }
    attrs: dict[str, object] = {"hidden_size": hidden, "direction": direction}
    if random.random() < 0.3:
        attrs["clip"] = 0.5
    if kind == "GRU":
        attrs["linear_before_reset"] = random.randint(0, 1)
    if kind == "LSTM" and random.random() < 0.2:
        attrs["input_forget"] = 1
    outputs = ["y", "y_h", "y_c"] if kind == "LSTM" else ["y", "y_h"]
    declared = [
        value(n, a.shape, TensorProto.INT32 if n == "lengths" else TensorProto.FLOAT)
        for n, a in feeds.items()
    ]
    node = helper.make_node(kind, names, outputs, **attrs)
    return model([node], declared, [value(o, None) for o in outputs], opset=14, ir_version=8), feeds


@pytest.mark.sample(12)
@pytest.mark.parametrize("seed", range(40))
def test_agrees_with_onnxruntime(seed):
    runtime = pytest.importorskip("onnxruntime")
    m, feeds = random_case(seed)
    session = runtime.InferenceSession(m.SerializeToString())
    wanted = session.run(None, feeds)
    got = run(m, feeds)
    for want, have in zip(wanted, got.values(), strict=True):
        np.testing.assert_allclose(have, want, rtol=1e-4, atol=1e-5)


def test_products_with_the_inputs_are_made_before_the_loop():
    m, _ = random_case(3)
    main = load(m).functions["main"]
    calls = [
        e.callee.op.name for e in postorder(main.body) if isinstance(e, Call) and isinstance(e.callee, OpRef)
    ]
    assert calls.index("matmul") < calls.index("get_row")
