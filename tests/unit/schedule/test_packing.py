"""Factors that are computed are packed where that pays, and keep their meaning."""

from __future__ import annotations

from dataclasses import replace

import pytest

from inlay.arith.dtype import F32
from inlay.arith.expr import Int, to_int
from inlay.loop import te
from inlay.loop.from_te import from_te
from inlay.loop.func import LoopFunction
from inlay.loop.printer import print_function
from inlay.loop.stmt import For, If, LoopKind
from inlay.loop.walk import stmts_below
from inlay.lower.lower import lower
from inlay.machine.target import baseline
from inlay.ops.matmul import product
from inlay.schedule.choose import decide
from inlay.schedule.primitives.cache_read import cache_read
from inlay.schedule.rules.contraction import contraction
from inlay.schedule.state import Illegal, Schedule
from tests.unit.schedule.programs import dim, elementwise, hold_law

SMALL = replace(baseline("x86_64", "v2"), l1_bytes=64)
"""Four lanes, and a first cache that nothing fits."""

B, K = dim("b"), dim("k")
Dims = tuple[Int | int, ...]


def two_factors(a: Dims, b: Dims, *, bias: bool = False) -> LoopFunction:
    x, w = (te.placeholder([to_int(d) for d in shape], F32, n) for shape, n in ((a, "x"), (b, "w")))
    shape = (*x.shape[:-1], w.shape[-1])
    y = product(x, w, shape, lambda one, other: one * other, "matmul")
    if not bias:
        return from_te("matmul", [x, w], [y])
    v = te.placeholder(shape[-1:], F32, "v")
    z = te.compute(shape, lambda *i: te.maximum(y[i] + v[i[-1]], 0), name="out")
    return from_te("matmul", [x, w, v], [z])


def transposed(a: Dims, b: Dims, *, bias: bool = False) -> LoopFunction:
    """Return the products of rows of a matrix with rows of another one, which axes before may have own of."""
    x, w = (te.placeholder([to_int(d) for d in shape], F32, n) for shape, n in ((a, "x"), (b, "w")))
    k = te.reduce_axis("k", x.shape[-1])
    shape = (*x.shape[:-1], w.shape[-2])
    first = len(x.shape) - len(w.shape)
    y = te.compute(
        shape, lambda *i: te.sum_over(k, x[(*i[:-1], k)] * w[(*i[first:-2], i[-1], k)]), name="matmul"
    )
    if not bias:
        return from_te("matmul", [x, w], [y])
    v = te.placeholder(shape[-1:], F32, "v")
    z = te.compute(shape, lambda *i: te.maximum(y[i] + v[i[-1]], 0), name="out")
    return from_te("matmul", [x, w, v], [z])


@pytest.mark.parametrize(("columns", "is_packed"), [(3, True), (4, False), (2, False)])
def test_one_panel_is_packed_before_the_rows_that_threads_share(columns: int, is_packed: bool) -> None:
    f = two_factors((320, 20), (20, columns))
    s = Schedule(f)
    contraction(s, SMALL)
    hold_law(f, s)
    assert ("matmul_1_pack" in s.block_names()) == is_packed
    shared = [s.loop(s.loops_of(name)[0]) for name in s.block_names() if name != "matmul_1_pack"]
    assert all(x.kind is LoopKind.PARALLEL and (x.extent.value or 0) > 1 for x in shared), "blocks of rows"


@pytest.mark.sample(1)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(
    ("a", "b", "sizes"),
    [
        ((25, 8), (64, 8), [()]),
        ((30, 13), (8, 13), [()]),
        ((26, 3), (21, 3), [()]),
        ((B, 9), (33, 9), [(0,), (1,), (30,)]),
        ((26, K), (18, K), [(0,), (7,)]),
        ((2, 30, 6), (2, 13, 6), [()]),
    ],
    ids=str,
)
def test_a_transposed_factor_is_packed_in_tiles(
    a: Dims, b: Dims, sizes: list[tuple[int, ...]], bias: bool
) -> None:
    f = transposed(a, b, bias=bias)
    s = Schedule(f)
    contraction(s, SMALL)
    hold_law(f, s, *sizes)
    notes = [note for x in stmts_below(s.body) if isinstance(x, For) for note in x.note]
    assert (("loads", "transposed") in notes) == (a[-1] not in (3,)), "16 bytes of a column at a time"
    assert decide(f, SMALL).rule == "contraction"


@pytest.mark.sample(3)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(
    ("a", "b", "sizes"),
    [
        ((24, 5), (5, 64), [()]),
        ((31, 5), (5, 70), [()]),
        ((25, K), (K, 33), [(0,), (7,)]),
        ((2, 24, 3), (2, 3, 40), [()]),
        ((B, 26, 3), (B, 3, 40), [(1,), (3,)]),
        ((2, 13, 4), (4, 40), [()]),
    ],
    ids=str,
)
def test_packed_where_it_is_used(a: Dims, b: Dims, sizes: list[tuple[int, ...]], bias: bool) -> None:
    f = two_factors(a, b, bias=bias)
    s = Schedule(f)
    contraction(s, SMALL)
    assert "cache_read" in [step.primitive for step in s.trace]
    lowered = hold_law(f, s, *sizes)
    assert "@workspace" in print_function(s.function)
    # Threads share samples and groups of panels together where there are few samples, or nobody knows how many.
    assert ("%" in print_function(lowered)) == (len(b) == 3), "panels are found without divisions"


@pytest.mark.parametrize(
    ("a", "b"),
    [((4, 5), (5, 64)), ((dim("m"), 5), (5, 64)), ((24, 5), (5, 8)), ((24, 5), (5, dim("n")))],
    ids=["few rows", "unknown rows", "one panel", "unknown columns"],
)
def test_left_where_it_is(a: Dims, b: Dims) -> None:
    s = Schedule(two_factors(a, b))
    contraction(s, SMALL)
    assert "cache_read" not in [step.primitive for step in s.trace]


@pytest.mark.sample(1)
@pytest.mark.parametrize("rows", [96, 97, 100])
def test_threads_share_rows_where_there_are_few_panels(rows: int) -> None:
    """Those of blocks, or tiles where no number of rows divides into equal ones."""
    f = two_factors((rows, 40), (40, 8), bias=True)
    s = Schedule(f)
    contraction(s, SMALL)
    lowered = hold_law(f, s)
    assert "parallel" in print_function(lowered)


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("rows", "columns", "shared"),
    [(3136, 8, 16), (36, 44, 4 * 4), (36, 48, 6 * 6), (36, 92, 8 * 9)],
    ids=["blocks", "blocks with panels", "panels with tiles", "a panel that is not full"],
)
def test_threads_share_many_blocks_or_panels_with_tiles(rows: int, columns: int, shared: int) -> None:
    """Six panels are more than two for three threads, and less than one for each of eight."""
    target = replace(SMALL, l1_bytes=1 << 20)
    s = Schedule(two_factors((rows, 60), (60, columns)))
    contraction(s, target)
    assert f"in 0..{shared} parallel" in print_function(s.function)
    masked = [x for x in stmts_below(lower(s.function, target).body) if isinstance(x, If)]
    assert len(masked) <= 1, "the results of a last panel, which is apart"


@pytest.mark.sample(1)
@pytest.mark.parametrize(("rows", "columns", "shared"), [(96, 8, "8*n"), (97, 8, "n"), (9, 40, "5")])
def test_threads_share_samples_with_their_rows_or_panels(rows: int, columns: int, shared: str) -> None:
    """Where nobody knows how many samples there are: it may be one. 97 rows have no equal blocks."""
    k = te.reduce_axis("k", 40)
    x, w = te.placeholder((dim("n"), rows, 40), F32, "x"), te.placeholder((40, columns), F32, "w")
    shape = (x.shape[0], rows, columns)
    y = te.compute(shape, lambda n, i, j: te.sum_over(k, x[n, i, k] * w[k, j]), name="y", tag="matmul")
    f = from_te("f", [x, w], [y])
    s = Schedule(f)
    contraction(s, SMALL)
    text = print_function(hold_law(f, s, (2,)))
    assert f"in 0..{shared} parallel" in text


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("rows", "columns", "near", "shared"),
    [(256, 64, 2816, 4 * 8), (1061, 32, 1500, 17)],
    ids=["four blocks of 64 rows, eight panels", "blocks of 66 rows, and one of five"],
)
def test_rows_that_no_cache_holds_pass_all_panels_in_blocks(
    rows: int, columns: int, near: int, shared: int
) -> None:
    small = replace(SMALL, l1_bytes=1 << 20, l2_bytes=near, l3_bytes=11008)
    f = two_factors((rows, 3), (3, columns), bias=True)
    s = Schedule(f)
    contraction(s, small)
    lowered = hold_law(f, s)
    assert f"in 0..{shared} parallel" in print_function(lowered)
    s = Schedule(f)
    contraction(s, replace(small, l3_bytes=1 << 20))
    assert f"in 0..{shared} parallel" not in print_function(s.function)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("a", "b", "panels", "near"),
    [
        ((240, 3), (3, 128), "2", 1536),
        ((241, 3), (3, 128), "2", 1536),
        ((245, 3), (3, 136), "min(3, -3*w_matmul_1_0_o + 17)", 1536),
        ((2, 241, 3), (2, 3, 128), "2", 1536),
        ((240, K), (K, 128), "", 1536),
        ((241, 3), (3, 128), "", 1 << 20),
    ],
    ids=str,
)
def test_panels_are_packed_in_groups_for_blocks_of_rows_that_the_second_cache_does_not_hold(
    a: Dims, b: Dims, panels: str, near: int
) -> None:
    """Blocks have 60 rows, the last one maybe fewer; sums of an unknown number of terms pass panel by panel."""
    f = two_factors(a, b, bias=True)
    s = Schedule(f)
    contraction(s, replace(SMALL, l2_bytes=near, l3_bytes=1 << 20))
    hold_law(f, s, *([(5,)] if K in a else [()]))
    before_product = print_function(s.function).split("@register")[0]
    assert ("in 0..2 {" in before_product or "min(3" in before_product) == bool(panels)
    assert f"in 0..{panels}" in before_product


@pytest.mark.slow
def test_transposed_factors_are_packed_in_groups_too() -> None:
    """The last block has one row, and the last group two panels."""
    f = transposed((241, 3), (136, 3), bias=True)
    s = Schedule(f)
    contraction(s, replace(SMALL, l2_bytes=1536, l3_bytes=1 << 20))
    hold_law(f, s)
    before_product = print_function(s.function).split("@register")[0]
    assert "in 0..min(3, -3*w_c_matmul_0_o + 17)" in before_product


@pytest.mark.parametrize(("vectors", "last", "is_grouped"), [(2, 32, True), (4, 32, False), (4, 2, True)])
def test_narrow_panels_are_grouped_where_rows_leave_the_second_cache(
    vectors: int, last: int, *, is_grouped: bool
) -> None:
    """Each cycle asks for four bytes of rows with two vectors of columns, and for two with four vectors."""
    wide = replace(baseline("x86_64", "v4" if vectors == 4 else "v3"), l2_bytes=1 << 20, l3_bytes=last << 20)
    s = Schedule(two_factors((1024, 512), (512, 1024)))
    contraction(s, wide)
    packs = next(s.loop(x) for x in s.loops_of("matmul_1_pack")[1:])
    assert (packs.extent != 1) == is_grouped


@pytest.mark.parametrize(("near", "blocks"), [(1 << 15, 4), (1 << 16, 0), (1 << 14, 0)])
def test_rows_that_the_second_cache_does_not_hold_pass_all_panels_in_large_blocks(near: int, blocks: int):
    """Blocks of half of it: of 256 rows; all rows stay in the second one, and 128 would be too few."""
    s = Schedule(two_factors((1024, 16), (16, 160)))
    contraction(s, replace(SMALL, l1_bytes=1 << 20, l2_bytes=near, l3_bytes=1 << 24))
    assert (f"in 0..{blocks * 20} parallel" in print_function(s.function)) == (blocks == 4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("terms", "rows", "columns", "near", "blocks"),
    [
        (1, 96, 64, 8192, 24),
        (4, 96, 64, 8192, 24),
        (8, 90, 64, 8192, 18),
        (4, 97, 64, 8192, 17),
        (24, 120, 60, 24000, 30),
        (24, 120, 64, 25000, 0),
    ],
)
def test_rows_of_sums_of_few_terms_are_written_one_tile_at_a_time(
    terms: int, rows: int, columns: int, near: int, blocks: int
) -> None:
    """Of more terms, where rows of the result are no whole lines; 97 rows are sixteen tiles and one row."""
    target = replace(SMALL, l1_bytes=1 << 20, l2_bytes=near)
    f = two_factors((rows, terms), (terms, columns), bias=True)
    s = Schedule(f)
    contraction(s, target)
    lowered = print_function(hold_law(f, s))
    assert (f"in 0..{blocks} parallel" in lowered) == (blocks > 0)
    s = Schedule(f)
    contraction(s, replace(target, l2_bytes=1 << 20))
    assert f"in 0..{blocks} parallel" not in print_function(s.function), (
        "the result stays in the second cache"
    )


def test_what_is_read_only_behind_a_condition_is_not_copied() -> None:
    """Behind the last column the first copy reads nothing, and neither may the second one."""
    s = Schedule(elementwise(3, 5))
    first = cache_read(s, s.block_names()[0], "x", 2)
    with pytest.raises(Illegal, match="only where a condition holds"):
        cache_read(s, first, "x", 4)
