"""Many kinds of networks in all forms that onnxruntime's quantizer makes: each layer within a step of its graph.

What is not computed in integers is listed with its reason, and batches have any size.
"""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import inlay
from tests.models.test_quantized import FORMS, I8, QOPERATOR, U8, quantization
from tests.qdq import Float, deviations, quantized, run_watched

pytestmark = pytest.mark.llvm

MORE = {
    "u8s8 in a reduced range": {"activation_type": U8, "weight_type": I8, "reduce_range": True},
    "operators, s8s8": {"activation_type": I8, "weight_type": I8, "quant_format": QOPERATOR},
    "operators, u8u8 per channel": {
        "activation_type": U8,
        "weight_type": U8,
        "quant_format": QOPERATOR,
        "per_channel": True,
    },
}
ALL = FORMS | MORE


def pooled(m: Float, x: str) -> str:
    return m.op("Flatten", m.op("GlobalAveragePool", x))


def hard_swish_net() -> tuple[Float, str]:
    """An inverted bottleneck with hard-swish, and channels that are scaled by what they are on average."""
    m = Float((2, 3, 16, 16), dims=("n", 3, 16, 16))
    x = m.op("HardSwish", m.conv("x", 8, 3, strides=[2, 2]))
    y = m.op("HardSwish", m.conv(x, 8, 8, group=8))
    s = m.op("Relu", m.conv(m.op("GlobalAveragePool", y), 4, 8, 1))
    s = m.op("HardSigmoid", m.conv(s, 8, 4, 1), alpha=1 / 6, beta=0.5)
    x = m.op("Add", x, m.conv(m.op("Mul", y, s), 8, 8, 1))
    return m, m.op("Gemm", pooled(m, x), m.weights(8, 5))


def swish_net() -> tuple[Float, str]:
    """The same with a product of each value and its sigmoid."""
    m = Float((2, 3, 12, 12), dims=("n", 3, 12, 12))

    def swish(x: str) -> str:
        return m.op("Mul", x, m.op("Sigmoid", x))

    x = swish(m.conv("x", 8, 3))
    y = swish(m.conv(x, 8, 8, group=8))
    s = m.op("ReduceMean", y, axes=[2, 3], keepdims=1)
    y = m.op("Mul", y, m.op("Sigmoid", m.conv(s, 8, 8, 1)))
    return m, m.op("Add", m.conv(y, 8, 8, 1), x)


def u_net() -> tuple[Float, str]:
    """Down, up by a transposed convolution and by interpolation, and joined."""
    m = Float((1, 3, 12, 12))
    a = m.op("Relu", m.conv("x", 6, 3))
    c = m.op("Relu", m.conv(m.op("MaxPool", a, kernel_shape=[2, 2], strides=[2, 2]), 6, 6))
    up = m.op("ConvTranspose", c, m.weights(6, 6, 2, 2), strides=[2, 2])
    sizes = m.fixed(np.array([1, 1, 2, 2], np.float32))
    x = m.op("Resize", m.op("Concat", a, up, axis=1), "", sizes, mode="linear")
    return m, m.op("Sigmoid", m.conv(x, 2, 12, 1))


def heads() -> tuple[Float, str]:
    """Heads of a detector on two scales, joined."""
    m = Float((2, 3, 12, 12), dims=("n", 3, 12, 12))
    found, x, channels = list[str](), "x", 3
    for _ in range(2):
        ends = m.fixed(np.float32(0)), m.fixed(np.float32(6))
        x, channels = m.op("Clip", m.conv(x, 8, channels, strides=[2, 2]), *ends), 8
        rows = m.op("Transpose", m.conv(x, 8, 8), perm=[0, 2, 3, 1])
        found.append(m.op("Reshape", rows, m.fixed(np.array([0, -1, 4]))))
    return m, m.op("Softmax", m.op("Concat", *found, axis=1), axis=-1)


def recurrent_net() -> tuple[Float, str]:
    """An LSTM and a GRU, whose results are multiplied."""
    m = Float((5, 2, 6))
    x = m.op("LSTM", "x", m.weights(1, 32, 6), m.weights(1, 32, 8), hidden_size=8)
    x = m.op(
        "GRU",
        m.op("Squeeze", x, m.fixed(np.array([1]))),
        m.weights(1, 24, 8),
        m.weights(1, 24, 8),
        hidden_size=8,
    )
    return m, m.op("MatMul", m.op("Squeeze", x, m.fixed(np.array([1]))), m.weights(8, 3))


def chosen() -> tuple[Float, str]:
    """Comparisons, choices and joints between products."""
    m = Float((2, 8), dims=("n", 8))
    x = m.op("MatMul", "x", m.weights(8, 8))
    y = m.op("LeakyRelu", x, alpha=0.1)
    x = m.op("Where", m.op("Less", x, y), x, y)
    return m, m.op("MatMul", m.op("Concat", x, m.op("Softmax", y, axis=-1), axis=1), m.weights(16, 4))


def lines() -> tuple[Float, str]:
    """Convolutions of one axis: plain, by groups, by channels, far apart, transposed."""
    m = Float((2, 4, 18), dims=("n", 4, 18))
    ends = m.fixed(np.float32(0)), m.fixed(np.float32(6))
    x = m.op("Relu", m.op("Conv", "x", m.weights(8, 4, 3), m.weights(8), pads=[1, 1]))
    x = m.op("Conv", x, m.weights(8, 4, 3), m.weights(8), group=2, pads=[2, 2], dilations=[2])
    x = m.op("Clip", m.op("Conv", x, m.weights(8, 1, 5), m.weights(8), group=8, pads=[2, 1]), *ends)
    return m, m.op("ConvTranspose", x, m.weights(8, 3, 4), m.weights(3), strides=[2], pads=[1, 1])


def both_ways() -> tuple[Float, str]:
    """Recurrent layers of two directions, with biases."""
    m = Float((5, 2, 6))
    x = m.op(
        "LSTM",
        "x",
        *(m.weights(2, 32, n) for n in (6, 8)),
        m.weights(2, 64),
        hidden_size=8,
        direction="bidirectional",
    )
    x = m.op("Reshape", m.op("Transpose", x, perm=[0, 2, 1, 3]), m.fixed(np.array([5, 2, 16])))
    more = {"hidden_size": 8, "direction": "bidirectional", "linear_before_reset": 1}
    x = m.op("GRU", x, *(m.weights(2, 24, n) for n in (16, 8)), m.weights(2, 48), **more)
    return m, m.op("MatMul", x, m.weights(8, 3))


NETS = {
    "both ways": (both_ways, 17),
    "lines": (lines, 21),
    "hard swish": (hard_swish_net, 14),
    "swish": (swish_net, 13),
    "u": (u_net, 17),
    "heads": (heads, 17),
    "recurrent": (recurrent_net, 17),
    "chosen": (chosen, 17),
}


SIXTEENTHS = {
    "u8s4": {"activation_type": U8, "weight_type": quantization.QuantType.QInt4, "per_channel": True},
    "u16u4": {
        "activation_type": quantization.QuantType.QUInt16,
        "weight_type": quantization.QuantType.QUInt4,
    },
}
FORMS_OF = {net: ALL | (SIXTEENTHS if opset >= 21 else {}) for net, (_, opset) in NETS.items()}


@pytest.mark.parametrize(("net", "form"), [(n, f) for n in NETS for f in FORMS_OF[n]])
@pytest.mark.sample(1)
def test_layers_are_within_a_step_of_their_graph(net, form, tmp_path):
    make, opset = NETS[net]
    m, out = make()
    model = quantized(m.model(out, opset), m.samples(), tmp_path, **FORMS_OF[net][form])
    inputs = m.samples(1)[0]
    results = run_watched(model, inputs)
    steps = deviations(model, inputs, results)
    assert steps
    assert max(steps.values()) <= 1, steps
    found = inlay.explain(model.SerializeToString(), view="numerics")
    assert found.integers
    assert all(o.reason and o.message for o in found.floats)


@pytest.mark.parametrize("net", NETS)
@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.sample(1)
def test_dynamic_quantization_agrees_with_the_peer(net, per_channel, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    make, opset = NETS[net]
    m, out = make()
    source, target = tmp_path / "float.onnx", tmp_path / "dynamic.onnx"
    onnx.save(m.model(out, opset), source)
    # Products of the peer's LSTM saturate in 16 bits on some machines where weights have all 8 bits.
    quantization.quantize_dynamic(source, target, weight_type=I8, per_channel=per_channel, reduce_range=True)
    inputs = m.samples(1)[0]
    wanted = onnxruntime.InferenceSession(target, providers=["CPUExecutionProvider"]).run(None, inputs)[0]
    found = inlay.compile(target, threads=1, cache=None).run(inputs)[out]
    # Where a value is near the middle of two steps, floats that differ in the last bit go to different ones.
    assert np.mean(np.abs(found - wanted) > 1e-3) < 0.02
    np.testing.assert_allclose(found, wanted, atol=0.05)
