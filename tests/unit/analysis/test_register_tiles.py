"""Register tiles fit the registers, cover their rows, and follow the shape of the result."""

from __future__ import annotations

import pytest

from inlay.analysis.register_tiles import heights, most_rows, panel_widths, ranked_panels, step_cost
from inlay.machine.target import baseline

AVX512 = (16, 32)
AVX2 = (8, 16)


@pytest.mark.parametrize("registers", [8, 16, 32])
@pytest.mark.parametrize("vectors", range(1, 9))
def test_tiles_leave_registers_for_a_row_of_the_panel_and_a_broadcast(registers: int, vectors: int) -> None:
    rows = most_rows(vectors, registers)
    assert rows == 1 or rows * vectors + vectors + 1 <= registers


@pytest.mark.parametrize("vectors", [1, 2, 4])
@pytest.mark.parametrize("rows", [0, 1, 2, 7, 14, 15, 49, 56, 196])
def test_heights_cover_the_rows(rows: int, vectors: int) -> None:
    sizes = heights(rows, vectors, 32)
    assert list(sizes) == sorted(set(sizes), reverse=True)
    assert max(sizes) <= most_rows(vectors, 32)
    left = rows % sizes[0]
    assert left == (sizes[1] if len(sizes) > 1 else 0)


def test_rows_are_covered_at_the_least_cost() -> None:
    assert heights(14, 3, 32) == (7,)
    assert heights(15, 4, 32) == (5,)
    assert heights(13, 4, 32) == (5, 3)
    assert heights(0, 2, 32) == (1,)


def test_dot_products_of_one_vector_have_more_rows_where_registers_are_plenty() -> None:
    assert most_rows(1, 32, dots=True) == 16
    assert heights(32, 1, 32, dots=True) == (16,)
    assert heights(32, 1, 16, dots=True) == heights(32, 1, 16) == (8,)
    assert heights(32, 2, 32, dots=True) == heights(32, 2, 32)


def test_a_step_of_few_accumulators_takes_as_long_as_one_of_many() -> None:
    assert step_cost(1, 1) - step_cost(8, 1) == -7
    assert step_cost(6, 4) == 38


def test_panels_follow_the_columns_first() -> None:
    widths = {n: ranked_panels(n, None, *AVX512)[0] for n in (16, 24, 32, 64, 96, 112, 160, 256)}
    assert widths == {16: 1, 24: 2, 32: 2, 64: 4, 96: 3, 112: 4, 160: 5, 256: 4}
    assert ranked_panels(512, None, *AVX2)[0] == 2


def test_one_row_takes_wide_panels() -> None:
    assert ranked_panels(1024, 1, *AVX512)[0] == 8


def test_panels_are_as_narrow_as_asked() -> None:
    assert ranked_panels(512, None, *AVX512, most=2)[0] == 2
    assert ranked_panels(512, None, *AVX512, most=1)[0] == 1


def test_panels_of_one_row_load_little_behind_the_last_column() -> None:
    def loaded(columns: int) -> int:
        (width, *_) = ranked_panels(columns, 1, 16, 32)
        return -(-columns // (16 * width)) * 16 * width

    assert [loaded(n) for n in (576, 960, 240, 120, 1024)] == [576, 960, 240, 128, 1024]


def test_few_columns_take_half_of_a_wide_register() -> None:
    wide, narrow = baseline("x86_64", "v4"), baseline("x86_64", "v3")
    assert panel_widths(wide, 3, 100, 64) == [8, 16]
    assert panel_widths(wide, 8, 100, None)[0] == 8
    assert panel_widths(wide, 9, 100, 64) == [16]
    assert panel_widths(wide, 3, 100, 1) == [16], "one row waits for its weights"
    assert panel_widths(wide, 3, 100, 64, 1) == [16], "bytes are summed in groups"
    assert panel_widths(narrow, 3, 100, 64) == [8]
