"""Shapes of which the model knows a part, and data the rest."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from inlay.ir.types import ExistsType, TensorType
from tests.unit.importers.onnx.models import load, model, run, value


@pytest.mark.parametrize("count", [2, 5])
def test_what_is_known_of_a_joined_shape_stays_known(count: int) -> None:
    nodes = [
        helper.make_node("Concat", ["n", "inner"], ["shape"], axis=0),
        helper.make_node("Expand", ["x", "shape"], ["wide"]),
        helper.make_node("Squeeze", ["wide"], ["y"]),  # drops the axis of 1, and no other
    ]
    inputs = [value("x", [1, 3]), value("n", [1], TensorProto.INT64)]
    m = model(nodes, inputs, [value("y", [None, 3])], {"inner": np.array([1, 3])})
    result = load(m).functions["main"].type.result
    body = result.body if isinstance(result, ExistsType) else result
    assert isinstance(body, TensorType) and body.shape[1] == 3
    x = np.arange(3, dtype=np.float32).reshape(1, 3)
    found = run(m, {"x": x, "n": np.array([count])})["y"]
    np.testing.assert_array_equal(found, np.repeat(x, count, axis=0))


def test_long_vectors_are_data() -> None:
    nodes = [helper.make_node("Concat", ["x", "more"], ["y"], axis=0)]
    inputs = [value("x", [40], TensorProto.INT64)]
    m = model(nodes, inputs, [value("y", [42], TensorProto.INT64)], {"more": np.array([1, 2])})
    x = np.arange(40)
    np.testing.assert_array_equal(run(m, {"x": x})["y"], [*x, 1, 2])


INTS = TensorProto.INT64


@pytest.mark.parametrize(
    ("condition", "yes", "no", "expected"),
    [
        (np.array(True), "n", "n", np.array(3)),
        (np.array(False), "n", "c", np.array(9)),
        (np.array([True]), "n", "n", np.array([3])),
        (np.array([True, False]), "n", "c", np.array([3, 9])),
        (np.array([[True, False]]), "n", "c", np.array([[3, 9]])),
    ],
)
def test_choices_of_known_sizes_have_the_rank_that_they_broadcast_to(condition, yes, no, expected):
    nodes = [
        helper.make_node("Shape", ["x"], ["dims"]),
        helper.make_node("Gather", ["dims", "zero"], ["n"]),
        helper.make_node("Where", ["condition", yes, no], ["y"]),
    ]
    constants = {"condition": condition, "c": np.array(9), "zero": np.array(0)}
    m = model(nodes, [value("x", ["n", 2])], [value("y", None, INTS)], constants)
    found = run(m, {"x": np.zeros((3, 2), np.float32)})["y"]
    assert found.shape == expected.shape
    np.testing.assert_array_equal(found, expected)


def test_known_sizes_compared_with_nothing_are_nothing() -> None:
    nodes = [helper.make_node("Shape", ["x"], ["n"]), helper.make_node("Equal", ["n", "none"], ["y"])]
    constants = {"none": np.zeros(0, np.int64)}
    m = model(nodes, [value("x", ["n"])], [value("y", None, TensorProto.BOOL)], constants)
    assert run(m, {"x": np.zeros(3, np.float32)})["y"].shape == (0,)
