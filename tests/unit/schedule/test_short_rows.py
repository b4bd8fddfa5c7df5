"""Work that takes long on rows shorter than a vector: they lie side by side in whole ones."""

from __future__ import annotations

from dataclasses import replace

import pytest

from inlay.arith.dtype import F32, F64, DType
from inlay.arith.expr import Int, to_int
from inlay.loop import te
from inlay.loop.from_te import from_te
from inlay.loop.func import LoopFunction
from inlay.loop.printer import print_function
from inlay.loop.scalar import IntrinsicOp
from inlay.machine.target import Target
from inlay.schedule.choose import schedule
from tests.unit.schedule.programs import dim, hold_law

TARGETS = [replace(Target(), vector_bytes=size) for size in (16, 32, 64)]


def scaled(
    rows: tuple[Int | int, ...], columns: int, by: str, *, costly: bool = True, dtype: DType = F32
) -> LoopFunction:
    """Return a function of each element, times a number for its column or its row."""
    x = te.placeholder((*rows, columns), dtype, "x")
    factor = te.placeholder((columns,) if by == "column" else rows, dtype, "factor")

    def body(*i: Int) -> te.ScalarValue:
        product = x[i] * factor[i[-1:] if by == "column" else i[:-1]]
        return te.intrinsic(IntrinsicOp.TANH, product) if costly else product

    return from_te("f", [x, factor], [te.compute((*rows, columns), body, name="y")])


@pytest.mark.sample(8)
@pytest.mark.parametrize("by", ["column", "row"])
@pytest.mark.parametrize("rows", [(50,), (3, 16), (1,), (dim("n"),), (2, dim("n"))], ids=str)
@pytest.mark.parametrize("columns", [2, 3, 4, 5, 7, 12, 15])
@pytest.mark.parametrize("dtype", [F32, F64])
def test_rows_lie_side_by_side(dtype: DType, columns: int, rows: tuple[Int | int, ...], by: str) -> None:
    f = scaled(rows, columns, by, dtype=dtype)
    is_open = any(to_int(n).value is None for n in rows)
    for target in TARGETS:
        hold_law(f, schedule(f, target), *([(n,) for n in (1, 16, 35)] if is_open else [()]))


def shares(rows: Int | int, columns: int) -> LoopFunction:
    """Return exponentials of the distance to the greatest of each column."""
    x = te.placeholder((rows, columns), F32, "x")
    k = te.reduce_axis("k", rows)
    top = te.compute((columns,), lambda j: te.max_over(k, x[k, j]), name="top")
    y = te.compute((rows, columns), lambda i, j: te.intrinsic(IntrinsicOp.EXP, x[i, j] - top[j]), name="y")
    return from_te("f", [x], [y])


@pytest.mark.sample(3)
@pytest.mark.parametrize("rows", [50, dim("n")], ids=str)
@pytest.mark.parametrize("columns", [3, 5, 8])
def test_so_do_they_behind_a_reduction_of_each_column(columns: int, rows: Int | int) -> None:
    f = shares(rows, columns)
    for target in TARGETS:
        text = print_function(hold_law(f, schedule(f, target), *([(16,), (35,)] if rows != 50 else [()])))
    assert "0..16 vector" in text.split(" y[")[0].rsplit("for ", 1)[1]


@pytest.mark.parametrize(("columns", "vectors"), [(2, 1), (3, 3), (6, 3), (7, 7), (12, 3)])
def test_vectors_are_whole_and_written_out_till_rows_begin_with_one_again(columns: int, vectors: int) -> None:
    f = scaled((160,), columns, "column")
    text = print_function(hold_law(f, schedule(f, TARGETS[-1])))
    assert "0..16 vector" in text
    assert (f"0..{vectors} unroll" in text) == (vectors > 1)
    assert " if " not in text


def test_cheap_work_is_left_to_loops_as_they_are() -> None:
    f = scaled((160,), 3, "column", costly=False)
    assert "vector" not in print_function(hold_law(f, schedule(f, TARGETS[-1])))
