"""Constants in forms that only storage knows: sparse ones and narrow numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from inlay.base.diagnostics import CompileError
from inlay.importers.onnx.graph import load_model
from inlay.ops.table import table
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
        load(stored(TensorProto.INT4, [1, 2, 3, 4], "Relu"))
    assert refusal.value.ids == ("import.dtype",)


def test_narrow_constants_in_a_file_beside_the_model(tmp_path: Path) -> None:
    m = stored(TensorProto.INT4, [-8, 7, 0, -1])
    w = m.graph.initializer[-1]
    (tmp_path / "w.bin").write_bytes(bytes([0, *w.int32_data]))
    w.ClearField("int32_data")
    w.data_location = TensorProto.EXTERNAL
    for key, said in (("location", "w.bin"), ("offset", "1")):
        w.external_data.add(key=key, value=said)
    onnx.save(m, tmp_path / "m.onnx")
    want = np.array([[-3.5, 4], [0.5, 0]], np.float32)
    np.testing.assert_array_equal(run(load_model(tmp_path / "m.onnx", table()), {})["y"], want)


NARROW = [
    (name, axis)
    for name in ("INT2", "UINT2", "INT4", "UINT4")
    if name in TensorProto.DataType.keys()  # noqa: SIM118  an enumeration of protobuf
    for axis in (None, 1)
]


@pytest.mark.parametrize(("name", "axis"), NARROW)
def test_values_are_quantized_to_few_bits(name: str, axis: int | None) -> None:
    """The zero point says the format; what only moves elements may stand between."""
    bits, is_signed = int(name[-1]), name.startswith("I")
    low = -(1 << bits - 1) if is_signed else 0
    scale = np.float32(0.25) if axis is None else np.array([0.25, 0.5, 0.125], np.float32)
    numbers = 1 if axis is None else 3
    attrs = {} if axis is None else {"axis": axis}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], **attrs),
        helper.make_node("Reshape", ["q", "shape"], ["r"]),
        helper.make_node("DequantizeLinear", ["r", "s", "z"], ["y"], **attrs),
    ]
    given = {"s": np.asarray(scale), "shape": np.array([-1, 3], np.int64)}
    m = model(
        nodes, [value("x", [2, 3])], [value("y", None)], given, opset=min(25, onnx.defs.onnx_opset_version())
    )
    shape = [] if axis is None else [numbers]
    m.graph.initializer.append(helper.make_tensor("z", getattr(TensorProto, name), shape, [1] * numbers))
    x = (X - 2) * 0.37
    steps = np.clip(np.rint(x / scale) + 1, low, low + (1 << bits) - 1)
    np.testing.assert_array_equal(run(m, {"x": x})["y"], ((steps - 1) * scale).astype(np.float32))


def test_few_bits_are_no_outputs() -> None:
    nodes = [helper.make_node("QuantizeLinear", ["x", "s"], ["y"], output_dtype=TensorProto.INT4)]
    m = model(nodes, [value("x", [2, 3])], [value("y", None)], {"s": np.array(0.5, np.float32)}, opset=21)
    with pytest.raises(CompileError) as refusal:
        load(m)
    assert refusal.value.ids == ("import.dtype",)
