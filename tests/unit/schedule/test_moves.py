"""Primitives that move computations: the law on programs with halos, masks, gathers, reductions."""

from __future__ import annotations

import pytest

from inlay.arith.dtype import F32, I64
from inlay.arith.expr import Int
from inlay.loop import te
from inlay.loop.from_te import from_te
from inlay.loop.func import LoopFunction
from inlay.loop.parser import parse_function
from inlay.loop.printer import print_function
from inlay.schedule.primitives.cache_read import cache_read
from inlay.schedule.primitives.cache_write import cache_write
from inlay.schedule.primitives.compute_at import compute_at
from inlay.schedule.primitives.decompose_reduction import decompose_reduction
from inlay.schedule.primitives.fuse import fuse
from inlay.schedule.primitives.inline import inline
from inlay.schedule.primitives.merge import merge
from inlay.schedule.primitives.parallel import parallel
from inlay.schedule.primitives.reorder import reorder
from inlay.schedule.primitives.reverse_compute_at import reverse_compute_at
from inlay.schedule.primitives.reverse_inline import reverse_inline
from inlay.schedule.primitives.set_scope import set_scope
from inlay.schedule.primitives.split import split
from inlay.schedule.primitives.tile import tile
from inlay.schedule.primitives.unroll import unroll
from inlay.schedule.primitives.vectorize import vectorize
from inlay.schedule.state import Illegal, Schedule
from tests.unit.schedule.programs import dim, elementwise, gemm, hold_law, softmax


def stencil(n: Int | int) -> LoopFunction:
    """A padded row and a sum of three neighbors; the temporary is costly, so it is not inlined."""
    x = te.placeholder((n, 12), F32, "x")
    k = te.reduce_axis("k", 3)
    p = te.compute(
        (n, 14),
        lambda i, j: te.select(
            (te.index(j) >= 1) & (te.index(j) < 13), x[i, j - 1] * x[i, j - 1] * 3.0, 0.0
        ),
        name="p",
    )
    y = te.compute((n, 12), lambda i, j: te.sum_over(k, p[i, j + k] * p[i, j]), name="y")
    return from_te("stencil", [x], [y])


@pytest.mark.parametrize("width", [4, 5])
def test_compute_at_with_a_halo(width: int) -> None:
    f = stencil(dim("n"))
    s = Schedule(f)
    producer, consumer = s.block_names()
    i, j, _ = s.loops_of(consumer)
    outer, _ = split(s, j, width)
    compute_at(s, producer, outer)
    name = set_scope(s, "p", "stack", at=outer)
    parallel(s, i)
    text = print_function(hold_law(f, s, (3,), (1,), (0,)))
    assert f"{name}: f32[1, {width + 2}] stack" in text


def test_reverse_compute_at_into_tiles() -> None:
    f = gemm(dim("m"), dim("n"), 3, bias=True)
    s = Schedule(f)
    i, j, k = s.loops_of("mm")
    io, jo, ii, ji = tile(s, i, j, 2, 4)
    reverse_compute_at(s, "out", jo)
    decompose_reduction(s, "mm", ii)
    for block in ("mm_init", "out"):
        vectorize(s, s.loops_of(block)[-1])
    reorder(s, [k, ji])
    vectorize(s, ji)
    unroll(s, ii)
    set_scope(s, "C", "register", at=jo)
    parallel(s, io)
    text = print_function(hold_law(f, s, (4, 8), (3, 5), (1, 1)))
    assert "f32[2, 4] register" in text


def test_reverse_compute_at_needs_complete_values() -> None:
    s = Schedule(gemm(4, 4, 3, bias=True))
    k = s.loops_of("mm")[2]
    with pytest.raises(Illegal, match="incomplete"):
        reverse_compute_at(s, "out", k)
    reorder(s, [k, s.loops_of("mm")[0]])
    with pytest.raises(Illegal, match="incomplete"):
        reverse_compute_at(s, "out", s.loops_of("mm")[1])
    assert [step.primitive for step in s.trace] == ["reorder"]


def test_reverse_compute_at_waits_for_other_inputs() -> None:
    x = te.placeholder((4, 8), F32, "x")
    k, r = te.reduce_axis("k", 8), te.reduce_axis("r", 8)
    a = te.compute((4,), lambda i: te.sum_over(k, x[i, k]), name="a", tag="ra")
    b = te.compute((4,), lambda i: te.max_over(r, x[i, r]), name="b", tag="rb")
    y = te.compute((4,), lambda i: a[i] / b[i], name="y", tag="ry")
    s = Schedule(from_te("f", [x], [y]))
    with pytest.raises(Illegal, match="written after"):
        reverse_compute_at(s, "ry", s.loops_of("ra")[0])


def test_inline_shares_what_is_used_twice() -> None:
    f = parse_function("""
    schedulable func f(x: f32[n]) -> (y: f32[n]) over (n) {
      alloc t: f32[n] workspace
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


def test_reverse_inline_keeps_the_nest_of_the_producer() -> None:
    f = parse_function("""
    schedulable func f(x: f32[n, 8]) -> (y: f32[8, n]) over (n) {
      alloc t: f32[n, 8] workspace
      for i in 0..n { for j in 0..8 vector {
        block a(u: spatial n = i, v: spatial 8 = j) { t[u, v] = x[u, v] * 2.0:f32 } } }
      for k in 0..8 { for l in 0..n {
        block b(p: spatial 8 = k, q: spatial n = l) { y[p, q] = t[q, p] + 1.0:f32 } } } }""")
    s = Schedule(f)
    reverse_inline(s, "b")
    text = print_function(hold_law(f, s, (3,)))
    assert "vector" in text and "t[" not in text


def test_reverse_inline_refuses_reductions() -> None:
    s = Schedule(gemm(4, 4, 3, bias=True))
    with pytest.raises(Illegal):
        reverse_inline(s, "out")


def test_packing_into_a_workspace() -> None:
    f = gemm(dim("m"), 8, dim("k"))
    s = Schedule(f)
    i, j, k = s.loops_of("mm")
    copy = cache_read(s, "mm", "B", "workspace")
    compute_at(s, copy, i)
    set_scope(s, "B_mm", "workspace", at=i)
    parallel(s, i)
    text = print_function(hold_law(f, s, (3, 2), (1, 5)))
    assert "workspace per_part" in text
    del j, k


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


@pytest.mark.parametrize("change", ["merge", "parallel", "vectorize", "set_scope", "compute_at"])
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
            case "set_scope":
                set_scope(s, "top", "stack", at=top[0])
            case _:
                compute_at(s, "c_top", top[0])
    assert caught.value.diagnostics[0].id.startswith("schedule.")
    if change != "merge":
        assert print_function(s.function) == before
        assert s.trace == []
