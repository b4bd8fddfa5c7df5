"""Sizes that models compute: from shapes, and from what only the running program knows."""

from __future__ import annotations

import numpy as np
import pytest

from inlay.interp.tensor import evaluate_entry
from inlay.ir.types import TensorType
from inlay.ops.table import table

pytest.importorskip("tflite", reason="the package 'tflite' is not installed")

from inlay.importers.tflite.graph import import_bytes
from tests.tflite_models import Graph, Op, T, constant, model, models

COUNT = T((1,), "int32")
X = np.arange(24, dtype=np.float32).reshape(4, 6)
ROWS = T((1, 6), signature=(-1, 6))


def whole(*numbers: int) -> T:
    return constant(np.array(numbers, np.int32))


def run(content: bytes, **inputs: np.ndarray) -> dict[str, np.ndarray]:
    return {n: np.asarray(v) for n, v in evaluate_entry(import_bytes(content, table()), inputs).items()}


def strided(*names: str, out: str, shrink: int = 0) -> Op:
    return Op("STRIDED_SLICE", names, [out], "StridedSliceOptions", {"ShrinkAxisMask": shrink})


def test_a_shape_that_is_taken_apart_and_joined_leaves_the_rest_known():
    tensors = {
        "x": ROWS,
        "s": T((2,), "int32"),
        "zero": whole(0),
        "one": whole(1),
        "n": T((), "int32"),
        "three": constant(np.array(3, np.int32)),
        "two": constant(np.array(2, np.int32)),
        "shape": T((3,), "int32"),
        "y": T((1, 3, 2), signature=(-1, -1, -1)),
    }
    ops = [
        Op("SHAPE", ["x"], ["s"]),
        strided("s", "zero", "one", "one", out="n", shrink=1),
        Op("PACK", ["n", "three", "two"], ["shape"], "PackOptions", {"ValuesCount": 3}),
        Op("RESHAPE", ["x", "shape"], ["y"]),
    ]
    content = model(tensors, ops, ["x"], ["y"])
    made = import_bytes(content, table()).functions["main"].type.result
    assert isinstance(made, TensorType)
    assert [d.value for d in made.shape][1:] == [3, 2]
    np.testing.assert_array_equal(run(content, x=X)["y"], X.reshape(4, 3, 2))


def test_sizes_are_multiplied_and_what_is_known_becomes_constant():
    tensors = {"x": ROWS, "s": T((2,), "int32"), "six": whole(6), "at": whole(1), "k": T((1,), "int32")}
    tensors |= {"size": whole(1), "m": T((1,), "int32"), "y": T((1, 36), signature=(-1, 36))}
    tensors |= {"one": whole(1), "often": T((2,), "int32")}
    ops = [
        Op("SHAPE", ["x"], ["s"]),
        Op("SLICE", ["s", "at", "size"], ["k"]),
        Op("CONCATENATION", ["one", "k"], ["often"], "ConcatenationOptions"),
        Op("TILE", ["x", "often"], ["y"]),
    ]
    np.testing.assert_array_equal(run(model(tensors, ops, ["x"], ["y"]), x=X)["y"], np.tile(X, (1, 6)))


@pytest.mark.parametrize(("begin", "size"), [((1, 2), (2, 3)), ((0, 3), (-1, 2)), ((2, 0), (-1, -1))])
@pytest.mark.parametrize("is_constant", [False, True])
def test_slices_begin_and_end_where_tensors_say(begin, size, is_constant):
    ends = {"b": T((2,), "int32"), "n": whole(*size) if is_constant else T((2,), "int32")}
    tensors = {"x": T((4, 6)), **ends, "y": T((4, 6), signature=(-1, -1))}
    names = ["x", "b"] if is_constant else ["x", "b", "n"]
    content = model(tensors, [Op("SLICE", ["x", "b", "n"], ["y"])], names, ["y"])
    numbers = {"b": np.array(begin, np.int32), "n": np.array(size, np.int32)}
    found = run(content, x=X, **{n: numbers[n] for n in names[1:]})["y"]
    stops = [d if s < 0 else b + s for b, s, d in zip(begin, size, X.shape, strict=True)]
    np.testing.assert_array_equal(found, X[begin[0] : stops[0], begin[1] : stops[1]])


@pytest.mark.parametrize(("begin", "end", "size"), [(1, 3, 2), (-2, 4, 2), (1, -1, -1), (0, 4, -1)])
def test_strided_slices_begin_and_end_where_tensors_say(begin, end, size):
    y = T((2, 6), signature=(size, 6))
    tensors = {"x": T((4, 6)), "b": COUNT, "e": COUNT, "one": whole(1), "y": y}
    content = model(tensors, [strided("x", "b", "e", "one", out="y")], ["x", "b", "e"], ["y"])
    found = run(content, x=X, b=np.array([begin], np.int32), e=np.array([end], np.int32))["y"]
    np.testing.assert_array_equal(found, X[begin:end])


@pytest.mark.parametrize("at", [0, 2, -1])
def test_a_strided_slice_takes_the_element_that_a_tensor_names(at):
    tensors = {"x": T((4, 6)), "b": COUNT, "e": COUNT, "one": whole(1), "y": T((6,))}
    content = model(tensors, [strided("x", "b", "e", "one", out="y", shrink=1)], ["x", "b", "e"], ["y"])
    found = run(content, x=X, b=np.array([at], np.int32), e=np.array([at + 1], np.int32))["y"]
    np.testing.assert_array_equal(found, X[at])


@pytest.mark.parametrize(
    ("begin", "end", "step"), [(None, None, -1), (-2, None, -2), (1, -1, 1), (3, None, 1)]
)
def test_slices_of_an_axis_of_unknown_size(begin, end, step):
    masks = {"BeginMask": int(begin is None), "EndMask": int(end is None)}
    tensors = {"x": ROWS, "b": whole(begin or 0), "e": whole(end or 0), "s": whole(step)}
    op = Op("STRIDED_SLICE", ["x", "b", "e", "s"], ["y"], "StridedSliceOptions", masks)
    content = model({**tensors, "y": ROWS}, [op], ["x"], ["y"])
    np.testing.assert_array_equal(run(content, x=X)["y"], X[begin:end:step])


def test_paddings_and_ranges_are_computed():
    tensors = {"x": ROWS, "p": T((2, 2), "int32"), "y": T((1, 6), signature=(-1, -1))}
    content = model(tensors, [Op("PAD", ["x", "p"], ["y"])], ["x", "p"], ["y"])
    pads = np.array([[1, 2], [0, 3]], np.int32)
    np.testing.assert_array_equal(run(content, x=X, p=pads)["y"], np.pad(X, pads))
    number = T((), "int32")
    tensors = {"a": number, "b": number, "c": number, "y": T((1,), "int32", signature=(-1,))}
    content = model(tensors, [Op("RANGE", ["a", "b", "c"], ["y"])], ["a", "b", "c"], ["y"])
    ends = {n: np.array(v, np.int32) for n, v in zip("abc", (7, -2, -3), strict=True)}
    np.testing.assert_array_equal(run(content, **ends)["y"], np.arange(7, -2, -3))


def test_a_loop_replaces_the_row_that_it_counts():
    """As converters write a list that a recurrent layer fills."""
    one, number = constant(np.array(1, np.int32)), T((), "int32")
    rows = T((4, 6))
    less = Op("LESS", ["i", "n"], ["p"], "LessOptions")
    four = constant(np.array(4, np.int32))
    condition = Graph({"i": number, "r": rows, "n": four, "p": T((), "bool")}, [less], ["i", "r"], ["p"])
    unknown = T((1, 6), signature=(-1, 6))
    zero = constant(np.array(0, np.int32))
    tensors = {"i": number, "r": rows, "one": one, "zero": zero, "j": number, "start": T((2,), "int32")}
    tensors |= {"at": T((2,), "int32"), "next": T((2,), "int32"), "all": whole(-1, -1), "neg": whole(-1)}
    tensors |= {"count": T((2,), "int32"), "minus": constant(np.array(-1, np.int32))}
    tensors |= {"before": unknown, "behind": unknown, "row": T((1, 6)), "rows": rows, "first": whole(0, 0)}
    row_options = {"ValuesCount": 2, "Axis": 0}
    ops = [
        Op("ADD", ["i", "one"], ["j"], "AddOptions"),
        Op("PACK", ["i", "minus"], ["count"], "PackOptions", row_options),
        Op("PACK", ["j", "zero"], ["next"], "PackOptions", row_options),
        Op("SLICE", ["r", "first", "count"], ["before"]),
        Op("SLICE", ["r", "next", "all"], ["behind"]),
        Op("CONCATENATION", ["before", "row", "behind"], ["rows"], "ConcatenationOptions"),
    ]
    tensors["row"] = constant(np.full((1, 6), -1, np.float32))
    body = Graph(tensors, ops, ["i", "r"], ["j", "rows"])
    options = {"CondSubgraphIndex": 1, "BodySubgraphIndex": 2}
    loop = Op("WHILE", ["i", "r"], ["j", "y"], "WhileOptions", options)
    main = Graph({"i": number, "r": rows, "j": number, "y": rows}, [loop], ["i", "r"], ["y"])
    found = run(models(main, condition, body), i=np.array(2, np.int32), r=X)["y"]
    np.testing.assert_array_equal(found, np.concatenate([X[:2], np.full((2, 6), -1)]))


def test_shapes_of_different_lengths_have_one_in_common():
    tensors = {"a": T((2,), "int32"), "b": T((3,), "int32"), "y": T((3,), "int32")}
    content = model(tensors, [Op("BROADCAST_ARGS", ["a", "b"], ["y"])], ["a", "b"], ["y"])
    found = run(content, a=np.array([1, 5], np.int32), b=np.array([7, 4, 1], np.int32))["y"]
    np.testing.assert_array_equal(found, [7, 4, 5])
