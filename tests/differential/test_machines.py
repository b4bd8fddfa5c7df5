"""Drawn programs on drawn machines give what the host alone and the evaluator give."""

from __future__ import annotations

import functools
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlay.base.diagnostics import CompileError, RunError
from inlay.importers.onnx.graph import import_model
from inlay.ops.table import table
from tests.differential.machines import Job, draw_board, job, try_machine
from tests.differential.onnx_draw import Draw
from tests.differential.onnx_graphs import draw_graph
from tests.models.ops_models import evaluator
from tests.property.gen_ir import programs, run

pytestmark = [pytest.mark.llvm, pytest.mark.filterwarnings("ignore::RuntimeWarning")]


@functools.cache
def graph_job(seed: int, cache: str) -> Job | None:
    """The graph of a seed, run on the host alone; None where it is refused."""
    case = draw_graph(seed)
    try:
        module = import_model(case.model, table())
        meaning = list(evaluator(module)(case.inputs).values())
        return job(module, list(case.inputs.values()), meaning, cache)
    except (CompileError, RunError):
        return None


def check(seed: int, machines: int, cache: str) -> list[str]:
    """Try a graph on some machines; return the outcomes."""
    task = graph_job(seed, cache)
    found: list[str] = []
    for number in range(machines if task is not None else 0):
        d = Draw(100 * seed + number)
        board = draw_board(d)
        try:
            assert task is not None
            found.append(try_machine(task, d, board, cache=cache)[0])
        except (AssertionError, CompileError, RunError) as failure:
            raise AssertionError(f"graph {seed}, machine {number}: {failure}\n{board}") from failure
    return found


def test_graphs(tmp_path):
    outcomes = [x for seed in (3, 8) for x in check(seed, 3, str(tmp_path))]
    assert "split" in outcomes


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2000, 2100))
def test_more_graphs(seed, tmp_path):
    check(seed, 5, str(tmp_path))


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(programs(), st.integers(0, 10_000))
def test_programs(tmp_path_factory, p, seed):
    """Programs of the whole language: branches, loops, closures, lists, cells."""
    cache = str(tmp_path_factory.getbasetemp() / "machines")
    expected = run(p)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        task = job(p.module, p.args, expected if isinstance(expected, tuple) else (expected,), cache)
    for number in range(3):
        d = Draw(100 * seed + number)
        board = draw_board(d)
        with np.errstate(all="ignore"):
            try_machine(task, d, board, cache=cache)
