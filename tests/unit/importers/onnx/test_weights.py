"""Initializers that are read apart from the rest of their model are those that protobuf reads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import inlay
from inlay.base.diagnostics import CompileError
from inlay.importers.onnx.load import read_parts
from inlay.importers.onnx.weights import LEAST, read_apart

SIDE = 160
assert SIDE * SIDE * 4 >= LEAST


def _model(change: Callable[[onnx.TensorProto], None] = lambda _: None) -> bytes:
    rng = np.random.default_rng(0)
    tensors = [
        numpy_helper.from_array(rng.standard_normal((SIDE, SIDE)).astype(np.float32), name)
        for name in ("first", "second")
    ]
    tensors.insert(1, numpy_helper.from_array(np.arange(SIDE, dtype=np.float32), "small"))
    change(tensors[0])
    nodes = [
        helper.make_node("MatMul", ["x", "first"], ["y"]),
        helper.make_node("Add", ["y", "small"], ["z"]),
        helper.make_node("MatMul", ["z", "second"], ["out"]),
    ]
    types = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, SIDE]) for n in ("x", "out")]
    graph = helper.make_graph(nodes, "g", types[:1], types[1:], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString()


def _file(folder: Path, data: bytes) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(data)
    return path


def test_large_initializers_are_read_apart_and_the_program_is_the_same(tmp_path: Path) -> None:
    path = _file(tmp_path, _model())
    small, stored = read_parts(path)
    assert len(stored) == 2 and small.ByteSize() < LEAST
    assert str(inlay.load(path)) == str(inlay.load(path.read_bytes()))


def test_other_data_beside_the_bytes_is_left_to_protobuf(tmp_path: Path) -> None:
    path = _file(tmp_path, _model(lambda t: t.float_data.append(1.0)))
    _, stored = read_parts(path)
    assert len(stored) == 1


def test_the_last_of_two_byte_fields_counts(tmp_path: Path) -> None:
    again = TensorProto(raw_data=np.ones((SIDE, SIDE), np.float32).tobytes()).SerializeToString()
    model = onnx.ModelProto.FromString(_model())
    first = model.graph.initializer[0].SerializeToString()
    del model.graph.initializer[0]
    twice = first + again
    graph = b"\x2a" + _varint(len(twice)) + twice  # a field of the graph: one more initializer
    whole = model.SerializeToString() + b"\x3a" + _varint(len(graph)) + graph  # one more part of the graph
    path = _file(tmp_path, whole)
    assert read_apart(path, len(whole)) is None
    assert str(inlay.load(path)) == str(inlay.load(whole))


def _varint(value: int) -> bytes:
    low = [value >> 7 * i & 0x7F for i in range(5)]
    return bytes([*(x | 0x80 for x in low[:-1]), low[-1]])


@pytest.mark.parametrize("name", ["in the model 0", "-in the model 0"])
def test_no_model_names_what_was_read_apart(tmp_path: Path, name: str) -> None:
    def elsewhere(t: onnx.TensorProto) -> None:
        t.ClearField("raw_data")
        t.data_location = TensorProto.EXTERNAL
        t.external_data.add(key="location", value=name)

    with pytest.raises(CompileError, match="does not exist"):
        inlay.load(_file(tmp_path, _model(elsewhere)))


def test_a_size_that_does_not_fit_is_found(tmp_path: Path) -> None:
    path = _file(tmp_path, _model(lambda t: t.dims.__setitem__(0, SIDE + 1)))
    with pytest.raises(CompileError, match=r"has 102400 bytes for shape \[161, 160\]"):
        inlay.load(path)


@pytest.mark.parametrize("part", [0.3, 0.7, 0.999])
def test_a_file_that_ends_early_is_refused_as_before(tmp_path: Path, part: float) -> None:
    data = _model()
    with pytest.raises(CompileError, match="is not an ONNX model"):
        inlay.load(_file(tmp_path, data[: int(len(data) * part)]))
