"""Single-operator models against their stored results, evaluated and compiled."""

from __future__ import annotations

import random

import pytest

import inlay
from inlay.base.diagnostics import UnsupportedError
from inlay.importers.onnx.graph import import_model
from inlay.ops.table import table
from tests.data import data_path
from tests.models.ops_models import Executor, OpModel, evaluator, op_models

REFUSED = {"dropout__dropout": "training mode, which is random"}
DIFFERENT = {
    "attention__attention_qk_output_2": "the result shows masked products, which are -inf by the "
    "specification; the stored ones are the lowest finite number"
}
MODELS = list(op_models())
SEED = 20
SAMPLE = random.Random(SEED).sample(MODELS, min(len(MODELS), 60))
COMPILED = SAMPLE[:15]


def run(case: OpModel, execute: Executor) -> None:
    """Import a model, run what is stored of it, and compare."""
    if case.name in DIFFERENT:
        pytest.skip(DIFFERENT[case.name])
    if case.name in REFUSED:
        with pytest.raises(UnsupportedError):
            import_model(case.model(), table())
        return
    call = execute(import_model(case.model(), table()))
    for inputs, outputs in case.runs():
        case.check(call(inputs), outputs)


def compiled(module):
    """Run programs as native code."""
    return inlay.compile(module, threads=1).run


def test_the_archives_are_complete():
    data_path("ops")
    assert len(MODELS) == 455


@pytest.mark.sample(40)
@pytest.mark.data
@pytest.mark.parametrize("case", SAMPLE, ids=lambda c: c.name)
def test_evaluated_sample(case):
    run(case, evaluator)


@pytest.mark.data
@pytest.mark.llvm
@pytest.mark.parametrize("case", COMPILED, ids=lambda c: c.name)
def test_compiled_sample(case):
    run(case, compiled)


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.parametrize("case", MODELS, ids=lambda c: c.name)
def test_evaluated(case):
    run(case, evaluator)


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.llvm
@pytest.mark.parametrize("case", MODELS, ids=lambda c: c.name)
def test_compiled(case):
    run(case, compiled)
