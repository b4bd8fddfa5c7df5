"""Few rows read a factor that is computed in the order of its rows, and keep their meaning."""

from __future__ import annotations

from dataclasses import replace

import pytest

from inlay.machine.target import baseline
from inlay.schedule.choose import decide
from inlay.schedule.rules.computed_product import BLOCK, RUN
from inlay.schedule.rules.loops import reduce_loops
from inlay.schedule.rules.streams import SETS, streams
from inlay.schedule.state import Illegal, Schedule
from tests.unit.schedule.programs import dim, hold_law
from tests.unit.schedule.test_packing import Dims, two_factors

SMALL = replace(baseline("x86_64", "v2"), l1_bytes=4096, l3_bytes=4096)
"""Four lanes, a first cache that no factor fits, and a last one for which all are far."""
WIDE = 2 * RUN
K = dim("k")


@pytest.mark.sample(2)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(
    ("a", "b", "sizes"),
    [
        ((1, 64), (64, WIDE), [()]),
        ((1, 37), (37, WIDE + 5), [()]),
        ((7, 20), (20, WIDE), [()]),
        ((9, 18), (18, WIDE), [()]),
        ((2, 1, 40), (2, 40, WIDE), [()]),
        ((2, 3, 17), (2, 17, WIDE + 1), [()]),
        ((3, K), (K, WIDE), [(0,), (1,), (BLOCK,), (50,)]),
    ],
    ids=str,
)
def test_rows_are_read_side_by_side(a: Dims, b: Dims, sizes: list[tuple[int, ...]], bias: bool) -> None:
    f = two_factors(a, b, bias=bias)
    s = Schedule(f)
    block = s.block_names()[0]
    streams(s, SMALL)
    hold_law(f, s, *sizes)
    # The reduction is outside the panels, so that a row is read from left to right.
    loops = s.loops_of(block)
    outside = loops[: loops.index(reduce_loops(s, block)[0])]
    assert sum(s.loop(x).extent != 1 for x in outside) == 1, "chunks of columns alone, of all batches"


@pytest.mark.parametrize(
    ("a", "b", "why"),
    [
        ((24, 64), (64, WIDE), "rows"),
        ((dim("m"), 64), (64, WIDE), "rows"),
        ((1, 64), (64, WIDE - 1), "columns"),
        ((1, 64), (64, dim("n")), "columns"),
        ((1, BLOCK), (BLOCK, 8 * WIDE), "first cache"),
        ((2, 2, 64), (64, WIDE), "one"),
    ],
    ids=str,
)
def test_what_is_left_to_other_rules(a: Dims, b: Dims, why: str) -> None:
    f = two_factors(a, b)
    with pytest.raises(Illegal, match=why):
        streams(Schedule(f), SMALL)
    assert decide(f, SMALL).rule == "contraction"


def test_a_small_factor_stays_in_the_cache() -> None:
    f = two_factors((2, 17), (17, WIDE))
    assert decide(f, SMALL).rule == "streams"
    assert decide(f, replace(SMALL, l1_bytes=32768)).rule == "contraction"


def test_panels_of_a_near_factor_are_read_unless_its_rows_share_sets() -> None:
    near = replace(SMALL, l3_bytes=8 << 20)
    aligned = SETS // 4
    assert decide(two_factors((2, 17), (17, aligned)), near).rule == "streams"
    assert decide(two_factors((2, 17), (17, aligned + 4)), near).rule == "contraction"
    wide = replace(near, vector_bytes=64, vector_registers=32)
    assert decide(two_factors((4, 17), (17, aligned)), wide).rule == "contraction"
