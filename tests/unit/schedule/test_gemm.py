"""The primitives together, as a contraction needs them."""

from __future__ import annotations

import pytest

from inlay.loop.func import LoopFunction
from inlay.loop.printer import print_function
from inlay.schedule.primitives.cache_write import cache_write
from inlay.schedule.primitives.decompose_reduction import decompose_reduction
from inlay.schedule.primitives.merge import merge
from inlay.schedule.primitives.parallel import parallel
from inlay.schedule.primitives.reorder import reorder
from inlay.schedule.primitives.set_scope import set_scope
from inlay.schedule.primitives.split import split
from inlay.schedule.primitives.split_cascade import split_cascade
from inlay.schedule.primitives.unroll import unroll
from inlay.schedule.primitives.vectorize import vectorize
from inlay.schedule.state import Schedule
from tests.unit.schedule.programs import dim, gemm, hold_law


def register_tiles(s: Schedule, block: str, epilogue: str, temporary: str) -> None:
    """Tiles of rows by 8 columns, accumulators in registers, the epilogue in each tile."""
    rows, columns = s.loops_of(block)[:2]
    tiles = split_cascade(s, rows, (4, 1))
    out_tiles = split_cascade(s, s.loops_of(epilogue)[0], (4, 1))
    for tile, out in zip(tiles, out_tiles, strict=True):
        b, e = tile.names[block], out.names[epilogue]
        k = s.loops_of(b)[-1]
        columns = s.loops_of(b)[2]
        jo, ji = split(s, columns, 8)
        eo, ei = split(s, s.loops_of(e)[2], 8)
        reorder(s, [jo, k, tile.inner, ji])
        reorder(s, [eo, out.inner, ei])
        for v in (ji, ei):
            vectorize(s, v)
        for u in (tile.inner, out.inner):
            unroll(s, u)
    # One nest for each tile size: the copies of the two stand next to each other in turn.
    merge_copies(s, [(t.outer, o.outer) for t, o in zip(tiles, out_tiles, strict=True)])
    for tile in tiles:
        jo = s.loops_of(tile.names[block])[1]
        b = tile.names[block]
        merge(s, jo, s.loops_of(following(s, b))[1])
        decompose_reduction(s, b, s.loops_of(b)[2])
        set_scope(s, temporary, "register", at=jo)


def following(s: Schedule, block: str) -> str:
    names = s.block_names()
    return names[names.index(block) + 1]


def merge_copies(s: Schedule, pairs: list[tuple[str, str]]) -> None:
    from inlay.schedule.primitives.move_after import move_after

    for first, second in pairs:
        move_after(s, second, first)
        merge(s, first, second)


@pytest.mark.parametrize("bias", [False, True])
def test_register_tiles_for_any_number_of_rows(bias: bool) -> None:
    f = gemm(dim("m"), 16, dim("k"), bias=bias)
    s = Schedule(f)
    if bias:
        register_tiles(s, "mm", "out", "C")
    else:
        copy = cache_write(s, "mm", "register")
        register_tiles(s, "mm", copy, s.block("mm").body.buffer.name)
    lowered = hold_law(f, s, (9, 3), (4, 1), (1, 2), (3, 0))
    text = print_function(lowered)
    assert "register" in text
    assert "f32[4, 8] register" in text
    assert "f32[1, 8] register" in text
    assert " if " not in text


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
