"""Damaged ONNX models: they import or are refused; no crash, no hang, no unbounded memory."""

from __future__ import annotations

import time
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from onnx import TensorProto, helper

from inlay.base.diagnostics import CompileError, InternalError
from inlay.importers.limits import DEFAULT_LIMITS, ImportLimits
from inlay.importers.onnx.graph import import_model
from inlay.importers.onnx.load import parse_model
from inlay.ops.table import table
from tests.fuzz.targets import MANY, damaged
from tests.unit.importers.onnx.models import model, value

SECONDS = 20.0
"""No damaged model of these sizes may keep the processor this long (it takes milliseconds; what is
written out as far as the limits allow, seconds)."""

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def import_or_refuse(data: bytes, limits: ImportLimits = DEFAULT_LIMITS) -> bool:
    """Return whether a model is accepted; anything but a refusal passes through."""
    start = time.process_time()
    try:
        import_model(parse_model(data, "damaged"), table(), limits=limits)
    except InternalError:
        raise
    except CompileError:
        return False
    finally:
        assert time.process_time() - start < SECONDS
    return True


def test_damaged_models():
    accepted = [import_or_refuse(damaged(seed)) for seed in range(MANY, MANY + 30)]
    assert any(accepted)
    assert not all(accepted)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(40))
def test_many_damaged_models(block):
    for seed in range(MANY + 1000 + block * 250, MANY + 1250 + block * 250):
        import_or_refuse(damaged(seed))


@pytest.mark.parametrize("length", [0, 1, 7, 100])
def test_noise(length):
    assert not import_or_refuse(Random(length).randbytes(length))


@pytest.mark.parametrize("most", [5_000, pytest.param(DEFAULT_LIMITS.max_expanded, marks=pytest.mark.slow)])
def test_functions_that_double_with_every_level(most):
    functions = [
        helper.make_function(
            "own",
            f"f{i}",
            ["x"],
            ["y"],
            [
                helper.make_node(f"f{i + 1}", ["x"], ["t"], domain="own"),
                helper.make_node(f"f{i + 1}", ["t"], ["y"], domain="own"),
            ],
            [helper.make_opsetid("own", 1), helper.make_opsetid("", 17)],
        )
        for i in range(40)
    ]
    last = [helper.make_node("Neg", ["x"], ["y"])]
    functions.append(helper.make_function("own", "f40", ["x"], ["y"], last, [helper.make_opsetid("", 17)]))
    m = model(
        [helper.make_node("f0", ["x"], ["y"], domain="own")],
        [value("x", [2])],
        [value("y", [2])],
        functions=functions,
    )
    m.opset_import.append(helper.make_opsetid("own", 1))
    limits = replace(DEFAULT_LIMITS, max_expanded=most)
    assert not import_or_refuse(m.SerializeToString(), limits)


def test_a_function_that_calls_itself():
    own = [helper.make_opsetid("own", 1)]
    call = helper.make_node("f", ["x"], ["y"], domain="own")
    m = model(
        [call],
        [value("x", [2])],
        [value("y", [2])],
        functions=[helper.make_function("own", "f", ["x"], ["y"], [call], own)],
    )
    m.opset_import.extend(own)
    assert not import_or_refuse(m.SerializeToString())


def test_sizes_that_no_machine_has():
    shape = np.array([2**40, 2**40], np.int64)
    m = model(
        [helper.make_node("Expand", ["x", "shape"], ["y"])],
        [value("x", [1, 1])],
        [value("y", None)],
        {"shape": shape},
    )
    assert not import_or_refuse(m.SerializeToString())
    huge = model(
        [helper.make_node("Relu", ["x"], ["y"])],
        [value("x", [2**40, 2**40], TensorProto.FLOAT)],
        [value("y", None)],
    )
    assert not import_or_refuse(huge.SerializeToString())


def test_branches_nested_deeper_than_protobuf_reads():
    inner = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [], [value("y", [2])])
    for _ in range(60):
        branch = helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=inner)
        inner = helper.make_graph([branch], "g", [], [value("y", [2])])
        if len(inner.SerializeToString()) > 100_000:
            break
    m = model(list(inner.node), [value("x", [2]), value("c", [], TensorProto.BOOL)], [value("y", [2])])
    import_or_refuse(m.SerializeToString())
