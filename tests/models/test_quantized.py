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
    "16 bits": {"activation_type": quantization.QuantType.QInt16, "weight_type": I8, "per_channel": True},
    "16 bits, asymmetric": {"activation_type": quantization.QuantType.QUInt16, "weight_type": I8},
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


def attention() -> tuple[Float, str]:
    """Attention in a block of a transformer: products of what is computed, a softmax, a norm, a gate."""
    m = Float((2, 5, 8))
    q, k, v = (m.op("Add", m.op("MatMul", "x", m.weights(8, 8)), m.weights(8)) for _ in range(3))
    scores = m.op("MatMul", q, m.op("Transpose", k, perm=[0, 2, 1]))
    shares = m.op("Softmax", m.op("Mul", scores, m.fixed(np.float32(0.35))), axis=-1)
    x = m.op("Add", m.op("MatMul", shares, v), "x")
    one, none = m.fixed(np.ones(8, np.float32)), m.fixed(np.zeros(8, np.float32))
    x = m.op("MatMul", m.op("LayerNormalization", x, one, none, axis=-1), m.weights(8, 16))
    return m, m.op("MatMul", m.op("Mul", x, m.op("Sigmoid", x)), m.weights(16, 8))


NETS = {"residual": residual_net, "attention": attention}
"""Networks, and which of their operators stay float between integers."""
FLOATS = {"residual": {"softmax"}, "attention": {"softmax", "layer_norm"}}


@pytest.mark.parametrize(("net", "form"), [(n, f) for n in NETS for f in FORMS])
@pytest.mark.sample(1)
def test_layers_are_within_a_step_of_their_graph_in_f64(net, form, tmp_path):
    m, out = NETS[net]()
    model = quantized(m.model(out), m.samples(), tmp_path, **FORMS[form])
    inputs = m.samples(1)[0]
    steps = deviations(model, inputs, run_watched(model, inputs))
    assert len(steps) > 8
    assert max(steps.values()) <= 1, steps
    floats = deviations(model, inputs, run_watched(model, inputs, exact_qdq=True))
    assert max(floats.values()) <= 1, floats
    if "16 bits" not in form:
        found = inlay.explain(model.SerializeToString(), view="numerics")
        assert {o.operator for o in found.floats} == FLOATS[net]


MORE = {
    "weights quantized in the graph": {"AddQDQPairToWeight": True},
    "a pair for each reader": {"DedicatedQDQPair": True},
    "biases in floats": {"QuantizeBias": False},
}


def many_operators() -> tuple[Float, str]:
    """What stands beside products: norms, gates, pads, slices, resizing, means, differences."""
    m = Float((2, 4, 9, 9), dims=("n", 4, 9, 9))
    x = m.op("LeakyRelu", m.conv("x", 8, 4), alpha=0.1)
    statistics = [m.fixed(m.rng.random(8).astype(np.float32) + 0.5) for _ in range(4)]
    x = m.op("BatchNormalization", m.conv(x, 8, 8, group=2, dilations=[2, 2], pads=[2] * 4), *statistics)
    gate = m.op("HardSigmoid", m.conv(m.op("GlobalAveragePool", x), 8, 8, 1), alpha=0.2, beta=0.5)
    pads = m.fixed(np.array([0, 0, 1, 1, 0, 0, 1, 1]))
    x = m.op("Pad", m.op("Mul", x, gate), pads, m.fixed(np.float32(0)))
    x = m.op("Slice", x, *(m.fixed(np.array([v])) for v in (1, 9, 2)))
    x = m.op("Resize", x, "", m.fixed(np.array([1, 1, 2, 2], np.float32)), mode="nearest")
    x = m.op("ConvTranspose", x, m.weights(8, 4, 2, 2), strides=[2, 2])
    x = m.op("ReduceMean", m.op("Mul", x, m.fixed(np.float32(0.3))), axes=[2, 3], keepdims=0)
    return m, m.op("Sub", m.op("Tanh", x), m.op("Gemm", x, m.weights(4, 4)))


@pytest.mark.parametrize("settings", MORE)
@pytest.mark.sample(1)
def test_operators_beside_products_agree_with_floats(settings, tmp_path):
    m, out = many_operators()
    options = {"activation_type": U8, "weight_type": I8, "extra_options": MORE[settings]}
    model = quantized(m.model(out, 13), m.samples(), tmp_path, **options).SerializeToString()
    inputs = m.samples(1)[0]
    got, wanted = (
        inlay.compile(model, threads=1, cache=None, exact_qdq=e).run(inputs) for e in (False, True)
    )
    step = 0.01  # of the output's scale, more than a step of it
    np.testing.assert_allclose(got[out], wanted[out], atol=step)
    kept = {o.operator for o in inlay.explain(model, view="numerics").floats}
    assert kept <= {"conv_transpose"}


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


def spelled_net() -> tuple[Float, str]:
    """A net as exporters of trained quantization write it: rounded and clamped floats, integers in floats."""
    m = Float((1, 3, 8, 8))

    def rounded(x: str, scale: float, zero: int) -> str:
        quotient = m.op("Add", m.op("Div", x, m.fixed(np.float32(scale))), m.fixed(np.float32(zero)))
        ends = m.fixed(np.float32(-128)), m.fixed(np.float32(127))
        return m.op("Clip", m.op("Round", quotient), *ends)

    def real(q: str, scale: float, zero: int) -> str:
        return m.op("Mul", m.op("Sub", q, m.fixed(np.float32(zero))), m.fixed(np.float32(scale)))

    def integers(*shape: int, most: int) -> str:
        return m.fixed(m.rng.integers(-most, most + 1, shape).astype(np.float32))

    q = m.op("Sub", rounded("x", 0.02, 3), m.fixed(np.float32(3)))
    total = m.op("Conv", q, integers(6, 3, 3, 3, most=127), integers(6, most=999), pads=[1, 1, 1, 1])
    q = rounded(m.op("Relu", real(total, 0.0002, 0)), 0.015, -128)
    flat = m.op("Flatten", m.op("Sub", q, m.fixed(np.float32(-128))))
    return m, real(m.op("MatMul", flat, integers(384, 5, most=127)), 0.0001, 0)


def test_quantizes_spelled_out_in_floats_are_integers():
    m, out = spelled_net()
    model, inputs = m.model(out).SerializeToString(), m.samples(1)[0]
    got, wanted = (
        inlay.compile(model, threads=1, cache=None, exact_qdq=e).run(inputs) for e in (False, True)
    )
    np.testing.assert_allclose(got[out], wanted[out], atol=0.0001 * 127 * 3)
    found = inlay.explain(model, view="numerics")
    assert [o.operator for o in found.integers if o.operator in ("conv", "matmul")] == ["conv", "matmul"]
    assert not found.floats


def trained_net(spelling: str, *, per_channel: bool, casts: bool) -> tuple[Float, str]:
    """A residual net in the spellings of exporters of trained quantization; weights are integers times scales."""
    m = Float((4, 3, 8, 8), dims=("n", 3, 8, 8))

    def number(v: float) -> str:
        return m.fixed(np.float32(v))

    def rounded(x: str, scale: float, zero: int, low: int = -128) -> str:
        if spelling == "product":
            q = m.op("Mul", x, number(1 / scale))
        else:
            q = m.op("Div", x, number(scale))
        q = m.op("Add", q, number(zero))
        ends = number(low), number(127)
        if spelling == "clamped first":
            q = m.op("Round", m.op("Clip", q, *ends))
        else:
            q = m.op("Clip", m.op("Round", q), *ends)
        if casts:
            q = m.op("Cast", m.op("Cast", q, to=onnx.TensorProto.INT8), to=onnx.TensorProto.FLOAT)
        return m.op("Mul", m.op("Sub", q, number(zero)), number(scale))

    def weights(*shape: int) -> str:
        sizes = (shape[0], *[1] * (len(shape) - 1)) if per_channel else (1,)
        scales = m.fixed(m.rng.uniform(0.002, 0.01, sizes).astype(np.float32))
        return m.op("Mul", m.fixed(np.round(m.rng.uniform(-127, 127, shape)).astype(np.float32)), scales)

    def conv(x: str, oc: int, c: int, group: int = 1) -> str:
        bias = m.fixed((m.rng.standard_normal(oc) * 0.1).astype(np.float32))
        return m.op("Conv", x, weights(oc, c // group, 3, 3), bias, pads=[1] * 4, group=group)

    x = rounded(m.op("Relu", conv(rounded("x", 0.02, 3), 8, 3)), 0.02, -128)
    y = rounded(m.op("Add", rounded(conv(x, 8, 8, 8), 0.03, 3), x), 0.04, 3)
    y = m.op("Flatten", rounded(m.op("GlobalAveragePool", y), 0.01, 3))
    return m, m.op("Gemm", y, weights(5, 8), transB=1)


@pytest.mark.parametrize("spelling", ["quotient", "product", "clamped first"])
@pytest.mark.parametrize(("per_channel", "casts"), [(False, False), (True, False), (True, True)])
@pytest.mark.sample(1)
def test_trained_networks_are_integers(spelling, per_channel, casts):
    m, out = trained_net(spelling, per_channel=per_channel, casts=casts)
    model, inputs = m.model(out).SerializeToString(), m.samples(1)[0]
    got, wanted = (
        inlay.compile(model, threads=1, cache=None, exact_qdq=e).run(inputs) for e in (False, True)
    )
    np.testing.assert_allclose(got[out], wanted[out], atol=0.01 * 127 * 0.01 * 8)
    found = inlay.explain(model, view="numerics")
    assert not found.floats
    products = [o.operator for o in found.integers if o.operator in ("conv", "matmul")]
    assert products == ["conv", "conv", "matmul"]
