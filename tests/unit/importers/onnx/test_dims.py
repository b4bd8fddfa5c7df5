"""Which axes of inputs are one size: those of one name, and no others."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from inlay.importers.onnx.protos import dim_name
from tests.unit.importers.onnx.models import load, model, run, value

PLACEHOLDERS = [
    "",
    "?",
    "??",
    "*",
    "-",
    " ",
    "-1",
    " -1 ",
    "None",
    "none",
    "NULL",
    "unknown",
    "unk",
    "dynamic",
    "any",
]
NAMES = ["n", "batch", "a.b", "unk__6", "DynamicDimension.0", "batch size", "2*n", "长度", "Nones", "0"]


def joined(a: list, b: list):
    """Return a model that joins two matrices along axis 1, and stacks nothing else."""
    node = helper.make_node("Concat", ["x", "y"], ["z"], axis=1)
    return model([node], [value("x", a), value("y", b)], [value("z", None)])


@pytest.mark.parametrize("label", PLACEHOLDERS)
def test_a_placeholder_is_each_axis_own_size(label: str) -> None:
    module = load(joined([label, label], [label, label]))
    dims = module.functions["main"].dims
    assert len(dims) == 4
    assert all(d.sym.name.isidentifier() for d in dims)
    x, y = np.ones((2, 3), np.float32), np.zeros((2, 5), np.float32)
    assert run(module, {"x": x, "y": y})["z"].shape == (2, 8)


@pytest.mark.parametrize("label", NAMES)
def test_a_name_is_one_size_whatever_its_spelling(label: str) -> None:
    (dim,) = load(joined([label, 3], [label, 4])).functions["main"].dims
    assert dim.sym.name == label


def test_names_of_axes_without_one_are_no_other_axis_name() -> None:
    m = joined(["y_0", "?"], ["?", "x_1"])
    names = [d.sym.name for d in load(m).functions["main"].dims]
    assert len(set(names)) == 4
    assert {"y_0", "x_1"} < set(names)


def test_an_axis_without_a_name_may_be_repeated() -> None:
    m = model(
        [helper.make_node("Add", ["x", "w"], ["y"])],
        [value("x", ["?", 1])],
        [value("y", None)],
        {"w": np.arange(12, dtype=np.float32).reshape(4, 3)},
    )
    x = np.ones((1, 1), np.float32)
    assert run(m, {"x": x})["y"].shape == (4, 3)


def test_elements_of_a_sequence_have_sizes_of_their_own() -> None:
    t = helper.make_tensor_type_proto(1, ["?", 3])
    x = helper.make_value_info("x", helper.make_sequence_type_proto(t))
    node = helper.make_node("ConcatFromSequence", ["x"], ["y"], axis=0)
    module = load(model([node], [x], [value("y", None)]))
    assert "?" not in str(module.functions["main"].params[0].type)


def test_the_name_of_a_dim() -> None:
    dims = value("x", ["n", 4, None, "?"]).type.tensor_type.shape.dim
    assert [dim_name(d) for d in dims] == ["n", "", "", ""]
