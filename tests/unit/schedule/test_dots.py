"""Products whose factors both lie along the terms become tiles of dot products, and keep their meaning."""

from __future__ import annotations

from dataclasses import replace

import pytest

from inlay.arith.dtype import F32
from inlay.arith.expr import to_int
from inlay.loop import te
from inlay.loop.from_te import from_te
from inlay.loop.stmt import LoopKind
from inlay.machine.target import baseline
from inlay.schedule.choose import decide
from inlay.schedule.rules.dots import FEW_ROWS, MANY_ALIGNED, MANY_ROWS, dots
from inlay.schedule.rules.loops import reduce_loops
from inlay.schedule.state import Illegal, Schedule
from tests.unit.schedule.programs import dim, gave_up, hold_law
from tests.unit.schedule.test_packing import Dims, transposed

SMALL = baseline("x86_64", "v2")
"""Four lanes, sixteen registers."""


@pytest.mark.sample(1)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((1, 16), (9, 16)),
        ((2, 1, 18), (2, 6, 18)),
        ((2, 16), (8, 16)),
        ((3, 37), (7, 37)),
        ((5, 18), (4, 18)),
        ((9, 16), (3, 16)),
        ((13, 208), (11, 208)),
        ((2, 3, 17), (2, 6, 17)),
    ],
    ids=str,
)
@pytest.mark.parametrize("lanes", [4, 16])
def test_tiles_of_dot_products(a: Dims, b: Dims, bias: bool, lanes: int) -> None:
    terms = lanes // 4
    a, b = ((*x[:-1], x[-1] * terms) for x in (a, b))
    target = replace(SMALL, vector_bytes=4 * lanes, vector_registers=8 + 3 * lanes // 2)
    f = transposed(a, b, bias=bias)
    s = Schedule(f)
    block = s.block_names()[0]
    dots(s, target)
    hold_law(f, s)
    loops = s.loops_of(f"{block}_lanes")
    (terms,) = reduce_loops(s, f"{block}_lanes")
    *tile, lane = [s.loop(x).kind for x in loops[loops.index(terms) + 1 :]]
    assert lane is LoopKind.VECTOR
    assert tile
    assert {*tile} == {LoopKind.UNROLL}, "terms are outside of what is written out"
    assert not gave_up(decide(f, target))


@pytest.mark.parametrize(
    ("a", "b", "why"),
    [
        ((2, 12), (8, 12), "terms"),
        ((dim("m"), 64), (8, 64), "known"),
        ((2, 64), (dim("n"), 64), "known"),
        ((FEW_ROWS + 1, 64), (20, 64), "fewer"),
        ((MANY_ROWS + 1, 512), (40, 512), "fewer"),
        ((MANY_ALIGNED + 1, 1024), (40, 1024), "fewer"),
    ],
    ids=str,
)
def test_what_is_left_to_other_rules(a: Dims, b: Dims, why: str) -> None:
    f = transposed(a, b)
    with pytest.raises(Illegal, match=why):
        dots(Schedule(f), SMALL)
    assert decide(f, SMALL).rule != "dots"


def test_a_factor_may_be_one_number() -> None:
    x, c = te.placeholder((to_int(4), to_int(64)), F32, "x"), te.placeholder((), F32, "c")
    k = te.reduce_axis("k", 64)
    f = from_te("scaled", [x, c], [te.compute((to_int(4),), lambda i: te.sum_over(k, x[i, k] * c[()]))])
    with pytest.raises(Illegal, match="across"):
        dots(Schedule(f), SMALL)
