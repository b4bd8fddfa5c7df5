"""Whole networks of servers in all forms of onnxruntime's quantizer: each layer within a step of its graph in f64.

Images are small, so that a network takes seconds; channels, blocks and constants are those of large ones.
"""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from benchmarks.network_models import NETWORKS
from tests.models.test_quantized import FORMS
from tests.qdq import Float, deviations, quantized, run_watched

pytestmark = [pytest.mark.llvm, pytest.mark.slow]

SIZE = 64
WIDTH, HEADS, WORDS, LAYERS = 128, 4, 24, 3


def encoder() -> onnx.ModelProto:
    """An encoder of a transformer, as BERT's: attention and two products with gelu between, norms behind both."""
    m = Float((1, WORDS, WIDTH))
    one, none = m.fixed(np.ones(WIDTH, np.float32)), m.fixed(np.zeros(WIDTH, np.float32))
    apart = m.fixed(np.array([0, 0, HEADS, WIDTH // HEADS]))
    together = m.fixed(np.array([0, 0, WIDTH]))

    def number(x: float) -> str:
        return m.fixed(np.float32(x))

    def product(x: str, inputs: int, outputs: int) -> str:
        bias = m.fixed((m.rng.standard_normal(outputs) * 0.1).astype(np.float32))
        return m.op("Add", m.op("MatMul", x, m.weights(inputs, outputs)), bias)

    def gelu(x: str) -> str:
        half = m.op("Mul", x, number(0.5))
        return m.op("Mul", half, m.op("Add", m.op("Erf", m.op("Mul", x, number(0.5**0.5))), number(1)))

    x = "x"
    for _ in range(LAYERS):
        q, k, v = (
            m.op("Transpose", m.op("Reshape", product(x, WIDTH, WIDTH), apart), perm=perm)
            for perm in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
        )
        scores = m.op("Div", m.op("MatMul", q, k), number((WIDTH / HEADS) ** 0.5))
        mixed = m.op("Transpose", m.op("MatMul", m.op("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
        y = product(m.op("Reshape", mixed, together), WIDTH, WIDTH)
        x = m.op("LayerNormalization", m.op("Add", x, y), one, none, axis=-1)
        y = product(gelu(product(x, WIDTH, 4 * WIDTH)), 4 * WIDTH, WIDTH)
        x = m.op("LayerNormalization", m.op("Add", x, y), one, none, axis=-1)
    return m.model(x)


def inputs_of(name: str, count: int) -> list[dict[str, np.ndarray]]:
    shape = (1, WORDS, WIDTH) if name == "encoder" else (1, 3, SIZE, SIZE)
    rng = np.random.default_rng(3)
    return [{"x": rng.standard_normal(shape).astype(np.float32)} for _ in range(count)]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["mobilenet_v2", "resnet50", "encoder"])
def test_layers_of_large_networks_are_within_a_step(name, form, tmp_path):
    whole = encoder() if name == "encoder" else NETWORKS[name][0](SIZE)
    model = quantized(whole, inputs_of(name, 2), tmp_path, **FORMS[form])
    inputs = inputs_of(name, 3)[2]
    steps = deviations(model, inputs, run_watched(model, inputs))
    assert len(steps) > 30
    assert max(steps.values()) <= 1, {k: v for k, v in steps.items() if v > 1}
