"""The primitives together, as a contraction needs them."""

from __future__ import annotations

from inlay.loop.func import LoopFunction
from inlay.loop.printer import print_function
from inlay.schedule.primitives.decompose_reduction import decompose_reduction
from inlay.schedule.primitives.parallel import parallel
from inlay.schedule.primitives.reorder import reorder
from inlay.schedule.primitives.split import split
from inlay.schedule.primitives.vectorize import vectorize
from inlay.schedule.state import Schedule
from tests.unit.schedule.programs import dim, gemm, hold_law


def test_parallel_rows() -> None:
    f = gemm(dim("m"), 16, 4)
    s = Schedule(f)
    i, j, k = s.loops_of("mm")
    reorder(s, [i, k, j])
    vectorize(s, j)
    parallel(s, i)
    hold_law(f, s, (5,), (1,))


def test_masked_columns() -> None:
    f: LoopFunction = gemm(3, dim("n"), 2)
    s = Schedule(f)
    i, j, k = s.loops_of("mm")
    jo, ji = split(s, j, 8)
    reorder(s, [i, jo, k, ji])
    decompose_reduction(s, "mm", k)
    vectorize(s, ji)
    parallel(s, i)
    text = print_function(hold_law(f, s, (16,), (19,), (7,)))
    assert text.count("if ") == 2
