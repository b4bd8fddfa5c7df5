"""Quantizers of QONNX: what they give, and that what stands between them is computed in integers."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import inlay
from inlay.base.diagnostics import CompileError
from tests.qdq import Float

DOMAIN = "qonnx.custom_op.general"


def number(m: Float, value: float) -> str:
    return m.fixed(np.float32(value))


def quant(m: Float, x: str, scale: float, zero: float = 0, bits: float = 8, **attrs: object) -> str:
    return m.op("Quant", x, number(m, scale), number(m, zero), number(m, bits), domain=DOMAIN, **attrs)


def finished(m: Float, out: str) -> onnx.ModelProto:
    return m.model(out, domains=(DOMAIN,))


@pytest.mark.sample(6)
@pytest.mark.parametrize(("signed", "narrow"), [(0, 0), (0, 1), (1, 0), (1, 1)])
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_values_are_rounded_to_steps(signed, narrow, bits):
    m = Float((40,))
    out = quant(m, "x", 0.3, 1, bits, signed=signed, narrow=narrow, rounding_mode="ROUND")
    x = m.samples(1)[0]["x"] * 9
    ends = {0: (0, 2**bits - 1 - narrow), 1: (-(2 ** (bits - 1)) + narrow, 2 ** (bits - 1) - 1)}[signed]
    real = np.float32
    wanted = (np.clip(np.round(x / real(0.3) + real(1)), *ends) - real(1)) * real(0.3)
    found = inlay.compile(finished(m, out).SerializeToString(), cache=None, exact_qdq=True).run({"x": x})[out]
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


@pytest.mark.parametrize(("mode", "meaning"), [("FLOOR", np.floor), ("CEIL", np.ceil)])
def test_other_roundings(mode, meaning):
    m = Float((40,))
    out = quant(m, "x", 0.25, signed=1, rounding_mode=mode)
    x = m.samples(1)[0]
    found = inlay.compile(finished(m, out).SerializeToString(), cache=None).run(x)[out]
    np.testing.assert_allclose(found, np.clip(meaning(x["x"] * 4), -128, 127) / 4)


def test_signs():
    m = Float((40,))
    out = m.op("BipolarQuant", "x", number(m, 0.5), domain=DOMAIN)
    x = m.samples(1)[0]
    found = inlay.compile(finished(m, out).SerializeToString(), cache=None).run(x)[out]
    np.testing.assert_array_equal(found, np.where(x["x"] >= 0, 0.5, -0.5))


def test_what_stands_between_is_integers():
    m = Float((1, 3, 8, 8))
    w = quant(m, m.weights(4, 3, 3, 3), 0.01, bits=4, signed=1, narrow=1)
    x = m.op("Relu", m.op("Conv", quant(m, "x", 0.02, signed=1), w, pads=[1] * 4))
    x = m.op("Flatten", quant(m, x, 0.01, signed=0))
    out = m.op("MatMul", x, quant(m, m.weights(256, 5), 0.01, signed=1))
    model, inputs = finished(m, out).SerializeToString(), m.samples(1)[0]
    got, wanted = (inlay.compile(model, cache=None, exact_qdq=e).run(inputs)[out] for e in (False, True))
    np.testing.assert_allclose(got, wanted, atol=0.01 * 1.28 * 3)
    found = inlay.explain(model, view="numerics")
    assert not found.floats
    assert {"conv", "matmul"} <= {o.operator for o in found.integers}


@pytest.mark.parametrize(("bits", "mode"), [(3.5, "ROUND"), (40, "ROUND"), (8, "HALF_DOWN")])
def test_what_is_not_possible_is_refused(bits, mode):
    m = Float((4,))
    out = quant(m, "x", 0.3, bits=bits, rounding_mode=mode)
    with pytest.raises(CompileError, match="rounds to"):
        inlay.load(finished(m, out).SerializeToString())
