"""TFLite models give what the reference kernels give: integers to the last step."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import inlay
from inlay.interp.tensor import evaluate_entry
from tests.data import cases, model_case

pytest.importorskip("tflite", reason="the package 'tflite' is not installed")
NAMES = [c.id for c in cases("tflite")]
SAMPLE = ("mlperf_kws_int8", "tflm_micro_speech")
IN_STEPS = ("int8", "uint8", "int16")


def agree(case, actual, expected) -> None:
    """Compare the outputs of a run: integers exactly, floats within the tolerance of the case."""
    for name, value in expected.items():
        if value.dtype.name in IN_STEPS:
            np.testing.assert_array_equal(actual[name], value, err_msg=f"{case.id}: {name}")
    case.check({n: actual[n] for n in expected}, expected)


def replay(case, executable) -> None:
    """Run the inputs of a case in order, on one session: variables keep their values."""
    session = executable.session()
    for one in case.runs():
        agree(case, session.run(one.inputs), one.outputs)


@pytest.mark.llvm
@pytest.mark.parametrize(
    "name", [n if n in SAMPLE else pytest.param(n, marks=pytest.mark.slow) for n in NAMES]
)
def test_compiled(name: str):
    case = model_case(name)
    executable = inlay.compile(inlay.load(case.model), threads=1)
    replay(case, executable)


def test_bytes_are_what_a_file_is():
    case = model_case("tflm_hello_int8")
    module = inlay.load(Path(case.model).read_bytes())
    found = evaluate_entry(module, case.runs()[0].inputs)
    agree(case, found, case.runs()[0].outputs)
