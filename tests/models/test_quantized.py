"""Quantized networks in integers against their QDQ graphs in f64, layer by layer."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import inlay
from tests.data import model_case
from tests.qdq import Float, deviations, quantized, run_watched

pytestmark = pytest.mark.llvm
onnxruntime = pytest.importorskip("onnxruntime")
quantization = pytest.importorskip("onnxruntime.quantization")
U8, I8 = quantization.QuantType.QUInt8, quantization.QuantType.QInt8
QOPERATOR = quantization.QuantFormat.QOperator
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
    "operators": {"activation_type": U8, "weight_type": I8, "per_channel": True, "quant_format": QOPERATOR},
    "operators, asymmetric": {"activation_type": U8, "weight_type": U8, "quant_format": QOPERATOR},
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


def test_dynamic_quantization_multiplies_without_zero_points(tmp_path):
    m, out = residual_net()
    path = tmp_path / "float.onnx"
    onnx.save(m.model(out), path)
    quantization.quantize_dynamic(path, tmp_path / "dynamic.onnx", weight_type=U8)
    inputs = m.samples(1)[0]
    wanted = onnxruntime.InferenceSession(tmp_path / "dynamic.onnx").run(None, inputs)[0]
    compiled = inlay.compile(tmp_path / "dynamic.onnx", threads=1, cache=None)
    np.testing.assert_allclose(compiled.run(inputs)[out], wanted, rtol=1e-4, atol=1e-5)
    # Weights of bytes without a sign became such with one: no zero point is an operand.
    found = inlay.explain(tmp_path / "dynamic.onnx", view="numerics")
    assert [o.operator for o in found.integers] == ["conv_integer"] * 4 + ["matmul_integer"]
    assert all({"mul", "sub"} <= set(o.became) for o in found.integers)


def test_keyword_model_is_integers_but_for_its_softmax():
    case = model_case("micro_kws_qdq")
    found = inlay.explain(case.model, view="numerics")
    assert [o.operator for o in found.floats] == ["softmax"]
    assert "no integer form" in found.floats[0].message
    assert sum(o.operator in ("conv", "matmul") for o in found.integers) == 6
    assert all(-(2**31) < o.low <= 0 <= o.high < 2**31 for o in found.integers)
    exact = inlay.explain(case.model, view="numerics", exact_qdq=True)
    assert not exact.integers
    assert {o.reason for o in exact.floats} == {"asked"}
    assert len(exact.floats) > 10
