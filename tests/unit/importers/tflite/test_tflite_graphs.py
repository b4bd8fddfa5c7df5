"""Graphs of TFLite that run others, variables, detection, custom operators, and what is refused."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import inlay
from inlay.base.diagnostics import CompileError, UnsupportedError
from inlay.ops.table import table

pytest.importorskip("tflite", reason="the package 'tflite' is not installed")

from inlay.importers.tflite.graph import import_bytes
from inlay.importers.tflite.schema import _package
from tests.tflite_models import Graph, Op, T, constant, model, models
from tests.unit.importers.tflite.kernel_cases import accumulator

ROW = T((3,))
COUNT = T((), "int32")
FLAG = T((), "bool")


def number(value: int) -> T:
    return constant(np.array(value, np.int32))


def run(content: bytes, **inputs: np.ndarray) -> dict[str, np.ndarray]:
    executable = inlay.compile(content, threads=1)
    return executable.session().run(inputs)


X = np.array([1, -2, 3], np.float32)


def test_a_branch_takes_one_of_two_graphs():
    options = {"ThenSubgraphIndex": 1, "ElseSubgraphIndex": 2}
    main = Graph(
        {"p": FLAG, "x": ROW, "y": ROW},
        [Op("IF", ["p", "x"], ["y"], "IfOptions", options)],
        ["p", "x"],
        ["y"],
    )
    arms = [Graph({"x": ROW, "y": ROW}, [Op(name, ["x"], ["y"])], ["x"], ["y"]) for name in ("ABS", "NEG")]
    content = models(main, *arms)
    np.testing.assert_array_equal(run(content, p=np.array(True), x=X)["y"], np.abs(X))
    np.testing.assert_array_equal(run(content, p=np.array(False), x=X)["y"], -X)


def test_a_composite_is_what_it_is_made_of():
    options = {"DecompositionSubgraphIndex": 1, "Version": 1}
    op = Op("STABLEHLO_COMPOSITE", ["x"], ["y"], "StableHLOCompositeOptions", options)
    inner = Graph({"x": ROW, "y": ROW}, [Op("ABS", ["x"], ["y"])], ["x"], ["y"])
    content = models(Graph({"x": ROW, "y": ROW}, [op], ["x"], ["y"]), inner)
    np.testing.assert_array_equal(run(content, x=X)["y"], np.abs(X))


def test_a_program_of_the_name_of_the_package_is_not_taken_for_it(tmp_path, monkeypatch):
    content = models(Graph({"x": ROW, "y": ROW}, [Op("ABS", ["x"], ["y"])], ["x"], ["y"]))
    own = tmp_path / "tflite.py"
    own.write_text("raise SystemExit('it was run')")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "tflite")
    _package.cache_clear()
    with pytest.raises(UnsupportedError, match=r"found .*tflite\.py, which is something else") as failure:
        import_bytes(content, table())
    assert failure.value.ids == ("import.missing-package",)
    monkeypatch.undo()
    np.testing.assert_array_equal(run(content, x=X)["y"], np.abs(X))


def loop(body: list[Op], carried: dict[str, T], more: dict[str, T]) -> tuple[Graph, Graph]:
    """Return the condition `i < 5` and a body that counts `i`."""
    names = ["i", *carried]
    less = Op("LESS", ["i", "n"], ["p"], "LessOptions")
    condition = Graph({"i": COUNT, **carried, "n": number(5), "p": FLAG}, [less], names, ["p"])
    counted = Op("ADD", ["i", "one"], ["j"], "AddOptions")
    tensors = {"i": COUNT, **carried, "one": number(1), "j": COUNT, **more}
    return condition, Graph(tensors, [counted, *body], names, ["j", *(f"{n}2" for n in carried)])


def test_a_loop_runs_while_its_condition_holds():
    doubled = Op("ADD", ["x", "x"], ["x2"], "AddOptions")
    condition, body = loop([doubled], {"x": ROW}, {"x2": ROW})
    options = {"CondSubgraphIndex": 1, "BodySubgraphIndex": 2}
    op = Op("WHILE", ["i", "x"], ["j", "y"], "WhileOptions", options)
    main = Graph({"i": COUNT, "x": ROW, "j": COUNT, "y": ROW}, [op], ["i", "x"], ["j", "y"])
    content = models(main, condition, body)
    found = run(content, i=np.array(2, np.int32), x=X)
    assert found["j"] == 5
    np.testing.assert_array_equal(found["y"], 8 * X)
    np.testing.assert_array_equal(run(content, i=np.array(7, np.int32), x=X)["y"], X)


def test_variables_begin_with_what_is_assigned_once():
    executable = inlay.compile(accumulator(), threads=1)
    assert executable.state == {"v": "v:next"}
    session = executable.session()
    for k in (1, 2):
        np.testing.assert_array_equal(session.run({"x": X})["s"], [10, 20, 30] + k * X)


def test_the_cell_without_options_keeps_its_output_and_its_cell():
    rng = np.random.default_rng(3)
    w, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((16, 7), (16,)))
    state, row = T((2, 4), is_variable=True), T((2, 4))
    tensors = {"x": T((2, 3)), "h": state, "w": constant(w), "b": constant(b), "c": state}
    results = {"y": row, "cell": row, "joined": T((2, 7)), "sums": T((2, 16))}
    options = {"FusedActivationFunction": 4, "KernelType": 1}
    op = Op("LSTM", list(tensors), list(results), "LSTMOptions", options)
    session = inlay.compile(model({**tensors, **results}, [op], ["x"], ["y"]), threads=1).session()
    hidden = cell = np.zeros((2, 4))
    for _ in range(2):
        x = rng.standard_normal((2, 3)).astype(np.float32)
        taken, new, kept, given = np.split(np.concatenate([x, hidden], axis=1) @ w.T + b, 4, axis=1)
        taken, kept, given = (1 / (1 + np.exp(-v)) for v in (taken, kept, given))
        cell = taken * np.tanh(new) + kept * cell
        hidden = given * np.tanh(cell)
        np.testing.assert_allclose(session.run({"x": x})["y"], hidden, rtol=1e-4, atol=1e-6)


def test_a_state_of_integers_begins_with_their_zero_point():
    state = T((2, 6), "int8", scale=0.1, zero=-7, is_variable=True)
    x = T((2, 6), "int8", scale=0.1, zero=-7)
    content = model({"x": x, "s": state, "y": x}, [Op("MAXIMUM", ["x", "s"], ["y"])], ["x"], ["y"])
    assert (inlay.compile(content, threads=1).first_state()["s"] == -7).all()


@pytest.mark.parametrize("depth", [1, 3])
def test_graphs_that_run_themselves_are_refused(depth):
    graphs = [
        Graph(
            {"x": ROW, "y": ROW},
            [Op("CALL", ["x"], ["y"], "CallOptions", {"Subgraph": (k + 1) % depth})],
            ["x"],
            ["y"],
        )
        for k in range(depth)
    ]
    with pytest.raises(CompileError, match="runs itself"):
        import_bytes(models(*graphs), table())


def test_graphs_that_run_others_many_times_are_bounded():
    def call(k: int) -> list[Op]:
        return [
            Op("CALL", ["x" if i == 0 else "m"], ["m" if i == 0 else "y"], "CallOptions", {"Subgraph": k})
            for i in (0, 1)
        ]

    tensors = {"x": ROW, "m": ROW, "y": ROW}
    graphs = [Graph(tensors, call(k + 1), ["x"], ["y"]) for k in range(30)]
    graphs.append(Graph(tensors, [Op("NEG", ["x"], ["y"])], ["x"], ["y"]))
    with pytest.raises(CompileError) as failure:
        inlay.load(models(*graphs), max_nodes=2000)
    assert failure.value.ids == ("import.too-large",)


def test_a_graph_that_does_not_exist_is_refused():
    op = Op("CALL", ["x"], ["y"], "CallOptions", {"Subgraph": 9})
    with pytest.raises(CompileError, match="graph 9 of 1"):
        import_bytes(model({"x": ROW, "y": ROW}, [op], ["x"], ["y"]), table())


# --------------------------------------------------------------------------- detection


@pytest.mark.parametrize("is_regular", [False, True])
def test_of_boxes_that_overlap_the_best_stays(is_regular):
    """Two near boxes and one far from them; the second of the near ones has the lesser score."""
    anchors = np.array([[0.3, 0.3, 0.2, 0.2], [0.31, 0.3, 0.2, 0.2], [0.8, 0.8, 0.2, 0.2]], np.float32)
    scores = np.array([[[0, 0.9, 0.1], [0, 0.8, 0.2], [0, 0.1, 0.7]]], np.float32)
    options = {"max_detections": 3, "max_classes_per_detection": 1, "num_classes": 2}
    options |= {"nms_score_threshold": 0.5, "nms_iou_threshold": 0.5, "use_regular_nms": is_regular}
    options |= {"y_scale": 10.0, "x_scale": 10.0, "h_scale": 5.0, "w_scale": 5.0}
    tensors = {"b": T((1, 3, 4)), "s": T((1, 3, 3)), "a": constant(anchors)}
    tensors |= {"boxes": T((1, 3, 4)), "classes": T((1, 3)), "scores": T((1, 3)), "count": T((1,))}
    outputs = ["boxes", "classes", "scores", "count"]
    op = Op("TFLite_Detection_PostProcess", ["b", "s", "a"], outputs, custom=options)
    content = model(tensors, [op], ["b", "s"], outputs)
    found = run(content, b=np.zeros((1, 3, 4), np.float32), s=scores)
    assert found["count"] == [2]
    np.testing.assert_array_equal(found["classes"], [[0, 1, 0]])
    np.testing.assert_allclose(found["scores"], [[0.9, 0.7, 0]], rtol=1e-6)
    np.testing.assert_allclose(found["boxes"][0, 0], [0.2, 0.2, 0.4, 0.4], rtol=1e-5)
    assert not found["boxes"][0, 2].any()


# --------------------------------------------------------------------------- operators of the user


SCALED = inlay.extern(
    "Scaled",
    "(x: Tensor[n, f32]) -> Tensor[n, f32]",
    attributes={"factor": 1.0},
    python=lambda x, factor: x * np.float32(factor),
)


def custom(**options: object) -> bytes:
    op = Op("Scaled", ["x"], ["y"], custom=options)
    return model({"x": ROW, "y": ROW}, [op], ["x"], ["y"])


@pytest.mark.parametrize(("options", "factor"), [({"factor": 2.5}, 2.5), ({}, 1.0)])
def test_a_custom_operator_is_one_of_the_user(options, factor):
    executable = inlay.compile(custom(**options), threads=1, externs=[SCALED])
    np.testing.assert_array_equal(executable.run({"x": X})["y"], X * np.float32(factor))


def test_options_that_the_operator_does_not_have_are_refused():
    with pytest.raises(CompileError, match="has the attribute 'size'"):
        inlay.load(custom(size=3), externs=[SCALED])


def test_a_custom_operator_that_is_not_known_is_refused():
    with pytest.raises(CompileError, match="the custom operator Scaled is not known"):
        inlay.load(custom(factor=2.0))


def test_a_folder_does_nothing():
    with pytest.raises(CompileError) as failure:
        inlay.load(custom(), folder=".")
    assert failure.value.ids == ("option.no-effect",)


def test_everything_that_is_refused_is_said_at_once():
    tensors = {"x": ROW, "t": T((2,), "string"), "y": ROW, "z": ROW}
    ops = [Op("SKIP_GRAM", ["x"], ["y"]), Op("Mine", ["x"], ["z"], custom={})]
    with pytest.raises(CompileError) as failure:
        inlay.load(model(tensors, ops, ["x"], ["y", "z"]))
    text = str(failure.value)
    assert all(word in text for word in ("strings", "SKIP_GRAM", "Mine"))
