"""Rows that take elements from the same computed places compute those once for several rows."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace

import pytest

from inlay.arith.dtype import F32, I32, I64, U8, DType
from inlay.arith.expr import Int
from inlay.loop import te
from inlay.loop.from_te import from_te
from inlay.loop.func import LoopFunction
from inlay.loop.printer import print_function
from inlay.machine.target import Target
from inlay.schedule.choose import schedule
from tests.unit.schedule.programs import dim, hold_law

TARGET = Target()
NARROW = replace(TARGET, vector_bytes=16)


def taken(
    rows: tuple[Int | int, ...], columns: Int | int, *, own: bool = False, dtype: DType = F32
) -> LoopFunction:
    """Return rows of 40 numbers, of which those at some places are taken; each row may have places of its own."""
    x = te.placeholder((*rows, 40), dtype, "x")
    places = te.placeholder((*rows, columns) if own else (columns,), I32, "places")

    def body(*i: Int) -> te.ScalarValue:
        at = te.minimum(te.maximum(places[i if own else i[-1:]] + 20, 0), 39).cast(I64)
        return x[(*i[:-1], at)]

    return from_te("f", [x, places], [te.compute((*rows, columns), body, name="y")])


def text_of(f: LoopFunction, *sizes: tuple[int, ...]) -> str:
    for target in (NARROW, TARGET):
        text = print_function(hold_law(f, schedule(f, target), *(sizes or ((),))))
    return text


def rows_of(text: str) -> int:
    """Return how many rows go together: the loop directly around the first lanes, if it is written out."""
    lines = text.splitlines()
    around = next(a for a, b in itertools.pairwise(lines) if "vector {" in b)
    found = re.search(r"_i in 0..(\d+) unroll", around)
    return int(found[1]) if found else 1


@pytest.mark.sample(2)
@pytest.mark.parametrize("dtype", [F32, U8])
@pytest.mark.parametrize(
    ("rows", "together"),
    [((8,), 4), ((6,), 2), ((3, 12), 4), ((2, 16), 4), ((4,), 2), ((5,), 1), ((2,), 1)],
    ids=str,
)
def test_rows_share_places(rows: tuple[int, ...], together: int, dtype: DType) -> None:
    text = text_of(taken(rows, 70, dtype=dtype))
    assert rows_of(text) == together


def test_rows_with_places_of_their_own_share_none() -> None:
    assert [rows_of(text_of(taken((8,), 70, own=own))) for own in (False, True)] == [4, 1]


@pytest.mark.parametrize("rows", [dim("n"), 8], ids=str)
@pytest.mark.parametrize("columns", [dim("m"), 70, 3], ids=str)
def test_any_number_of_rows_and_places(rows: Int | int, columns: Int | int) -> None:
    open_dims = sum(isinstance(n, Int) for n in (rows, columns))
    text_of(taken((rows,), columns), *((n,) * open_dims for n in ((1, 16, 35) if open_dims else ())))
