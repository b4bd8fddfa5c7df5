"""What is beyond a limit is refused by name, before anything of its size is made."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import inlay
from inlay.api import compilation, load
from inlay.base.diagnostics import CompileError, RunError
from inlay.importers.onnx.graph import import_model
from inlay.ir.module import Module
from inlay.ops.table import table
from tests.unit.importers.onnx.models import model, value


def refusal(path, **limits) -> str:
    with pytest.raises(CompileError) as caught:
        load(path, **limits)
    return str(caught.value)


def relus(count: int) -> onnx.ModelProto:
    nodes = [helper.make_node("Relu", [f"x{i}"], [f"x{i + 1}"]) for i in range(count)]
    return model(nodes, [value("x0", [2])], [value(f"x{count}", [2])])


def written(folder, m: onnx.ModelProto):
    path = folder / "m.onnx"
    path.write_bytes(m.SerializeToString())
    return path


def test_limits_are_options(tmp_path):
    path = written(tmp_path, relus(9))
    load(path, max_nodes=9)
    assert "import.too-large" in refusal(path, max_nodes=8)
    assert "raise the limit max_file_bytes" in refusal(path, max_file_bytes=100)
    assert "option.unknown" in refusal(path, max_node=8)


def test_a_tensor_beyond_the_limit(tmp_path):
    w = np.ones((4, 4), np.float32)
    m = model([helper.make_node("Add", ["x", "w"], ["y"])], [value("x", [4])], [value("y", [4, 4])], {"w": w})
    path = written(tmp_path, m)
    load(path, max_tensor_bytes=64)
    assert "tensor 'w' of shape [4, 4] has more than 63 bytes" in refusal(path, max_tensor_bytes=63)


def external(tmp_path, **entries: str) -> str:
    (tmp_path / "data").write_bytes(bytes(16))
    w = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    for key, text in entries.items():
        w.external_data.add(key=key, value=text)
    m = model([helper.make_node("Add", ["x", "w"], ["y"])], [value("x", [4])], [value("y", [4])])
    m.graph.initializer.append(w)
    return refusal(written(tmp_path, m))


@pytest.mark.parametrize(
    "entries",
    [
        {"location": ""},
        {"location": "\0"},
        {"location": "a" * 5000},
        {"location": "."},
        {"location": "/etc/passwd"},
        {"location": "../data"},
        {"location": "link"},
        {},
        {"location": "data", "length": "-5"},
        {"location": "data", "offset": "-1"},
        {"location": "data", "length": "9" * 30},
        {"location": "data", "offset": "x"},
    ],
)
def test_external_data_that_is_not_in_the_folder(tmp_path, entries):
    (tmp_path / "link").symlink_to("/etc/passwd")
    assert "import.external-data" in external(tmp_path, **entries)


def test_constants_that_double_are_left_for_the_run():
    count = 24
    nodes = [helper.make_node("Concat", [f"c{i}", f"c{i}"], [f"c{i + 1}"], axis=0) for i in range(count)]
    nodes.append(helper.make_node("ReduceSum", [f"c{count}"], ["y"], keepdims=0))
    m = model(nodes, [], [value("y", [])], {"c0": np.ones(2000, np.float32)})
    program = compilation(import_(m)).program
    assert sum(c.bytes().nbytes for c in program.constants) < 1 << 29


def import_(m: onnx.ModelProto) -> Module:
    return import_model(m, table())


def test_memory_is_asked_for_at_run_time_only():
    sizes = np.array([1 << 40], np.int64)
    m = model(
        [helper.make_node("Expand", ["x", "s"], ["y"])], [value("x", [1])], [value("y", None)], {"s": sizes}
    )
    exe = inlay.compile(import_(m))
    with pytest.raises(RunError, match=r"run\.out-of-memory"):
        exe(np.ones(1, np.float32))


def test_names_cannot_command_the_terminal():
    m = model([helper.make_node("Foo\x1b[2J", ["x"], ["y"])], [value("x", [2])], [value("y", [2])])
    with pytest.raises(CompileError) as caught:
        import_(m)
    assert "\x1b" not in str(caught.value)
