"""The finder of shared models."""

from __future__ import annotations

import numpy as np
import pytest

from tests import data


def test_a_case_has_runs_with_named_arrays() -> None:
    case = data.model_case("mnist8")
    runs = case.runs()
    assert case.model.is_file()
    assert len(runs) == len(case.entry["runs"])
    for run, declared in zip(runs, case.entry["runs"], strict=True):
        assert set(run.inputs) == set(declared["in"])
        assert set(run.outputs) == set(declared["out"])


def test_check_accepts_the_reference_and_rejects_a_wrong_value() -> None:
    case = data.model_case("mnist8")
    outputs = case.runs()[0].outputs
    case.check(outputs, outputs)
    wrong = {name: value + np.asarray(1, value.dtype) for name, value in outputs.items()}
    with pytest.raises(AssertionError):
        case.check(wrong, outputs)


def test_an_absent_path_skips_with_a_reason() -> None:
    with pytest.raises(pytest.skip.Exception, match="no-such-file|beside"):
        data.data_path("no-such-file")
