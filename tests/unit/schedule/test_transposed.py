"""Copies across the grain are transpositions of tiles, whatever is left over, and keep their meaning."""

from __future__ import annotations

from dataclasses import replace

import pytest

from inlay.arith.dtype import F32, F64, U8, DType
from inlay.arith.expr import Int, to_int
from inlay.loop import te
from inlay.loop.from_te import from_te
from inlay.loop.func import LoopFunction
from inlay.loop.printer import print_function
from inlay.machine.target import Target
from inlay.schedule.choose import schedule
from tests.unit.schedule.programs import dim, hold_law

TARGET = Target()
NARROW = replace(TARGET, vector_bytes=16)


def permuted(shape: tuple[Int | int, ...], order: tuple[int, ...], dtype: DType = F32) -> LoopFunction:
    x = te.placeholder(shape, dtype, "x")

    def body(*i: Int) -> te.ScalarValue:
        at = dict(zip(order, i, strict=True))
        return x[tuple(at[d] for d in range(len(shape)))]

    return from_te("f", [x], [te.compute([shape[d] for d in order], body, name="y")])


@pytest.mark.sample(8)
@pytest.mark.parametrize("dtype", [F32, F64, U8])
@pytest.mark.parametrize(
    ("shape", "order"),
    [
        ((64, 8), (1, 0)),
        ((64, 12), (1, 0)),
        ((64, 50), (1, 0)),
        ((33, 9), (1, 0)),
        ((8, 64), (1, 0)),
        ((20, 64), (1, 0)),
        ((21, 37), (1, 0)),
        ((2, 64, 5), (0, 2, 1)),
        ((16, 3, 32), (2, 1, 0)),
        ((4, 9, 32), (2, 1, 0)),
        ((5, 3, 7), (2, 1, 0)),
        ((203, 4), (1, 0)),
        ((301, 3), (1, 0)),
        ((301, 2, 5), (2, 1, 0)),
        ((15, 64), (1, 0)),
        ((4, 2, 16, 8), (3, 2, 1, 0)),
        ((dim("n"), 24), (1, 0)),
    ],
    ids=str,
)
def test_permutations(shape: tuple[Int | int, ...], order: tuple[int, ...], dtype: DType) -> None:
    f = permuted(shape, order, dtype)
    sizes = [(n,) for n in (1, 16, 35)] if any(to_int(d).value is None for d in shape) else [()]
    for target in (TARGET, NARROW):
        hold_law(f, schedule(f, target), *sizes)


@pytest.mark.parametrize(
    ("shape", "order"),
    [
        ((64, 8), (1, 0)),
        ((8, 64), (1, 0)),
        ((64, 50), (1, 0)),
        ((16, 3, 32), (2, 1, 0)),
        ((64, 4), (1, 0)),
        ((204, 4), (1, 0)),
        ((12, 64), (1, 0)),
    ],
    ids=str,
)
def test_tiles_have_no_conditions(shape: tuple[int, ...], order: tuple[int, ...]) -> None:
    """Under one a tile goes element by element."""
    f = permuted(shape, order)
    text = print_function(hold_law(f, schedule(f, TARGET)))
    assert 'loads="transposed"' in text
    assert " if " not in text


def test_columns_that_are_left_over_are_tiles_of_fewer() -> None:
    f = permuted((64, 44), (1, 0), U8)
    text = print_function(hold_law(f, schedule(f, TARGET)))
    tiles = [line.split("..")[1].split()[0] for line in text.splitlines() if 'loads="transposed"' in line]
    assert tiles == ["16", "8", "4"]


@pytest.mark.parametrize(("rows", "extents"), [(256, [16, 2, 2, 4, 8]), (72, [9, 2, 4, 8])], ids=str)
def test_lines_of_the_result_are_filled_before_the_next_tile(rows: int, extents: list[int]) -> None:
    """Two vectors of 32 bytes are a line: rows, parts of a line of columns, vectors, columns, lanes."""
    f = permuted((rows, 8), (1, 0))
    text = print_function(hold_law(f, schedule(f, TARGET)))
    found = [int(line.split("0..")[1].split()[0]) for line in text.splitlines() if "for " in line]
    assert found == extents


@pytest.mark.parametrize("columns", [7, 8], ids=str)
def test_threads_share_the_rows_of_one_line(columns: int) -> None:
    """Those of columns that are left over too, beside the others."""
    f = permuted((1600, columns), (1, 0))
    text = print_function(hold_law(f, schedule(f, TARGET)))
    assert text.count('loads="transposed"') == {7: 2, 8: 1}[columns]
    outermost = [
        line.split("0..")[1].split(" (")[0] for line in text.splitlines() if line.startswith("  for ")
    ]
    assert outermost == ["100 parallel"]


@pytest.mark.parametrize(
    ("columns", "extents"),
    [(20, [8, 2, 8, 4, 2, 2, 4, 8, 2, 2, 2, 4]), (9, [8, 8, 4, 2, 2, 4, 4, 16]), (8, [64, 4, 2, 2, 4])],
    ids=str,
)
def test_few_columns_that_are_pages_apart_are_written_at_once(columns: int, extents: list[int]) -> None:
    """In blocks of rows: lines, rows, parts of a line, vectors, columns, lanes; then what is left over."""
    f = permuted((512, columns), (1, 0), F64)
    text = print_function(hold_law(f, schedule(f, TARGET)))
    found = [int(line.split("0..")[1].split()[0]) for line in text.splitlines() if "for " in line]
    assert [n for n in found if n > 1] == extents


def test_whole_lines_are_read_where_rows_are_pages_apart_too() -> None:
    f = permuted((512, 512), (1, 0), F64)
    text = print_function(schedule(f, TARGET).function)
    found = [int(line.split("0..")[1].split()[0]) for line in text.splitlines() if "for " in line]
    assert found == [64, 64, 4, 2, 2, 4]


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("shape", "dtype"),
    [((3, 85, 160), F32), ((3, 160, 85), F32), ((3, 45, 64), U8), ((3, 64, 44), U8), ((2, 3, 85, 40), F32)],
    ids=str,
)
def test_tiles_inside_of_other_loops(shape: tuple[int, ...], dtype: DType) -> None:
    """What is left over must not keep few outer iterations from being shared with those of tiles."""
    *outer, a, b = range(len(shape))
    f = permuted(shape, (*outer, b, a), dtype)
    text = print_function(hold_law(f, schedule(f, TARGET)))
    assert 'loads="transposed"' in text and "parallel" in text


def test_tiles_inside_of_loops_that_are_not_neighbors() -> None:
    """Few iterations of two of them are to be shared, and one column is left over, which is no tile."""
    x = te.placeholder((4, 128, 2, 72), F64, "x")
    f = from_te("f", [x], [te.compute((4, 2, 65, 128), lambda a, b, c, d: x[a, d, b, c], name="y")])
    text = print_function(hold_law(f, schedule(f, TARGET)))
    assert 'loads="transposed"' in text and "parallel" in text


def test_whole_vectors_across_the_grain_have_no_condition() -> None:
    """Whatever the last one of a line has, and though lines and vectors are one loop."""
    f = permuted((301, 3), (1, 0))
    bodies = print_function(hold_law(f, schedule(f, TARGET))).split("vector {")[1:]
    assert [" if " in body for body in bodies] == [False, True]


@pytest.mark.sample(12)
@pytest.mark.parametrize("dtype", [F32, F64, U8])
@pytest.mark.parametrize("columns", [7, 13, 32, 48, dim("n")], ids=str)
@pytest.mark.parametrize("times", [2, 3, 4, 16])
def test_elements_that_are_repeated(times: int, columns: Int | int, dtype: DType) -> None:
    """As enlarging an image does, to the nearest pixel."""
    x = te.placeholder((3, columns), dtype, "x")
    shape = (3, to_int(columns) * times)
    f = from_te("f", [x], [te.compute(shape, lambda i, j: x[i, j // times], name="y")])
    sizes = [()] if to_int(columns).value is not None else [(1,), (16,), (35,)]
    for target in (TARGET, NARROW):
        hold_law(f, schedule(f, target), *sizes)


def test_repeated_elements_of_whole_vectors_are_shuffled() -> None:
    x = te.placeholder((3, 64), F32, "x")
    f = from_te("f", [x], [te.compute((3, 128), lambda i, j: x[i, j // 2], name="y")])
    text = print_function(hold_law(f, schedule(f, TARGET)))
    assert "0..8 vector" in text
    x = te.placeholder((3, 10), F32, "x")  # thirds of vectors differ from vector to vector
    f = from_te("f", [x], [te.compute((3, 240), lambda i, j: x[i, j // 24], name="y")])
    assert "vector" not in print_function(hold_law(f, schedule(f, TARGET)))
