"""Slices that go backward: ONNX starts at the first element where Python finds nothing."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.unit.importers.onnx.models import model, run, value

NAMES = ("starts", "ends", "axes", "steps")
CASES = [
    # start, end, step, what is left of 0..4
    (-9, -(2**63) + 1, -1, [0]),
    (-9, -9, -1, [0]),
    (-2, -9, -1, [3, 2, 1, 0]),
    (9, -9, -2, [4, 2, 0]),
    (-9, 9, 1, [0, 1, 2, 3, 4]),
    (2, 2**63 - 1, -1, []),
    (-(2**63), 2**63 - 1, 2, [0, 2, 4]),
]


@pytest.mark.parametrize(("start", "end", "step", "left"), CASES)
@pytest.mark.parametrize("given", ["constant", "size", "data"])
def test_bounds(start, end, step, left, given):
    numbers = {n: np.array([v], np.int64) for n, v in zip(NAMES, (start, end, 0, step))}
    node = helper.make_node("Slice", ["x", *NAMES], ["y"])
    x = np.arange(5, dtype=np.int64)
    inputs = [value("x", ["n" if given == "size" else 5], TensorProto.INT64)]
    if given == "data":
        inputs += [value(n, [1], TensorProto.INT64) for n in NAMES]
    m = model([node], inputs, [value("y", [None], TensorProto.INT64)], {} if given == "data" else numbers)
    found = run(m, {"x": x, **(numbers if given == "data" else {})})["y"]
    assert found.tolist() == left
