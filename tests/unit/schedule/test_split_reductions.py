"""Long reductions to few results are cut into parts, and keep their meaning."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from inlay.arith.dtype import F32
from inlay.arith.expr import Int
from inlay.interp import loop as interp
from inlay.loop import te
from inlay.loop.from_te import from_te
from inlay.loop.func import LoopFunction
from inlay.loop.printer import print_function
from inlay.loop.scalar import ReduceOp
from inlay.loop.verify import check
from inlay.lower.lower import lower
from inlay.machine.target import Target
from inlay.schedule.choose import decide, schedule
from inlay.schedule.rules import split_reductions as rule
from inlay.schedule.rules.nests import SHARED
from tests.unit.schedule.programs import dim, hold_law, layer_norm, softmax
from tests.unit.schedule.test_rules import reduction

TARGET = replace(Target(), l2_bytes=512)
"""A second cache that holds no row of these tests."""
PART = 64


def noise(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


@pytest.fixture(autouse=True)
def _short_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut rows that an evaluator walks in no time."""
    monkeypatch.setattr(rule, "PART", PART)


@pytest.mark.sample(3)
@pytest.mark.parametrize("op", [ReduceOp.SUM, ReduceOp.MAX, ReduceOp.MIN, ReduceOp.MAX_NUMBER])
@pytest.mark.parametrize("then", [False, True])
@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((512,), (0,)),
        ((500,), (0,)),
        ((521,), (0,)),
        ((3, 300), (1,)),
        ((2, 1, 7, 40), (2, 3)),
        ((5, 3, 40), (0, 1, 2)),
        ((30, 3, 16), (0, 2)),
    ],
    ids=str,
)
def test_few_long_rows_are_reduced_in_parts(
    shape: tuple[int, ...], axes: tuple[int, ...], op: ReduceOp, then: bool
) -> None:
    f = reduction(shape, axes, op, then=then)
    s = schedule(f, TARGET)
    assert s.rule == "split_reductions"
    hold_law(f, s)


@pytest.mark.parametrize("is_own", [False, True])
def test_rows_that_read_the_same_do_so_part_by_part(*, is_own: bool) -> None:
    """As the least and the greatest number are found."""
    x = te.placeholder((2, 512), F32, "x")

    def end(i: Int) -> te.ScalarValue:
        k = te.reduce_axis("k", 512)
        v = x[i if is_own else 1, k]
        return te.min_over(k, te.select(te.index(i).equals(0), v, -v))

    f = from_te("f", [x], [te.compute((2,), end, name="ends")])
    s = schedule(f, TARGET)
    assert s.rule == "split_reductions"
    hold_law(f, s)
    loops = s.loops_of(s.block_names()[0])
    assert [s.loop(name).extent.value for name in loops[:2]] == ([2, 8] if is_own else [8, 2])


def test_threads_share_parts_and_results_do_not_depend_on_them() -> None:
    s = schedule(reduction((64 * PART, 16), (0, 1), ReduceOp.SUM), TARGET)
    first, *_ = [x for x in print_function(s.function).splitlines() if "for " in x]
    assert f"0..{64 * 16} parallel" in first, "one for each part of the row, however many threads there are"


@pytest.mark.parametrize("length", [8 * PART, 9 * 57, 521])
def test_exponentials_are_added_where_they_are_made_if_parts_are_whole(length: int) -> None:
    f = softmax(1, length)
    s = schedule(f, TARGET)
    assert s.rule == "split_reductions"
    lowered = lower(s.function, TARGET)
    check(lowered)
    x = noise(1, length)
    (got,) = interp.run(lowered, [x.reshape(length)], {})
    e = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(got.reshape(1, length), e / e.sum(1, keepdims=True), rtol=1e-5)
    text = print_function(lowered)
    is_one_body = "}" not in text[text.index("exp(") : text.index("] + y[")]
    assert is_one_body == (length != 521)


@pytest.mark.parametrize("rows", [1, 2])
def test_stages_of_a_normalization_have_threads_of_their_own(rows: int) -> None:
    length = 128 * PART
    f = layer_norm(rows, length)
    s = schedule(f, TARGET)
    assert s.rule == "split_reductions"
    lowered = lower(s.function, TARGET)
    check(lowered)
    assert print_function(lowered).count(" parallel ") == 3
    x, g = noise(rows, length), noise(length)
    given = [v.reshape([n.value or 0 for n in p.shape]) for v, p in zip((x, g), lowered.params, strict=False)]
    (got,) = interp.run(lowered, given, {})
    centered = x - x.mean(1, keepdims=True)
    wanted = centered / np.sqrt((centered**2).mean(1, keepdims=True) + 1e-5) * g
    np.testing.assert_allclose(got.reshape(rows, length), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("f", "target"),
    [
        (reduction((SHARED, 300), (1,), ReduceOp.MAX), TARGET),
        (reduction((2, 3 * PART), (1,), ReduceOp.MAX), TARGET),
        (reduction((dim("n"),), (0,), ReduceOp.MAX), TARGET),
        (reduction((100, 8), (0,), ReduceOp.MAX), TARGET),
        (layer_norm(2, 5 * PART), Target()),
    ],
    ids=["many rows", "short", "unknown", "columns", "in the cache"],
)
def test_what_is_left_to_rows(f: LoopFunction, target: Target) -> None:
    assert decide(f, target).rule == "rows"
