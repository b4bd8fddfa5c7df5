"""Padding to the same size, and shapes and scales that only the running program knows."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

from inlay.base.diagnostics import UnsupportedError
from tests.unit.importers.onnx.models import load, model, run, value

RNG = np.random.default_rng(9)
W = RNG.standard_normal((2, 1, 3, 2)).astype(np.float32)
WINDOW = {"kernel_shape": [3, 2], "strides": [2, 2]}


def theirs(m, inputs):
    m.ir_version = 9
    session = onnxruntime.InferenceSession(m.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, inputs)[0]


@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize(
    ("op", "attrs"),
    [
        ("Conv", {"strides": [2, 2]}),
        ("ConvTranspose", {"strides": [2, 2]}),
        ("MaxPool", WINDOW),
        ("AveragePool", WINDOW),
        ("AveragePool", WINDOW | {"count_include_pad": 1}),
    ],
)
def test_same_size(op: str, attrs: dict, mode: str) -> None:
    given = {"w": W.transpose(1, 0, 2, 3).copy() if op == "ConvTranspose" else W}
    if "Pool" in op:
        given = {}
    node = helper.make_node(op, ["x", *given], ["y"], auto_pad=mode, **attrs)
    m = model([node], [value("x", ["n", 1, "h", "v"])], [value("y", None)], given)
    module = load(m)
    for shape in ((1, 1, 4, 5), (2, 1, 5, 4), (1, 1, 3, 3)):
        x = RNG.standard_normal(shape).astype(np.float32)
        np.testing.assert_allclose(run(module, {"x": x})["y"], theirs(m, {"x": x}), atol=1e-5)


def scaled(coordinates: str, scale: float, mode: str = "linear"):
    node = helper.make_node(
        "Resize", ["x", "", "s"], ["y"], mode=mode, coordinate_transformation_mode=coordinates
    )
    scales = {"s": np.array([1, 1, scale], np.float32)}
    return model([node], [value("x", [1, 1, "n"])], [value("y", None)], scales)


@pytest.mark.parametrize("mode", ["linear", "nearest"])
@pytest.mark.parametrize(
    ("coordinates", "scale"), [("half_pixel", 1.2345678), ("asymmetric", 0.3), ("align_corners", 2.0)]
)
def test_scales_of_sizes_that_are_not_known(coordinates: str, scale: float, mode: str) -> None:
    m = scaled(coordinates, scale, mode)
    module = load(m)
    for n in (5, 7, 11):  # the peer copies where the size stays: 4 times 1.23 is 4
        x = RNG.standard_normal((1, 1, n)).astype(np.float32)
        np.testing.assert_allclose(run(module, {"x": x})["y"], theirs(m, {"x": x}), atol=1e-5)


def test_corners_are_not_aligned_where_sizes_are_rounded() -> None:
    with pytest.raises(UnsupportedError, match="no whole number"):
        load(scaled("align_corners", 1.7))


def test_a_dim_of_one_that_only_the_program_knows_adapts() -> None:
    node = helper.make_node("Expand", ["x", "s"], ["y"])
    m = model([node], [value("x", ["n", 3]), value("s", [3], TensorProto.INT64)], [value("y", None)])
    module = load(m)
    for n, shape in ((1, [2, 5, 3]), (5, [2, 1, 1]), (5, [1, 5, 3]), (1, [2, 0, 1])):
        inputs = {"x": RNG.standard_normal((n, 3)).astype(np.float32), "s": np.array(shape)}
        np.testing.assert_array_equal(run(module, inputs)["y"], theirs(m, inputs))


def test_a_size_of_at_most_one_does_not_stretch_what_it_meets() -> None:
    nodes = [
        helper.make_node("Slice", ["z", "zero", "one"], ["row"]),
        helper.make_node("Shape", ["row"], ["s"]),
        helper.make_node("Expand", ["x", "s"], ["y"]),
    ]
    m = model(
        nodes,
        [value("x", ["n", 3]), value("z", ["m", 3])],
        [value("y", None)],
        {"zero": np.array([0]), "one": np.array([1])},
    )
    x = RNG.standard_normal((5, 3)).astype(np.float32)
    np.testing.assert_array_equal(run(m, {"x": x, "z": x[:4]})["y"], x)
