"""Strings of ONNX: constants, casts, Unique, tables of labels, patterns that are refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from inlay.base.diagnostics import UnsupportedError
from inlay.importers.onnx.graph import import_model
from inlay.interp.tensor import evaluate_entry
from inlay.ops.table import table


def run(nodes: Sequence[onnx.NodeProto], outputs: Sequence[str], **inputs: Any) -> list[Any]:
    """Import a graph over vectors and return what it computes."""
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.asarray(x).dtype), ["n"])
        for name, x in inputs.items()
    ]
    results = [onnx.ValueInfoProto(name=name) for name in outputs]
    graph = helper.make_graph(nodes, "g", infos, results)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", 4)]
    module = import_model(helper.make_model(graph, opset_imports=opsets), table())
    found = evaluate_entry(module, inputs)
    return [found[name].tolist() for name in outputs]


X = np.array(["pear", "fig", "", "pear", "Fig"], object)


@pytest.mark.parametrize("is_sorted", [0, 1])
def test_unique(is_sorted: int) -> None:
    names = ("y", "at", "inverse", "counts")
    node = helper.make_node("Unique", ["x"], names, sorted=is_sorted)
    values, at, inverse, counts = run([node], names, x=X)
    if is_sorted:
        assert values == ["", "Fig", "fig", "pear"]
        assert at == [2, 4, 1, 0]
    else:
        assert values == ["pear", "fig", "", "Fig"]
        assert at == [0, 1, 2, 4]
    assert [values[i] for i in inverse] == X.tolist()
    assert [X.tolist().count(v) for v in values] == counts


def test_constants_of_strings() -> None:
    nodes = [
        helper.make_node("Constant", [], ["s"], value_strings=["fig", "\u00e4"]),
        helper.make_node("Constant", [], ["t"], value_string="!"),
        helper.make_node("StringConcat", ["s", "t"], ["u"]),
        helper.make_node("Concat", ["x", "u"], ["y"], axis=0),
    ]
    assert run(nodes, ["y"], x=X) == [[*X.tolist(), "fig!", "\u00e4!"]]


def test_casts() -> None:
    nodes = [
        helper.make_node("Cast", ["x"], ["i"], to=TensorProto.UINT64),
        helper.make_node("Cast", ["x"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Cast", ["f"], ["s"], to=TensorProto.STRING),
    ]
    x = np.array(["18446744073709551615", "7"], object)
    assert run(nodes, ["i", "s"], x=x) == [[2**64 - 1, 7], ["1.8446744e+19", "7.0"]]
    odd = np.array([np.nan, np.inf, -np.inf, 1e-7, 0.1], np.float32)
    written = helper.make_node("Cast", ["x"], ["s"], to=TensorProto.STRING)
    assert run([written], ["s"], x=odd) == [["NaN", "INF", "-INF", "1e-07", "0.1"]]


def test_labels() -> None:
    attributes = {"keys_strings": ["fig", "pear"], "values_floats": [0.5, 2.0]}
    node = helper.make_node(
        "LabelEncoder", ["x"], ["y"], domain="ai.onnx.ml", default_float=-1.0, **attributes
    )
    assert run([node], ["y"], x=X) == [[2.0, 0.5, -1.0, 2.0, -1.0]]
    back = {"keys_floats": [0.5, float("nan")], "values_strings": ["half", "none"]}
    node = helper.make_node("LabelEncoder", ["x"], ["y"], domain="ai.onnx.ml", **back)
    x = np.array([np.nan, 0.5, 3.0], np.float32)
    assert run([node], ["y"], x=x) == [["none", "half", "_Unused"]]


def test_counts_of_words() -> None:
    node = helper.make_node(
        "TfIdfVectorizer",
        ["x"],
        ["y"],
        mode="TF",
        min_gram_length=1,
        max_gram_length=2,
        max_skip_count=0,
        ngram_counts=[0, 2],
        ngram_indexes=[0, 1, 2],
        pool_strings=["fig", "pear", "pear", "fig"],
    )
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.STRING, [5])],
        [onnx.ValueInfoProto(name="y")],
    )
    opsets = [helper.make_opsetid("", 21)]
    module = import_model(helper.make_model(graph, opset_imports=opsets), table())
    assert evaluate_entry(module, {"x": X})["y"].tolist() == [1.0, 2.0, 1.0]


@pytest.mark.parametrize(
    "pattern", [r"a++", r"(?=a)", r"(a)\1", r"\pN", r"[[:alpha:]]", r"\z", r"(?>a)", r"\Qa\E"]
)
def test_patterns_that_mean_different_things_are_refused(pattern: str) -> None:
    node = helper.make_node("RegexFullMatch", ["x"], ["y"], pattern=pattern)
    with pytest.raises(UnsupportedError, match="common"):
        run([node], ["y"], x=X)


def test_patterns_are_ascii_as_those_of_re2() -> None:
    x = np.array(["1", "\u0661", "a\n", "a"], object)
    digits = helper.make_node("RegexFullMatch", ["x"], ["y"], pattern=r"\d|a$")
    assert run([digits], ["y"], x=x) == [[True, False, False, True]]
