"""Primitives that move computations: the law on programs with halos, masks, gathers, reductions."""

from __future__ import annotations

import pytest

from inlay.arith.dtype import F32, I64
from inlay.loop import te
from inlay.loop.from_te import from_te
from inlay.loop.parser import parse_function
from inlay.loop.printer import print_function
from inlay.loop.stmt import LoopKind
from inlay.schedule.primitives.cache_write import cache_write
from inlay.schedule.primitives.fuse import fuse
from inlay.schedule.primitives.inline import inline
from inlay.schedule.primitives.merge import merge
from inlay.schedule.primitives.parallel import parallel
from inlay.schedule.primitives.partition import partition
from inlay.schedule.primitives.set_scope import set_scope
from inlay.schedule.primitives.split import split
from inlay.schedule.primitives.split_cases import split_cases
from inlay.schedule.primitives.vectorize import vectorize
from inlay.schedule.state import Illegal, Schedule
from tests.unit.schedule.programs import dim, elementwise, gemm, hold_law, softmax


def test_inline_shares_what_is_used_twice() -> None:
    f = parse_function("""
    schedulable func f(x: f32[n]) -> (y: f32[n]) over (n) {
      alloc t: f32[n] @workspace
      for i in 0..n { block a(v: spatial n = i) { let s = x[v] + 1.0:f32 t[v] = s * s } }
      for j in 0..n { block b(w: spatial n = j) { y[w] = t[w] * t[w] } } }""")
    s = Schedule(f)
    inline(s, "a")
    assert print_function(s.function).count("1.0:f32") == 1
    hold_law(f, s, (5,))


def test_inline_a_gather_into_a_reduction() -> None:
    x, k = te.placeholder((6,), F32, "x"), te.placeholder((2, 4), I64, "k")
    r = te.reduce_axis("r", 4)
    g = te.compute((2, 4), lambda i, j: x[te.minimum(te.maximum(k[i, j], 0), 5)], name="g", tag="g")
    y = te.compute((2,), lambda i: te.sum_over(r, g[i, r]), name="y", tag="y")
    z = te.compute((2, 4), lambda i, j: g[i, j], name="z", tag="z")
    f = from_te("f", [x, k], [z, y])
    s = Schedule(f)
    hold_law(f, s)
    # `z` is an output, so it is read and not replaced.
    with pytest.raises(Illegal, match="parameter"):
        inline(s, s.block_names()[0])


def test_cache_write_then_merge() -> None:
    f = gemm(3, 4, dim("k"))
    s = Schedule(f)
    copy = cache_write(s, "mm", "register")
    for a, b in zip(s.loops_of("mm")[:2], s.loops_of(copy), strict=True):
        merge(s, a, b)
    set_scope(s, "C_mm", "register", at=s.loops_of("mm")[1])
    hold_law(f, s, (4,), (0,))


def test_fused_loops_split_and_run_in_parallel() -> None:
    f = elementwise(dim("n"), 6)
    s = Schedule(f)
    outer, inner = s.loops_of("b")
    both = fuse(s, outer, inner)
    tiles, lane = split(s, both, 8)
    vectorize(s, lane)
    parallel(s, tiles)
    hold_law(f, s, (4,), (3,), (0,))


@pytest.mark.parametrize("keeps", [False, True])
def test_a_parallel_loop_takes_the_one_inside_it(keeps: bool) -> None:
    f = elementwise(dim("n"), 6)
    s = Schedule(f)
    outer, inner = s.loops_of("b")
    parallel(s, outer)
    both = fuse(s, outer, inner, keeps=keeps)
    assert [s.loop(x).kind for x in s.loops_of("b")] == [LoopKind.PARALLEL, *[LoopKind.SERIAL] * (2 * keeps)]
    assert f"for {both} in 0..6*n parallel" in print_function(s.function)
    hold_law(f, s, (4,), (0,))


def test_a_parallel_loop_does_not_take_one_whose_iterations_need_each_other() -> None:
    s = Schedule(gemm(3, 4, dim("k")))
    outer, row, term = s.loops_of("mm")
    parallel(s, outer)
    fuse(s, outer, row)
    with pytest.raises(Illegal, match="reduce over"):
        fuse(s, s.loops_of("mm")[0], term)


def test_ragged_tiles_are_apart_in_loops_that_were_made_one() -> None:
    """With the inner loop gone each tile would test each lane."""
    f = elementwise(dim("n"), 20)
    for keeps, bodies in ((True, 2), (False, 1)):
        s = Schedule(f)
        outer, inner = s.loops_of("b")
        tile, lane = split(s, inner, 8)
        vectorize(s, lane)
        fuse(s, outer, tile, keeps=keeps)
        text = print_function(hold_law(f, s, (3,)))
        assert text.count("vector") == bodies
        assert ("if" in text.split("vector")[1]) == (bodies == 1), "full tiles have no test"


WINDOWS = """
    schedulable func f(x: f32[n + 40]) -> (y: f32[6*n]) over (n) {{
      for o in 0..n {{ for i in 0..6 {{ block z(v: spatial n = o, u: spatial 6 = i) {{ y[6*v + u] = 0.0:f32 }} }}
        for k in 0..9 {{ for i_1 in 0..6 {{
          block b(v: spatial n = o, u: spatial 6 = i_1, r: reduce 9 = k) where {} {{
            y[6*v + u] = y[6*v + u] + x[v + r] }} }} }} }} }}"""


@pytest.mark.parametrize(
    ("condition", "parts"),
    [
        ("[8] <= [6*o + i_1 + 2*k]", 2),
        ("[6*o + i_1 + 2*k] < [20]", 2),
        ("([8] <= [6*o + i_1 + 2*k]) & ([6*o + i_1 + 3*k] < [29])", 3),
        ("([3] <= [k]) & ([6*o - i_1 + k] <= [n + 3])", 2),
        ("[30] <= [k - i_1]", 2),
        ("([8] <= [6*o + i_1 + 2*k]) & ([i_1*k] < [21])", 2),
    ],
)
def test_partition_tests_only_where_iterations_differ(condition: str, parts: int) -> None:
    f = parse_function(WINDOWS.format(condition))
    s = Schedule(f)
    partition(s, "b", "k")
    assert len(s.block_names()) == 1 + parts
    kept = print_function(s.function).count("where")
    assert kept == parts - 1 + ("i_1*k" in condition)
    hold_law(f, s, (1,), (4,), (0,))


@pytest.mark.parametrize("condition", ["[i_1*k] < [9]", "[3] <= [6*o + i_1]"])
def test_partition_needs_a_condition_on_its_loop(condition: str) -> None:
    s = Schedule(parse_function(WINDOWS.format(condition)))
    with pytest.raises(Illegal, match="no condition"):
        partition(s, "b", "k")
    with pytest.raises(Illegal, match="other blocks"):
        partition(s, "b", "o")


@pytest.mark.parametrize("change", ["merge", "parallel", "vectorize", "set_scope"])
def test_what_would_change_the_meaning_is_refused(change: str) -> None:
    s = Schedule(softmax(4, 8))
    before = print_function(s.function)
    top, e = s.loops_of("c_top"), s.loops_of("c_e")
    with pytest.raises(Illegal) as caught:
        match change:
            case "merge":  # the exponential of one column needs the maximum of all
                merge(s, top[0], e[0])
                merge(s, top[1], s.loops_of("c_e")[1])
            case "parallel":
                parallel(s, top[1])
            case "vectorize":
                vectorize(s, top[1])
            case _:
                set_scope(s, "top", "stack", at=top[0])
    assert caught.value.diagnostics[0].id.startswith("schedule.")
    if change != "merge":
        assert print_function(s.function) == before
        assert s.trace == []


@pytest.mark.parametrize("loop", ["k", "i"])
def test_sums_are_not_split_by_cases(loop: str) -> None:
    f = parse_function("""
    schedulable func f(x: f32[4, 9]) -> (y: f32[4]) {
      for i in 0..4 { for k in 0..9 { block b(v: spatial 4 = i, r: reduce 9 = k) {
        init { y[v] = 0.0:f32 } y[v] = y[v] + select([r] < [4], x[v, r], 0.0:f32) } } } }""")
    with pytest.raises(Illegal, match="reduction|more than one"):
        split_cases(Schedule(f), "b", loop)
