"""Names, scopes, symbols, refusals: what does not depend on the operator."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from inlay.base.diagnostics import CompileError, UnsupportedError
from inlay.importers.onnx.graph import load_model
from inlay.importers.onnx.load import parse_model
from inlay.ir.expr import Call, Const, Expr, If, Let, OpRef
from inlay.ir.types import TensorType
from inlay.ir.walk import postorder
from inlay.ops.table import table
from tests.unit.importers.onnx.models import load, model, run, value

node = helper.make_node


def operators(e: Expr) -> list[str]:
    """Return the names of the operators that a function calls, in order."""
    calls = (x for x in postorder(e) if isinstance(x, Call))
    return [c.callee.op.name for c in calls if isinstance(c.callee, OpRef)]


def test_named_axes_are_one_symbol():
    m = model(
        [node("Add", ["x", "y"], ["z"])], [value("x", ["n", 3]), value("y", ["n", 3])], [value("z", ["n", 3])]
    )
    main = load(m).functions["main"]
    x, y = (p.type for p in main.params)
    assert isinstance(x, TensorType)
    assert x == y
    assert len(main.dims) == 1
    assert operators(main.body) == ["add"]


def test_unnamed_axes_are_related_by_a_check():
    m = model(
        [node("Add", ["x", "y"], ["z"])], [value("x", [None]), value("y", [None])], [value("z", [None])]
    )
    assert "check_shape" in operators(load(m).functions["main"].body)
    a = np.arange(3, dtype=np.float32)
    np.testing.assert_array_equal(run(m, {"x": a, "y": a})["z"], a + a)


def test_shape_arithmetic_disappears():
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "zero"], ["b"]),
        node("Unsqueeze", ["b", "axis"], ["b1"]),
        node("Concat", ["b1", "minus"], ["t"], axis=0),
        node("Reshape", ["x", "t"], ["y"]),
    ]
    m = model(
        nodes,
        [value("x", ["n", 4, 6])],
        [value("y", ["n", 24])],
        {"zero": np.array(0, np.int64), "axis": np.array([0], np.int64), "minus": np.array([-1], np.int64)},
    )
    module = load(m)
    assert operators(module.functions["main"].body) == ["reshape"]
    x = np.arange(48, dtype=np.float32).reshape(2, 4, 6)
    np.testing.assert_array_equal(run(module, {"x": x})["y"], x.reshape(2, 24))


def test_every_trouble_is_reported_at_once():
    nodes = [
        node("Frobnicate", ["x"], ["a"], name="first"),
        node("Relu", ["a"], ["b"], name="needs what is missing"),
        node("Quuxify", ["b"], ["c"], name="second", domain="com.example"),
        node("Relu", ["nowhere"], ["d"], name="third"),
    ]
    m = model(nodes, [value("x", [2])], [value("c", [2]), value("d", [2])])
    m.opset_import.append(helper.make_opsetid("com.example", 1))
    with pytest.raises(CompileError) as failure:
        load(m)
    found = [(d.id, d.span.name) for d in failure.value.diagnostics]
    assert found == [
        ("import.unknown-operator", "node 'first' (Frobnicate)"),
        ("import.unknown-operator", "node 'second' (Quuxify)"),
        ("import.undefined-name", "node 'third' (Relu)"),
    ]


def test_refusals_alone_are_unsupported_not_wrong():
    m = model([node("Frobnicate", ["x"], ["y"])], [value("x", [2])], [value("y", [2])])
    with pytest.raises(UnsupportedError):
        load(m)


def test_unknown_rank_is_refused():
    m = model([node("Relu", ["x"], ["y"])], [value("x", None)], [value("y", None)])
    with pytest.raises(CompileError) as failure:
        load(m)
    assert failure.value.ids == ("import.rank-unknown",)


def test_cycle_is_refused():
    nodes = [node("Relu", ["b"], ["a"]), node("Relu", ["a"], ["b"])]
    with pytest.raises(CompileError) as failure:
        load(model(nodes, [value("x", [2])], [value("b", [2])]))
    assert "import.undefined-name" in failure.value.ids


def test_branches_see_names_around_them_and_stay_branches():
    then = helper.make_graph([node("Neg", ["x"], ["t"])], "then", [], [value("t", ["n"])])
    other = helper.make_graph([node("Add", ["x", "y"], ["e"])], "else", [], [value("e", ["n"])])
    nodes = [node("Relu", ["x"], ["y"]), node("If", ["c"], ["z"], then_branch=then, else_branch=other)]
    m = model(nodes, [value("x", ["n"]), value("c", [], TensorProto.BOOL)], [value("z", ["n"])])
    module = load(m)
    assert any(isinstance(e, If) for e in postorder(module.functions["main"].body))
    x = np.array([1, -2, 3], np.float32)
    for c in (True, False):
        want = -x if c else x + np.maximum(x, 0)
        np.testing.assert_array_equal(run(module, {"x": x, "c": np.array(c)})["z"], want)


def _loop_model(*, with_condition: bool) -> onnx.ModelProto:
    body_nodes = [
        node("Add", ["acc", "x"], ["next"]),
        node("Identity", ["next"], ["row"]),
        node("ReduceMax", ["next"], ["top"], keepdims=0),
        node("Less", ["top", "limit"], ["more"]),
        node("Identity", ["go"], ["same"]),
    ]
    out = "more" if with_condition else "same"
    body = helper.make_graph(
        body_nodes,
        "body",
        [value("i", [], TensorProto.INT64), value("go", [], TensorProto.BOOL), value("acc", ["n"])],
        [value(out, [], TensorProto.BOOL), value("next", ["n"]), value("row", ["n"])],
    )
    return model(
        [node("Loop", ["m", "", "zero"], ["last", "rows"], body=body)],
        [value("x", [3]), value("m", [], TensorProto.INT64), value("zero", [3])],
        [value("last", [3]), value("rows", ["k", 3])],
        {"limit": np.array(10, np.float32)},
    )


@pytest.mark.parametrize("with_condition", [False, True])
def test_loop(with_condition: bool):
    m = _loop_model(with_condition=with_condition)
    x = np.array([1, 2, 3], np.float32)
    out = run(m, {"x": x, "m": np.array(6), "zero": np.zeros(3, np.float32)})
    steps = 4 if with_condition else 6
    np.testing.assert_array_equal(out["last"], x * steps)
    np.testing.assert_array_equal(out["rows"], np.outer(np.arange(1, steps + 1), x))


def test_loop_that_runs_no_time():
    m = _loop_model(with_condition=False)
    x = np.array([1, 2, 3], np.float32)
    out = run(m, {"x": x, "m": np.array(0), "zero": x})
    np.testing.assert_array_equal(out["last"], x)
    assert out["rows"].shape == (0, 3)


def test_loop_that_grows_a_carried_value():
    body = helper.make_graph(
        [node("Concat", ["acc", "acc1"], ["next"], axis=0), node("Identity", ["go"], ["more"])],
        "body",
        [value("i", [], TensorProto.INT64), value("go", [], TensorProto.BOOL), value("acc", ["k", 2])],
        [value("more", [], TensorProto.BOOL), value("next", ["k2", 2])],
    )
    m = model(
        [node("Loop", ["m", "", "acc1"], ["last"], body=body)],
        [value("acc1", [1, 2]), value("m", [], TensorProto.INT64)],
        [value("last", ["q", 2])],
    )
    x = np.array([[1, 2]], np.float32)
    out = run(m, {"acc1": x, "m": np.array(5)})
    np.testing.assert_array_equal(out["last"], np.repeat(x, 6, axis=0))


def test_scan_reads_and_stacks_in_both_directions():
    body = helper.make_graph(
        [node("Add", ["h", "r"], ["h2"]), node("Identity", ["h2"], ["o"])],
        "body",
        [value("h", [2]), value("r", [2])],
        [value("h2", [2]), value("o", [2])],
    )
    scan = node(
        "Scan",
        ["h0", "xs"],
        ["h", "os"],
        body=body,
        num_scan_inputs=1,
        scan_input_axes=[1],
        scan_input_directions=[1],
        scan_output_directions=[1],
        scan_output_axes=[1],
    )
    m = model([scan], [value("h0", [2]), value("xs", [2, "t"])], [value("h", [2]), value("os", [2, "t"])])
    xs = np.arange(8, dtype=np.float32).reshape(2, 4)
    out = run(m, {"h0": np.zeros(2, np.float32), "xs": xs})
    sums = np.cumsum(xs[:, ::-1], axis=1)
    np.testing.assert_array_equal(out["h"], sums[:, -1])
    np.testing.assert_array_equal(out["os"], sums[:, ::-1])


def test_local_functions_are_expanded_with_their_attributes():
    leaky = node("LeakyRelu", ["a"], ["b"])
    attribute = leaky.attribute.add()
    attribute.name, attribute.ref_attr_name, attribute.type = "alpha", "slope", 1
    function = helper.make_function(
        "local",
        "twice",
        ["a"],
        ["c"],
        [leaky, node("Add", ["b", "b"], ["c"])],
        [helper.make_opsetid("", 17)],
        ["slope"],
    )
    m = model(
        [node("twice", ["x"], ["y"], domain="local", slope=0.5)],
        [value("x", [2])],
        [value("y", [2])],
        functions=[function],
    )
    m.opset_import.append(helper.make_opsetid("local", 1))
    x = np.array([-1, 2], np.float32)
    np.testing.assert_array_equal(run(m, {"x": x})["y"], np.array([-1, 4], np.float32))


def test_a_function_that_calls_itself_is_refused():
    function = helper.make_function(
        "local",
        "f",
        ["a"],
        ["b"],
        [node("f", ["a"], ["b"], domain="local")],
        [helper.make_opsetid("local", 1)],
    )
    m = model(
        [node("f", ["x"], ["y"], domain="local")], [value("x", [2])], [value("y", [2])], functions=[function]
    )
    m.opset_import.append(helper.make_opsetid("local", 1))
    with pytest.raises(CompileError) as failure:
        load(m)
    assert failure.value.ids == ("import.too-deep",)


@pytest.mark.parametrize("location", ["../secret", "/etc/hostname", ""])
def test_external_data_stays_in_its_folder(tmp_path, location):
    (tmp_path / "secret").write_bytes(bytes(64))
    folder = tmp_path / "model"
    folder.mkdir()
    m = model(
        [node("Add", ["x", "w"], ["y"])], [value("x", [4])], [value("y", [4])], {"w": np.zeros(4, np.float32)}
    )
    w = m.graph.initializer[0]
    w.ClearField("raw_data")
    w.data_location = TensorProto.EXTERNAL
    for key, text in (("location", location), ("offset", "0"), ("length", "16")):
        entry = w.external_data.add()
        entry.key, entry.value = key, text
    (folder / "m.onnx").write_bytes(m.SerializeToString())
    with pytest.raises(CompileError) as failure:
        load_model(folder / "m.onnx", table())
    assert failure.value.ids == ("import.external-data",)


def test_external_data_is_read(tmp_path):
    w = np.arange(4, dtype=np.float32)
    m = model([node("Add", ["x", "w"], ["y"])], [value("x", [4])], [value("y", [4])], {"w": w})
    onnx.save_model(m, tmp_path / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    module = load_model(tmp_path / "m.onnx", table())
    np.testing.assert_array_equal(run(module, {"x": w})["y"], w + w)
    (tmp_path / "w.bin").write_bytes(b"")
    with pytest.raises(CompileError) as failure:
        load_model(tmp_path / "m.onnx", table())
    assert failure.value.ids == ("import.external-data",)


@pytest.mark.parametrize("data", [b"", b"not a model", bytes(100), b"\x08\x07"])
def test_bytes_that_are_no_model(data):
    with pytest.raises(CompileError) as failure:
        parse_model(data, "x.onnx")
    assert failure.value.ids == ("import.not-onnx",)


def test_missing_file_is_named():
    with pytest.raises(CompileError) as failure:
        load_model("no/such/file.onnx", table())
    assert failure.value.ids == ("import.unreadable",)


def test_spans_name_the_node():
    m = model([node("Relu", ["x"], ["y"], name="act")], [value("x", [2])], [value("y", [2])])
    body = load(m).functions["main"].body
    assert isinstance(body, Call | Let)
    spans = {e.span.name for e in postorder(body) if not isinstance(e, Const | OpRef)}
    assert "node 'act' (Relu)" in spans
