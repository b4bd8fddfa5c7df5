"""GroupNormalization: scale and bias of groups before opset 21, of channels since then."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from inlay.interp.tensor import evaluate_entry
from tests.unit.importers.onnx.models import load, meaning, model, value

GROUPS, CHANNELS = 3, 6
RNG = np.random.default_rng(3)


@pytest.mark.parametrize("constant", [True, False], ids=["constants", "inputs"])
@pytest.mark.parametrize("shape", [(2, 6, 4, 5), (2, 6, 7), (1, 6, 3, 2, 2), (2, 6)], ids=str)
@pytest.mark.parametrize("opset", [18, 21])
def test_it_is_what_the_specification_says(opset: int, shape: tuple[int, ...], *, constant: bool):
    count = GROUPS if opset < 21 else CHANNELS
    inputs = {"x": RNG.standard_normal(shape).astype(np.float32)}
    weights = {n: RNG.standard_normal(count).astype(np.float32) for n in ("scale", "bias")}
    node = helper.make_node(
        "GroupNormalization", ["x", "scale", "bias"], ["y"], num_groups=GROUPS, epsilon=1e-3
    )
    if not constant:
        inputs |= weights
    given = [value(n, a.shape) for n, a in inputs.items()]
    m = model([node], given, [value("y", shape)], weights if constant else None, opset=opset)
    [got] = evaluate_entry(load(m), inputs, meaning).values()
    [want] = ReferenceEvaluator(m).run(None, inputs)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
