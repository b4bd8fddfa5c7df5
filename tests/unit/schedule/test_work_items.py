"""Schedules for devices that run many work items: the law, and what becomes an item."""

from __future__ import annotations

import pytest

from inlay.loop.func import LoopFunction
from inlay.loop.printer import print_function
from inlay.loop.scalar import ReduceOp
from inlay.machine.target import Target
from inlay.schedule.choose import FEW_ITEM_RULES, ITEM_RULES, schedule
from tests.unit.schedule.programs import dim, elementwise, gave_up, gemm, hold_law, layer_norm, softmax
from tests.unit.schedule.test_rules import pool, reduction


def items(f: LoopFunction, *sizes: tuple[int, ...]) -> str:
    chosen = schedule(f, Target(), ITEM_RULES)
    assert not gave_up(chosen)
    return print_function(hold_law(f, chosen, *sizes))


def test_each_point_is_an_item() -> None:
    text = items(elementwise(dim("n"), 3), (0,), (1,), (5,))
    assert text.count("parallel") == 1
    assert "uses" not in text  # what two nests hand over is in a register
    assert "vector" not in text


def test_reductions_stay_inside_an_item() -> None:
    text = items(gemm(dim("m"), dim("n"), 7), (3, 5), (1, 1), (0, 4))
    assert text.count("parallel") == 1
    assert "register" in text


def test_whoever_needs_all_items_is_another_phase() -> None:
    text = items(softmax(3, dim("n")), (4,), (1,))
    assert text.count("parallel") == 4  # maxima, exponentials, sums, quotients
    text = items(layer_norm(dim("m"), 5), (3,), (0,))
    assert "per_part" not in text


@pytest.mark.parametrize("axes", [(0,), (1, 2), (0, 1, 2)])
def test_reductions(axes: tuple[int, ...]) -> None:
    items(reduction((dim("a"), dim("b"), dim("c")), axes, ReduceOp.SUM), (2, 3, 5), (1, 1, 1))


@pytest.mark.parametrize("mean", [False, True])
def test_windows(mean: bool) -> None:
    items(pool(1, 5, channels_last=False, mean=mean))


def test_processors_keep_vectors_in_reductions() -> None:
    few = schedule(gemm(64, 64, 64), Target(), FEW_ITEM_RULES)
    assert "vector" in print_function(few.function)
    few = schedule(elementwise(64), Target(), FEW_ITEM_RULES)
    assert "vector" not in print_function(few.function)
