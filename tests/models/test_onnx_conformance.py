"""The ONNX backend tests that must pass: one for each operator and combination of element types.

`onnx_conformance.txt` names them; `tools/onnx_conformance.py` runs all there are. What is not in the
list may be refused with a reason, but must be neither wrong nor a crash (the slow test).
"""

from __future__ import annotations

import importlib.util
import random
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

from tests.onnx_tests import load

HERE = Path(__file__).parent
NAMES = (HERE / "onnx_conformance.txt").read_text().split()
SEED = 22
SAMPLE = random.Random(SEED).sample(NAMES, 40)
COMPILED = SAMPLE[:10]


@cache
def tool() -> ModuleType:
    """Return the script as a module."""
    path = HERE.parents[1] / "tools" / "onnx_conformance.py"
    spec = importlib.util.spec_from_file_location("onnx_conformance", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@cache
def cases():
    """Return all backend tests by name."""
    script = tool()
    return {t.name: t for kind in script.KINDS for t in load(kind)}


def outcome(name: str, *, use_evaluator: bool) -> tuple[str, str]:
    """Run one test."""
    return tool().run_one(cases()[name], use_evaluator=use_evaluator)


pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


@pytest.mark.parametrize("name", SAMPLE)
def test_evaluated_sample(name):
    assert outcome(name, use_evaluator=True) == ("ok", "")


@pytest.mark.llvm
@pytest.mark.parametrize("name", COMPILED)
def test_compiled_sample(name):
    assert outcome(name, use_evaluator=False) == ("ok", "")


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted({*NAMES} - {*SAMPLE}))
def test_evaluated(name):
    assert outcome(name, use_evaluator=True) == ("ok", "")


@pytest.mark.slow
@pytest.mark.llvm
@pytest.mark.parametrize("name", sorted({*NAMES} - {*COMPILED}))
def test_compiled(name):
    assert outcome(name, use_evaluator=False) == ("ok", "")


DEPARTING = {"test_dft_inverse_opset19"}
"""Tests that expect something else than the exact result rounded: here 1.9e-7, which rounding in an f32
transform left of sums that are 0, with a tolerance of 1e-7.
"""


@pytest.mark.slow
def test_nothing_is_wrong():
    found = {n: outcome(n, use_evaluator=True) for n in cases() if n not in DEPARTING}
    assert {n: o for n, o in found.items() if o[0] in ("wrong", "crash")} == {}
