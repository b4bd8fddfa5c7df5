"""Attributes that the specification, or onnxruntime, does not allow are refused with the node's name.

The rows were found by putting values out of range, wrong words, lists of wrong lengths and unknown
names into valid nodes of every operator, and asking onnxruntime.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from inlay.base.diagnostics import CompileError
from tests.unit.importers.onnx.models import load, model, value

IMAGE = [1, 2, 6, 6]
WEIGHTS = np.ones((2, 2, 3, 3), np.float32)
WINDOW = {"kernel_shape": [2, 2]}
I64, STRING = TensorProto.INT64, TensorProto.STRING
LSTM = {"W": np.ones((1, 12, 2), np.float32), "R": np.ones((1, 12, 3), np.float32)}
POOL = {
    "mode": "TF",
    "min_gram_length": 1,
    "max_gram_length": 1,
    "max_skip_count": 0,
    "ngram_counts": [0],
    "ngram_indexes": [0, 1],
    "pool_int64s": [3, 4],
}

Constants = dict[str, np.ndarray]
# operator, inputs, constants behind them, attributes that are right, what makes them wrong
ROWS: list[tuple[str, list[Any], Constants, dict[str, Any], list[dict[str, Any]]]] = [
    (
        "Conv",
        [IMAGE],
        {"w": WEIGHTS},
        {"kernel_shape": [3, 3]},
        [
            {"kernel_shape": [2, 3]},
            {"kernel_shape": [3]},
            {"kernel_shape": [-1, -1]},
            {"strides": [0, 1]},
            {"dilations": [-1, 1]},
            {"pads": [1, 1]},
            {"group": "1"},
            {"auto_pad": "SAME"},
            {"auto_pad": "SAME_UPPER", "pads": [1, 1, 1, 1]},
            {"auto_pad": "VALID", "pads": [1]},
            {"stride": [1, 1]},
        ],
    ),
    (
        "ConvTranspose",
        [IMAGE],
        {"w": WEIGHTS},
        {},
        [
            {"output_padding": [1, 1]},
            {"output_padding": [-1, 0]},
            {"output_shape": [9]},
            {"output_shape": [0, 9]},
            {"auto_pad": "bogus"},
            {"kernel_shape": [2, 2]},
            {"pads": [1]},
        ],
    ),
    (
        "MaxPool",
        [IMAGE],
        {},
        WINDOW,
        [
            {"kernel_shape": [0, 2]},
            {"kernel_shape": []},
            {"strides": [-1, 1]},
            {"ceil_mode": 7},
            {"storage_order": 2},
            {"pads": [0, 0]},
        ],
    ),
    ("AveragePool", [IMAGE], {}, WINDOW, [{"count_include_pad": -1}, {"dilations": [0, 1]}]),
    ("LpPool", [IMAGE], {}, WINDOW, [{"strides": [0, 1]}, {"pads": [1, 1, 1]}]),
    ("DepthToSpace", [[1, 4, 2, 2]], {}, {"blocksize": 2}, [{"mode": "bogus"}]),
    ("SpaceToDepth", [IMAGE], {}, {"blocksize": 2}, [{"blocksize": 2.0}]),
    ("Gelu", [[3]], {}, {}, [{"approximate": "bogus"}]),
    ("Mod", [[3], [3]], {}, {"fmod": 1}, [{"fmod": 2}]),
    ("Softmax", [[2, 3]], {}, {}, [{"axis": 2}, {"axis": -3}, {"axes": [1]}]),
    ("Concat", [[2, 3], [2, 3]], {}, {"axis": 0}, [{"axis": 2}]),
    ("Transpose", [[2, 3]], {}, {}, [{"perm": [0, 0]}, {"perm": [0]}, {"perm": [0, 2]}]),
    ("CumSum", [[2, 3]], {"a": np.array(0)}, {}, [{"reverse": 2}, {"exclusive": -1}]),
    ("ReduceSum", [[2, 3]], {}, {}, [{"keepdims": 3}]),
    ("LayerNormalization", [[2, 3], [3]], {}, {}, [{"stash_type": 99}, {"stash_type": 7}]),
    ("Split", [[6]], {}, {"num_outputs": 1}, [{"num_outputs": 2}, {"num_outputs": -1}]),
    (
        "LSTM",
        [[4, 1, 2]],
        LSTM,
        {"hidden_size": 3},
        [
            {"hidden_size": 2},
            {"hidden_size": -3},
            {"clip": -1.0},
            {"clip": float("nan")},
            {"layout": 2},
            {"direction": "both"},
            {"activations": ["Tanh"]},
        ],
    ),
    (
        "Resize",
        [IMAGE],
        {"roi": np.zeros(0, np.float32), "s": np.ones(4, np.float32)},
        {},
        [{"keep_aspect_ratio_policy": "bogus"}, {"antialias": 9}, {"mode": "best"}, {"axes": [1, 1, 2, 3]}],
    ),
    (
        "TfIdfVectorizer",
        [("i", [5])],
        {},
        POOL,
        [
            {"min_gram_length": 0},
            {"min_gram_length": 2},
            {"max_gram_length": 3},
            {"max_skip_count": -1},
            {"mode": "bogus"},
        ],
    ),
    ("BitShift", [("u", [3]), ("u", [3])], {}, {"direction": "LEFT"}, [{"direction": "UP"}]),
]
CASES = [(row, bad) for row, (*_, wrong) in enumerate(ROWS) for bad in wrong]
KINDS = {"i": I64, "u": TensorProto.UINT8}


def made(row: int, attrs: dict[str, Any]) -> Any:
    """Return the model of a row with other attributes."""
    op, inputs, constants, right, _ = ROWS[row]
    given = [
        value(f"x{i}", shape[1], KINDS[shape[0]]) if isinstance(shape, tuple) else value(f"x{i}", shape)
        for i, shape in enumerate(inputs)
    ]
    node = helper.make_node(op, [*(g.name for g in given), *constants], ["y"], name="guilty")
    for name, content in (right | attrs).items():
        if content == []:
            node.attribute.add(name=name, type=7)
        else:
            node.attribute.append(helper.make_attribute(name, content))
    return model([node], given, [value("y", None)], constants, opset=20)


@pytest.mark.parametrize("row", range(len(ROWS)), ids=[r[0] for r in ROWS])
def test_what_is_right_is_accepted(row: int) -> None:
    load(made(row, {}))


@pytest.mark.parametrize("case", range(len(CASES)), ids=lambda i: f"{ROWS[CASES[i][0]][0]}-{i}")
def test_what_is_wrong_is_refused(case: int) -> None:
    with pytest.raises(CompileError) as failure:
        load(made(*CASES[case]))
    assert set(failure.value.ids) <= {"import.invalid-node", "type.op-argument"}
    assert all("guilty" in d.span.name for d in failure.value.diagnostics)


@pytest.mark.parametrize("directions", [[2], [-1], [0, 0], [1, 0, 1]])
@pytest.mark.parametrize("name", ["scan_input_directions", "scan_output_directions"])
def test_directions_of_a_scan(name: str, directions: list[int]) -> None:
    body = helper.make_graph(
        [helper.make_node("Add", ["s", "r"], ["s2"]), helper.make_node("Neg", ["r"], ["o"])],
        "body",
        [value("s", [2]), value("r", [2])],
        [value("s2", [2]), value("o", [2])],
    )
    node = helper.make_node(
        "Scan",
        ["s0", "xs"],
        ["last", "rows"],
        name="guilty",
        body=body,
        num_scan_inputs=1,
        **{name: directions},
    )
    outputs = [value("last", None), value("rows", None)]
    m = model([node], [value("s0", [2]), value("xs", ["n", 2])], outputs)
    with pytest.raises(CompileError, match=name) as failure:
        load(m)
    assert failure.value.ids == ("import.invalid-node",)


def test_an_attribute_given_twice() -> None:
    m = made(3, {})
    m.graph.node[0].attribute.append(helper.make_attribute("count_include_pad", 1))
    m.graph.node[0].attribute.append(helper.make_attribute("count_include_pad", 0))
    with pytest.raises(CompileError, match="an attribute twice"):
        load(m)
