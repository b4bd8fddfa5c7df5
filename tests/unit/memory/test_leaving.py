"""Results in the block: they leave it with it or as pages, and are the caller's alone."""

from __future__ import annotations

import numpy as np
import pytest

from inlay.api import compilation, explain
from inlay.ir.parser import parse_module
from inlay.memory.plan import Origin
from inlay.ops.table import table
from inlay.pipeline import memories
from inlay.runtime.native import lifts
from inlay.runtime.session import executable_of

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
# A block that leaves with its result.
SMALL = """
fn main(x: Tensor[1, 32, f32], z: Tensor[32, 1, f32]) { let a = sort(x); add(a.0, z) }
entry main("x", "z") -> ("y");
"""


def draw(seed: int, count: int = COUNT) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(count).astype(np.float32)


def planned(text: str, **options: object) -> int:
    """Return what a call takes, as the plan says."""
    return explain(parse_module(text, table()), view="memory", threads=1, **options).accounts[0].peak


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


@pytest.mark.skipif(not lifts(), reason="the system moves no pages")
def test_a_result_takes_bytes_that_are_dead(monkeypatch):
    inside = planned(ONE)
    monkeypatch.setattr(memories, "lifts", lambda: False)
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
