"""Drawn graphs of ONNX operators, through compiled code, the evaluator and onnxruntime."""

from __future__ import annotations

import pytest

from tests.differential.onnx_compare import run_case
from tests.differential.onnx_graphs import draw_graph

FINE = ("ok", "refused", "invalid", "known")
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def check(seed: int, *, compiled: bool) -> str:
    case = draw_graph(seed)
    outcome, detail = run_case(case, compiled=compiled)
    assert outcome in FINE, f"seed {seed}: {detail}\n{case.model.graph}"
    return outcome


def test_evaluated() -> None:
    outcomes = [check(seed, compiled=False) for seed in range(60)]
    assert outcomes.count("ok") > 40


@pytest.mark.sample(3)
@pytest.mark.llvm
@pytest.mark.parametrize("seed", range(100, 106))
def test_compiled(seed: int) -> None:
    check(seed, compiled=True)


@pytest.mark.slow
@pytest.mark.llvm
@pytest.mark.parametrize("seed", range(1000, 1300))
def test_more_compiled(seed: int) -> None:
    check(seed, compiled=True)
