"""Drawn calls of ONNX operators, through compiled code, the evaluator and onnxruntime.

`tools/onnx_fuzz.py` draws as many as one has time for; a seed that fails there is repeated by
`--seed N --cases 1`.
"""

from __future__ import annotations

import pytest

from tests.differential.onnx_calls import FAMILIES, draw
from tests.differential.onnx_compare import run_case

FINE = ("ok", "refused", "invalid", "known")
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def check(seed: int, only: str = "", *, compiled: bool) -> None:
    case = draw(seed, only)
    outcome, detail = run_case(case, compiled=compiled)
    assert outcome in FINE, f"{detail}\n{case}"


@pytest.mark.sample(80)
@pytest.mark.parametrize("op", sorted(FAMILIES))
def test_evaluated(op: str) -> None:
    """One case of each operator, and none that nobody can say anything about."""
    outcomes = [run_case(draw(seed, op), compiled=False) for seed in range(4)]
    assert [o for o in outcomes if o[0] not in FINE] == []
    assert any(o[0] == "ok" for o in outcomes)


@pytest.mark.sample(15)
@pytest.mark.llvm
@pytest.mark.parametrize("seed", range(1000, 1025))
def test_compiled(seed: int) -> None:
    check(seed, compiled=True)


@pytest.mark.slow
@pytest.mark.llvm
@pytest.mark.parametrize("seed", range(2000, 2400))
def test_more_compiled(seed: int) -> None:
    check(seed, compiled=True)
