"""Quantized networks in integers against their QDQ graphs in f64, layer by layer."""

from __future__ import annotations

import numpy as np
import pytest

from tests.qdq import Float, deviations, quantized, run_watched

pytestmark = pytest.mark.llvm
quantization = pytest.importorskip("onnxruntime.quantization")
U8, I8 = quantization.QuantType.QUInt8, quantization.QuantType.QInt8
FORMS = {
    "u8s8 per channel": {"activation_type": U8, "weight_type": I8, "per_channel": True},
    "s8s8": {"activation_type": I8, "weight_type": I8},
    "u8u8": {"activation_type": U8, "weight_type": U8},
    "s8s8 symmetric": {
        "activation_type": I8,
        "weight_type": I8,
        "per_channel": True,
        "extra_options": {"ActivationSymmetric": True},
    },
}


def residual_net() -> tuple[Float, str]:
    """A convolution net: strided, depthwise and 1x1 convolutions, a residual, pools, a joint, a product."""
    m = Float((1, 3, 10, 10))
    x = m.op("Relu", m.conv("x", 8, 3, strides=[2, 2]))
    y = m.op("Clip", m.conv(x, 8, 8, group=8), m.fixed(np.float32(0)), m.fixed(np.float32(6)))
    x = m.op("Add", x, m.conv(y, 8, 8, 1))
    p = m.op("MaxPool", x, kernel_shape=[3, 3], strides=[1, 1], pads=[1, 1, 1, 1])
    a = m.op("AveragePool", x, kernel_shape=[2, 2], strides=[1, 1], pads=[0, 0, 1, 1], count_include_pad=1)
    x = m.op("Sigmoid", m.conv(m.op("Concat", p, a, axis=1), 10, 16, 1))
    x = m.op("Flatten", m.op("GlobalAveragePool", x))
    x = m.op("Gemm", x, m.weights(5, 10), m.fixed(np.arange(5, dtype=np.float32) / 5), transB=1)
    return m, m.op("Softmax", x, axis=-1)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.sample(1)
def test_layers_are_within_a_step_of_their_graph_in_f64(form, tmp_path):
    m, out = residual_net()
    model = quantized(m.model(out), m.samples(), tmp_path, **FORMS[form])
    inputs = m.samples(1)[0]
    steps = deviations(model, inputs, run_watched(model, inputs))
    assert len(steps) > 10
    assert max(steps.values()) <= 1, steps
    floats = deviations(model, inputs, run_watched(model, inputs, exact_qdq=True))
    assert max(floats.values()) <= 1, floats
