"""Real models with products in bf16: near their stored results, and not the same."""

from __future__ import annotations

import numpy as np
import pytest

import inlay
from tests.data import cases, model_case

FLOATS = ("mnist8", "micro_kws_fp32", "gen_dyn_transformer_onnx", "deeploy_cct_16", "gen_scan_rnn_onnx")
FAR = 0.05
"""Of the largest element of an output."""


def farthest(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> float:
    """Return the largest difference of floats over the largest element of their output."""
    return max(
        float(np.abs(found[name] - y).max() / np.abs(y).max())
        for name, y in expected.items()
        if y.dtype.kind == "f"
    )


@pytest.mark.sample(2)
@pytest.mark.llvm
@pytest.mark.data
@pytest.mark.parametrize("id", [c.id for c in cases("onnx") if c.id in FLOATS])
def test_results_are_near_the_stored_ones(id: str) -> None:
    case = model_case(id)
    narrow = inlay.compile(case.model, threads=1, cache="none", precision="bf16")
    products = inlay.explain(case.model, view="numerics", precision="bf16").products
    for run in case.runs():
        found = farthest(narrow.run(run.inputs), run.outputs)
        assert found < FAR
        if any(p.reason is None for p in products):
            assert found > 1e-6
