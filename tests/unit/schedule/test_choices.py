"""Loops that values are chosen by are written out around the vectors."""

from __future__ import annotations

import pytest

from inlay.arith.dtype import F32
from inlay.arith.expr import Int, lit, mod
from inlay.loop import te
from inlay.loop.from_te import from_te
from inlay.loop.func import LoopFunction
from inlay.loop.stmt import LoopKind
from inlay.schedule.primitives.split import split
from inlay.schedule.rules.choices import write_out_choices
from inlay.schedule.state import Schedule
from tests.unit.schedule.programs import hold_law


def chosen(shape: tuple[int, ...], which, count: int) -> LoopFunction:
    """The sum, the difference or the product of two lines, as an axis says."""
    x = te.placeholder((2, shape[-1]), F32, "x")

    def body(*i: Int) -> te.ScalarValue:
        a, b = x[lit(0), i[-1]], x[lit(1), i[-1]]
        value = a * b
        for k, form in reversed(list(enumerate((a + b, a - b)[: count - 1]))):
            value = te.select(te.index(which(i)).equals(te.index(lit(k))), form, value)
        return value

    return from_te("f", [x], [te.compute(shape, body, name="y")])


@pytest.mark.parametrize(
    ("shape", "which", "copies"),
    [
        ((3, 5, 8), lambda i: i[0], [3]),
        ((7, 5, 8), lambda i: mod(i[0], lit(2)), [2]),
        ((4, 6, 8), lambda i: mod(i[1], lit(3)), [3]),
        ((64, 2, 8), lambda i: i[0], []),
        ((3, 5, 8), lambda i: i[2], []),
    ],
    ids=["an axis", "by two", "by three", "too many", "the vector itself"],
)
def test_written_out(shape, which, copies):
    f = chosen(shape, which, 3)
    s = Schedule(f)
    block = s.block_names()[0]
    split(s, s.loops_of(block)[-1], 4)
    moved = write_out_choices(s, block)
    assert [s.loop(x).extent.value for x in moved] == copies
    assert all(s.loop(x).kind is LoopKind.UNROLL for x in moved)
    if moved:
        assert s.loops_of(block)[-1 - len(moved) : -1] == moved
    hold_law(f, s)
