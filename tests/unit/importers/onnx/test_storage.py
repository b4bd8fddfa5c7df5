"""Constants in forms that only storage knows: sparse ones and narrow numbers."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from inlay.base.diagnostics import CompileError
from tests.unit.importers.onnx.models import load, model, run, value

X = np.arange(6, dtype=np.float32).reshape(2, 3)
DENSE = np.array([[0, 3], [0, 0], [0, 4]], np.float32)


def sparse(indices: list[int], shape: list[int]) -> onnx.SparseTensorProto:
    values = helper.make_tensor("w", TensorProto.FLOAT, [2], [3.0, 4.0])
    places = helper.make_tensor("", TensorProto.INT64, shape, indices)
    return helper.make_sparse_tensor(values, places, [3, 2])


PLACES = [([1, 5], [2]), ([0, 1, 2, 1], [2, 2])]


@pytest.mark.parametrize(("indices", "shape"), PLACES)
def test_sparse(indices: list[int], shape: list[int]) -> None:
    product = helper.make_node("MatMul", ["x", "w"], ["y"])
    m = model([product], [value("x", ["n", 3])], [value("y", None)])
    m.graph.sparse_initializer.append(sparse(indices, shape))
    np.testing.assert_array_equal(run(m, {"x": X})["y"], X @ DENSE)
    given = helper.make_node("Constant", [], ["w"], sparse_value=sparse(indices, shape))
    m = model([given, product], [value("x", ["n", 3])], [value("y", None)])
    np.testing.assert_array_equal(run(m, {"x": X})["y"], X @ DENSE)


@pytest.mark.parametrize(("indices", "shape"), [([1, 6], [2]), ([0, -1, 0, 0], [2, 2]), ([1], [1])])
def test_damaged_sparse(indices: list[int], shape: list[int]) -> None:
    m = model([helper.make_node("MatMul", ["x", "w"], ["y"])], [value("x", [2, 3])], [value("y", None)])
    m.graph.sparse_initializer.append(sparse(indices, shape))
    with pytest.raises(CompileError) as refusal:
        load(m)
    assert refusal.value.ids == ("import.bad-tensor",)


def stored(elem_type: int, numbers: list[float], reader: str = "DequantizeLinear") -> onnx.ModelProto:
    w = helper.make_tensor("w", elem_type, [2, 2], numbers)
    inputs = ["w", "s"] if reader == "DequantizeLinear" else ["w"]
    attrs = {"to": TensorProto.FLOAT} if reader == "Cast" else {}
    nodes = [helper.make_node(reader, inputs, ["v"], **attrs), helper.make_node("Add", ["v", "s"], ["y"])]
    m = model(nodes, [], [value("y", None)], {"s": np.array(0.5, np.float32)}, opset=21)
    m.graph.initializer.append(w)
    return m


@pytest.mark.parametrize(
    ("elem_type", "numbers"),
    [
        (TensorProto.INT4, [-8, 7, 0, -1]),
        (TensorProto.UINT4, [15, 0, 8, 3]),
        (TensorProto.FLOAT8E4M3FN, [0.5, -448, 2, 0]),
        (TensorProto.FLOAT8E5M2, [0.5, -4096, 2, 0]),
    ],
)
def test_narrow_constants_are_dequantized(elem_type: int, numbers: list[float]) -> None:
    want = np.array(numbers, np.float32).reshape(2, 2) * 0.5 + 0.5
    np.testing.assert_array_equal(run(stored(elem_type, numbers), {})["y"], want)


def test_narrow_constants_are_nothing_else() -> None:
    with pytest.raises(CompileError) as refusal:
        load(stored(TensorProto.INT4, [1, 2, 3, 4], "Cast"))
    assert refusal.value.ids == ("import.dtype",)
