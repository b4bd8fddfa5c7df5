"""Operands that are copied where they are read: what is legal, where it pays, and that it means the same."""

from __future__ import annotations

import numpy as np
import pytest

from inlay.arith.dtype import F32, I8, I16, I32
from inlay.arith.expr import Int, to_int
from inlay.interp import loop as interp
from inlay.loop import te
from inlay.loop.buffer import Scope
from inlay.loop.from_te import from_te
from inlay.loop.func import LoopFunction
from inlay.loop.parser import parse_function
from inlay.loop.printer import print_function
from inlay.loop.scalar import UnaryOp
from inlay.lower.lower import lower
from inlay.machine.target import Target, host
from inlay.schedule.primitives.compute_at import compute_at
from inlay.schedule.rules.contraction import contraction
from inlay.schedule.state import Illegal, Schedule
from tests.unit.codegen.support import run_native
from tests.unit.schedule.programs import dim, hold_law, stencil


def depthwise(
    image: tuple[int, int],
    channels: int,
    *,
    kernel: int = 3,
    stride: int = 1,
    dilation: int = 1,
    images: Int | int = 1,
) -> LoopFunction:
    """A depthwise convolution over a padded copy of x, whose padding is no zero, brought back to i8."""
    (h, w), pad = image, dilation * (kernel - 1) // 2
    x = te.placeholder((images, h, w, channels), I8, "x")
    k = te.placeholder((kernel, kernel, channels), I16, "w")
    scale = te.placeholder((channels,), F32, "scale")

    def inside(b: Int, i: Int, j: Int, c: Int) -> te.ScalarValue:
        at = (te.index(i) >= pad) & (te.index(i) < h + pad) & (te.index(j) >= pad) & (te.index(j) < w + pad)
        return te.select(at, x[b, i - pad, j - pad, c], te.const(3, I8))

    padded = (images, h + 2 * pad, w + 2 * pad, channels)
    t = te.compute(padded, inside, name="pad", tag="pad", stored=True)
    ky, kx = te.reduce_axis("ky", kernel), te.reduce_axis("kx", kernel)
    shape = (images, (h - 1) // stride + 1, (w - 1) // stride + 1, channels)

    def term(b: Int, i: Int, j: Int, c: Int) -> te.ScalarValue:
        left = t[b, i * stride + ky * dilation, j * stride + kx * dilation, c].cast(I32)
        return te.sum_over((ky, kx), left * k[ky, kx, c].cast(I32))

    s = te.compute(shape, term, name="s", tag="depthwise")

    def rounded(*at: Int) -> te.ScalarValue:
        value = te.unary(UnaryOp.ROUND_EVEN, s[at].cast(F32) * scale[at[-1]])
        return te.minimum(te.maximum(value, -128.0), 127.0).cast(I8)

    return from_te("depthwise", [x, k, scale], [te.compute(shape, rounded, name="y", tag="requantize")])


CASES = [
    pytest.param(((8, 6), 16, 3, 1, 1), 4, id="windows of three lines"),
    pytest.param(((12, 5), 24, 3, 2, 1), 1, id="every second line"),
    pytest.param(((16, 7), 8, 3, 1, 2), 8, id="lines two apart"),
    pytest.param(((16, 6), 3, 5, 1, 1), 8, id="windows of five lines, channels that fill no vector"),
]


@pytest.mark.sample(1)
@pytest.mark.parametrize(("case", "lines"), CASES)
def test_a_block_of_lines_copies_the_rows_that_it_reads(case: tuple, lines: int) -> None:
    image, channels, kernel, stride, dilation = case
    f = depthwise(image, channels, kernel=kernel, stride=stride, dilation=dilation)
    s = Schedule(f)
    contraction(s, Target())
    lowered = hold_law(f, s)
    assert not lowered.workspaces
    rows = (lines - 1) * stride + (kernel - 1) * dilation + 1
    reach = image[1] + (kernel - 1) * dilation if stride == 1 else (-(-image[1] // 2) - 1) * 2 + 3
    assert f"i8[1, {rows}, {reach}, {channels}] @stack" in print_function(lowered)
    inputs = [np.random.default_rng(3).integers(-9, 9, [e.value for e in b.shape]) for b in f.params[:3]]
    inputs = [x.astype(b.dtype.numpy) for x, b in zip(inputs, f.params, strict=False)]
    [want] = interp.run(f, inputs)
    made = Schedule(f)
    contraction(made, host())
    [got] = run_native(lower(made.function, host()), inputs, parts=3)
    np.testing.assert_array_equal(got, want)


def test_each_of_an_unknown_number_of_images_is_staged_for_itself() -> None:
    f = depthwise((8, 6), 8, images=dim("n"))
    s = Schedule(f)
    contraction(s, Target())
    lowered = hold_law(f, s, (1,), (3,), (0,))
    assert "i8[1, 6, 8, 8] @stack" in print_function(lowered)


def test_what_would_be_copied_too_often_is_copied_before() -> None:
    f = depthwise((7, 6), 8)
    s = Schedule(f)
    contraction(s, Target())
    lowered = hold_law(f, s)
    assert [b.shape for b in lowered.workspaces] == [tuple(map(to_int, (1, 9, 8, 8)))]


def test_only_ends_of_rows_are_tested_for_padding() -> None:
    s = Schedule(depthwise((8, 6), 16))
    contraction(s, Target())
    copies = [x for x in print_function(lower(s.function, Target())).splitlines() if "x[" in x]
    assert len(copies) == 1
    assert "select" in copies[0]
    assert copies[0].count("<") == 2  # both ends of the axis of lines, and of no other


REFUSED = """
schedulable func f(x: f32[8], z: f32[8]) -> (y: f32[8], u: f32[8]) {{
  alloc t: f32[8] @workspace
  for i in 0..8 {{ {block} }}
  {between}
  for j in 0..8 {{ block b(w: spatial 8 = j) {{ y[w] = t[w] + z[w] }} }}
  {behind}
}}"""
PLAIN = "block a(v: spatial 8 = i) { t[v] = x[v] }"


@pytest.mark.parametrize(
    ("block", "between", "behind", "reason"),
    [
        (PLAIN, "", "for k in 0..8 { block c(w: spatial 8 = k) { u[w] = t[w] } }", "read t outside j"),
        ("block a(v: spatial 8 = i) { u[v] = x[v] t[v] = x[v] }", "", "", "not one store"),
        ("block a(v: spatial 8 = i) where [i] < [4] { t[v] = x[v] }", "", "", "not one store"),
        ("block a(v: spatial 8 = i) { u[v] = x[v] }", "", "", "write parameter u"),
        (
            PLAIN,
            "for k in 0..8 { block c(w: spatial 8 = k) { t[w] = z[w] } }",
            "",
            "another block that writes t",
        ),
        (
            "block a(v: spatial 8 = i) { t[v] = u[v] }",
            "",
            "for k in 0..8 { block c(w: spatial 8 = k) { u[w] = z[w] } }",
            "c to write u afterwards",
        ),
    ],
)
def test_what_would_change_the_meaning_is_refused(block: str, between: str, behind: str, reason: str) -> None:
    s = Schedule(parse_function(REFUSED.format(block=block, between=between, behind=behind)))
    before = print_function(s.function)
    with pytest.raises(Illegal, match=reason):
        compute_at(s, "a", "j", Scope.STACK)
    assert print_function(s.function) == before


def test_a_loop_around_both_is_refused() -> None:
    s = Schedule(stencil(dim("n")))
    producer = s.block_names()[0]
    with pytest.raises(Illegal, match="inside"):
        compute_at(s, producer, s.loops_of(producer)[0], Scope.STACK)


def test_rows_of_a_temporary_that_is_no_copy() -> None:
    f = stencil(dim("n"))
    s = Schedule(f)
    producer, reader = s.block_names()
    compute_at(s, producer, s.loops_of(reader)[1], Scope.REGISTER)
    lowered = hold_law(f, s, (2,), (0,))
    assert "f32[1, 3]" in print_function(lowered)
