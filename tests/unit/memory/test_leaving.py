"""Results in the block: they leave it with it or as pages, and are the caller's alone."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlay.api import compilation, explain
from inlay.ir.parser import parse_module
from inlay.memory import leaving
from inlay.memory.plan import Origin
from inlay.ops.table import table
from inlay.pipeline import memories
from inlay.runtime.native import lifts
from inlay.runtime.session import executable_of
from tests.examples import examples

COUNT = 16_384
BYTES = 4 * COUNT
# Sorting takes scratch memory, and what it makes is alive when the result is made.
SORTED = """
fn main(x: Tensor[16384, f32]) { let a = sort(x); let y = tanh(a.0); %s }
entry main("x") -> (%s);
"""
ONE = SORTED % ("y", '"y"')
TWO = SORTED % ("(y, sqrt(exp(a.0)))", '"y", "z"')
TWICE = SORTED % ("(y, y)", '"y", "z"')
# The same for rows of a number that each call says, at least one.
OPEN = """
fn main<b >= 1>(x: Tensor[b, 16384, f32]) { let a = sort(x); tanh(a.0) }
entry main("x") -> ("y");
"""
# A block that leaves with its result.
SMALL = """
fn main(x: Tensor[1, 32, f32], z: Tensor[32, 1, f32]) { let a = sort(x); add(a.0, z) }
entry main("x", "z") -> ("y");
"""


@pytest.fixture(scope="module", autouse=True)
def _any_work() -> Iterator[None]:
    """Let results of quick programs leave as pages, or they would have to be slow."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(leaving, "LEAST_WORK", 0)
        yield


def draw(seed: int, count: int = COUNT) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(count).astype(np.float32)


def planned(text: str, **options: object) -> int:
    """Return what a call takes, as the plan says."""
    return explain(parse_module(text, table()), view="memory", threads=1, **options).accounts[0].peak


@cache
def open_peak(plan: str, rows: int) -> int:
    """Return what a call of so many rows takes, as the plan says."""
    return planned(OPEN, plan=plan, typical=(f"b={rows}",))


@pytest.mark.sample(4)
@pytest.mark.parametrize("mode", ["sequential", "parallel"])
@pytest.mark.parametrize("plan", ["serial", "parallel"])
@pytest.mark.parametrize("text", [ONE, TWO, TWICE], ids=["one", "two", "twice"])
def test_results_that_left_stay_as_they_are(text, plan, mode):
    compiled = compilation(parse_module(text, table()), cache="none", threads=1, plan=plan)
    made = executable_of(compiled.program, threads=1, mode=mode)
    kept = [made.run({"x": draw(seed)}) for seed in range(4)]
    kept[1]["y"][:] = 0.0
    for seed, found in enumerate(kept):
        if seed != 1:
            np.testing.assert_allclose(found["y"], np.tanh(np.sort(draw(seed))), rtol=1e-5, atol=1e-6)
    assert made.usage().peak_bytes == planned(text, plan=plan)


@settings(max_examples=examples(3))
@given(
    st.lists(st.integers(1, 5), min_size=2, max_size=6),
    st.sampled_from(("serial", "parallel")),
    st.sampled_from(("sequential", "parallel")),
    st.data(),
)
def test_results_of_open_batches_leave_for_each_size(batches: list[int], plan: str, mode: str, more):
    module = parse_module(OPEN, table())
    compiled = compilation(module, cache="none", threads=1, plan=plan)
    (planned_for,) = [p for p in compiled.report.plans if p.parts]
    assert bool(planned_for.counted) != lifts()  # with pages to move, the result is in the block
    made = executable_of(compiled.program, threads=1, mode=mode)
    kept: list[tuple[np.ndarray, np.ndarray]] = []
    for seed, rows in enumerate(batches):
        x = np.random.default_rng(seed).standard_normal((rows, COUNT)).astype(np.float32)
        found = made.run({"x": x})["y"]
        assert made.usage().peak_bytes == open_peak(plan, rows)
        kept.append((found, np.tanh(np.sort(x))))
        if more.draw(st.booleans()):  # what a caller writes is its own, and what it drops is free
            found[:] = np.nan
            kept.pop(more.draw(st.integers(0, len(kept) - 1)))
    for found, wanted in kept:
        if not np.isnan(found).any():
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.skipif(not lifts(), reason="the system moves no pages")
def test_a_result_takes_bytes_that_are_dead(monkeypatch):
    inside = planned(ONE)
    monkeypatch.setattr(memories, "lifts", lambda: False)
    assert planned(ONE) == inside + BYTES


@pytest.mark.skipif(not lifts(), reason="the system moves no pages")
def test_a_result_that_is_quick_to_compute_is_no_pages(monkeypatch):
    inside = planned(ONE)
    monkeypatch.setattr(leaving, "LEAST_WORK", 40)
    assert planned(ONE) == inside + BYTES


def test_a_promise_counts_on_no_pages():
    budget = explain(parse_module(ONE, table()), view="memory", threads=1, budget=("host=10MiB",))
    assert [c.origin for plan in budget.plans for c in plan.counted] == [Origin.RESULT]


def test_a_small_block_leaves_with_its_result():
    compiled = compilation(parse_module(SMALL, table()), cache="none", threads=1)
    (plan,) = [p for p in compiled.report.plans if p.parts]
    assert not plan.counted
    made = executable_of(compiled.program, threads=1)
    z = draw(9, 32).reshape(32, 1)
    kept = [made.run({"x": draw(seed, 32).reshape(1, 32), "z": z})["y"] for seed in range(3)]
    for seed, found in enumerate(kept):
        np.testing.assert_array_equal(found, np.sort(draw(seed, 32)) + z)
    assert made.usage().peak_bytes == planned(SMALL)
