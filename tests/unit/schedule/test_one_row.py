"""One row times a computed matrix reads it in the order in which it lies, and keeps its meaning."""

from __future__ import annotations

import pytest

from inlay.loop.stmt import LoopKind
from inlay.schedule.choose import decide
from inlay.schedule.rules.computed_product import RUN
from inlay.schedule.rules.one_row import FEWEST_BLOCKS, PARTS, one_row
from inlay.schedule.state import Illegal, Schedule
from tests.unit.schedule.programs import dim, gave_up, hold_law
from tests.unit.schedule.test_packing import Dims, two_factors
from tests.unit.schedule.test_streams import SMALL

WIDE = 2 * RUN
LONG = 8 * 3 * FEWEST_BLOCKS
"""Terms of three parts."""


@pytest.mark.sample(1)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("columns", [WIDE, WIDE + 5])
@pytest.mark.parametrize("terms", [64, 37, 20, 90, LONG])
def test_the_matrix_is_read_row_by_row(terms: int, columns: int, bias: bool) -> None:
    f = two_factors((1, terms), (terms, columns), bias=bias)
    s = Schedule(f)
    block = s.block_names()[0]
    one_row(s, SMALL)
    hold_law(f, s)
    part, _, panel, *_ = s.loops_of(f"{block}_lanes")
    assert s.loop(panel).extent == -(-columns // 8), "whole rows: two vectors of four columns at a time"
    assert 2 <= (s.loop(part).extent.value or 0) <= PARTS
    kinds = [s.loop(x).kind for x in s.loops_of(f"{block}_lanes")[3:]]
    assert kinds[0] is (LoopKind.SERIAL if terms == 37 else LoopKind.UNROLL), "rows side by side"
    assert not gave_up(decide(f, SMALL))


@pytest.mark.parametrize(
    ("a", "b", "why"),
    [
        ((2, 64), (64, WIDE), "rows"),
        ((1, dim("k")), (dim("k"), WIDE), "known"),
        ((1, 64), (64, WIDE - 1), "columns"),
        ((2, 1, 64), (2, 64, WIDE), "alone"),
    ],
    ids=str,
)
def test_what_is_left_to_other_rules(a: Dims, b: Dims, why: str) -> None:
    f = two_factors(a, b)
    with pytest.raises(Illegal, match=why):
        one_row(Schedule(f), SMALL)
    assert decide(f, SMALL).rule != "one_row"
