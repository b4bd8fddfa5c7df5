"""Nodes that operators of the user stand for."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

import inlay
from inlay.base.diagnostics import CompileError
from inlay.importers.onnx.graph import import_model
from inlay.ops.table import table
from inlay.pipeline.externs import with_externs
from inlay.runtime.extern import Extern, extern
from tests.unit.importers.onnx.models import model, value

RULE = "(x: Tensor[n, f32]) -> Tensor[n, f32]"


def custom(*nodes, outputs=("y",)):
    built = model(nodes, [value("x", ["n"])], [value(o, ["n"]) for o in outputs])
    built.opset_import.append(helper.make_opsetid("com.acme", 1))
    return built


def load(m, *externs: Extern):
    return import_model(m, with_externs(table(), externs))


def scale(name: str, **given) -> Extern:
    return extern(
        name,
        RULE,
        python=lambda x, by, mode, axes, on, ws: x * np.float32(by + len(axes) + on + ws[0]),
        attributes={"by": 1.0, "mode": "m", "axes": (1, 2), "on": False, "ws": (0.0,)},
        **given,
    )


@pytest.mark.parametrize("name", ["com.acme.Scale", "Scale"])
def test_attributes_are_passed_through(name):
    node = helper.make_node(
        "Scale", ["x"], ["y"], domain="com.acme", by=2.5, mode="z", axes=[1, 2, 3], on=1, ws=[0.5]
    )
    exe = inlay.compile(load(custom(node), scale(name)), cache="none")
    np.testing.assert_array_equal(exe(np.ones(2, np.float32)), np.full(2, 7.0))
    plain = helper.make_node("Scale", ["x"], ["y"], domain="com.acme")
    exe = inlay.compile(load(custom(plain), scale(name)), cache="none")
    np.testing.assert_array_equal(exe(np.ones(2, np.float32)), np.full(2, 3.0))


def test_several_results_and_branches(tmp_path):
    two = extern(
        "com.acme.Two",
        "(x: Tensor[n, f32]) -> (Tensor[n, f32], Tensor[n, f32])",
        python=lambda x: (x + 1, x * 2),
    )
    m = custom(
        helper.make_node("Two", ["x"], ["a", "b"], domain="com.acme"),
        helper.make_node("Two", ["b"], ["c"], domain="com.acme"),
        helper.make_node("Add", ["a", "c"], ["y"]),
    )
    (tmp_path / "m.onnx").write_bytes(m.SerializeToString())
    x = np.arange(3, dtype=np.float32)
    exe = inlay.compile(tmp_path / "m.onnx", externs=[two], cache="none")
    np.testing.assert_array_equal(exe(x), (x + 1) + (2 * x + 1))


def test_standard_operators_stay_what_they_are():
    never = extern("Relu", RULE, python=lambda x: x)
    m = custom(helper.make_node("Relu", ["x"], ["y"]))
    exe = inlay.compile(load(m, never), cache="none")
    np.testing.assert_array_equal(exe(np.array([-1, 1], np.float32)), [0, 1])


def test_what_is_missing_is_listed_with_the_rest():
    m = custom(
        helper.make_node("One", ["x"], ["a"], domain="com.acme"),
        helper.make_node("Two", ["a"], ["b"], domain="com.acme"),
        helper.make_node("Scale", ["b"], ["y"], domain="com.acme"),
    )
    with pytest.raises(CompileError) as caught:
        load(m, scale("Scale"))
    assert caught.value.ids == ("import.unknown-operator",) * 2
    assert "externs=[inlay.extern('com.acme.One', ...)]" in caught.value.diagnostics[0].hint


@pytest.mark.parametrize(
    ("attributes", "said"),
    [({"other": 1}, "has attribute 'other'"), ({"by": 3}, "of type int, needed float")],
)
def test_attributes_that_do_not_fit(attributes, said):
    node = helper.make_node("Scale", ["x"], ["y"], domain="com.acme", **attributes)
    with pytest.raises(CompileError, match=said) as caught:
        load(custom(node), scale("Scale"))
    assert caught.value.ids == ("import.invalid-node",)


def test_attributes_that_are_needed():
    needy = extern("Needy", RULE, python=lambda x, k: x, attributes={"k": int})
    with pytest.raises(CompileError, match="lacks the attribute k"):
        load(custom(helper.make_node("Needy", ["x"], ["y"], domain="com.acme")), needy)
