"""The backend protocol of ONNX, called directly and by the runner of ONNX."""

from __future__ import annotations

import unittest

import numpy as np
import onnx
import onnx.backend.test
import pytest
from onnx import helper
from onnx.backend.test.runner import BackendIsNotSupposedToImplementIt

from inlay.compat import onnx_backend
from tests.onnx_tests import load
from tests.unit.importers.onnx.models import model, value

pytestmark = [
    pytest.mark.llvm,
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


def difference() -> onnx.ModelProto:
    return model(
        [helper.make_node("Sub", ["a", "b"], ["c"])],
        [value("a", ["n"]), value("b", ["n"])],
        [value("c", ["n"])],
    )


def test_inputs_by_position_and_by_name():
    a, b = np.array([5, 7], np.float32), np.array([1, 2], np.float32)
    prepared = onnx_backend.prepare(difference())
    np.testing.assert_array_equal(prepared.run([a, b]).c, a - b)
    np.testing.assert_array_equal(prepared.run({"b": a, "a": b})[0], b - a)
    with pytest.raises(ValueError, match="1 inputs given"):
        prepared.run([a])


def test_a_single_array_is_one_input():
    relu = model([helper.make_node("Relu", ["x"], ["y"])], [value("x", [2])], [value("y", [2])])
    (y,) = onnx_backend.run_model(relu, np.array([-1, 3], np.float32))
    np.testing.assert_array_equal(y, [0, 3])


def test_a_single_node():
    node = helper.make_node("Concat", ["x", "y"], ["z"], axis=0)
    x, y = np.ones((1, 2), np.float32), np.zeros((3, 2), np.float32)
    (z,) = onnx_backend.run_node(node, [x, y])
    np.testing.assert_array_equal(z, np.concatenate([x, y]))


def test_a_refusal_skips_the_test():
    m = model([helper.make_node("RandomNormal", [], ["y"], shape=[2])], [], [value("y", [2])])
    with pytest.raises(BackendIsNotSupposedToImplementIt, match="RandomNormal"):
        onnx_backend.prepare(m)


def test_devices():
    assert onnx_backend.supports_device("CPU")
    assert not onnx_backend.supports_device("CUDA:1")
    assert not onnx_backend.supports_device("abacus")


def test_the_runner_of_onnx(monkeypatch):
    """The official runner is content with what works and with what is refused."""
    monkeypatch.setattr("onnx.backend.test.runner.load_model_tests", load)
    runner = onnx.backend.test.BackendTest(onnx_backend, __name__)
    runner.include("^test_(add|gru_defaults|nonzero_example|string_concat)_cpu$")
    result = unittest.TestResult()
    runner.test_suite.run(result)
    assert not result.errors, result.errors[0][1]
    assert not result.failures, result.failures[0][1]
    # What is refused counts as passed there; all else was left out by the pattern, which some versions of
    # Python count as run.
    left_out = {case.id().rsplit(".", 1)[-1] for case, _ in result.skipped}
    assert result.testsRun in (4, 4 + len(left_out))
