"""Contractions of narrow integers: a dot-product instruction for each group of terms."""

from __future__ import annotations

import numpy as np
import pytest

from inlay.arith.dtype import F32, I8, I16, I32, U8, DType
from inlay.arith.expr import Int, to_int
from inlay.interp import loop as interp
from inlay.loop import te
from inlay.loop.from_te import from_te
from inlay.loop.func import LoopFunction
from inlay.loop.printer import print_function
from inlay.loop.scalar import UnaryOp
from inlay.lower.lower import lower
from inlay.machine.dot_products import KINDS
from inlay.machine.target import Target, baseline, host
from inlay.schedule.choose import decide
from inlay.schedule.rules.contraction import contraction
from inlay.schedule.rules.contraction_plan import tile_options
from inlay.schedule.state import Schedule
from tests.unit.codegen.support import run_native
from tests.unit.schedule.programs import dim, hold_law

SMALL = baseline("x86_64", "v2")
"""Four lanes, `pmaddwd`."""


def packed_conv(
    image: tuple[Int | int, Int | int],
    channels: tuple[int, int],
    *,
    kernel: int = 1,
    pad: int = 0,
    x_format: DType = U8,
    wide: DType = I16,
    group: int = 2,
) -> LoopFunction:
    """A convolution over widened, padded x with weights in panels of groups, brought back to u8."""
    (h, w), (c, oc), panel = map(to_int, image), channels, 8
    groups = -(-c // group)
    x = te.placeholder((1, h, w, c), x_format, "x")
    k = te.placeholder((-(-oc // panel), kernel, kernel, groups, panel, group), I8, "w")
    scale = te.placeholder((oc,), F32, "scale")

    def inside(b: Int, i: Int, j: Int, k: Int) -> te.ScalarValue:
        at = (te.index(i) >= pad) & (te.index(i) < h + pad) & (te.index(j) >= pad) & (te.index(j) < w + pad)
        value = x[b, i - pad, j - pad, k].cast(wide)
        return te.select(at & (te.index(k) < c), value, te.const(0, wide))

    padded = (1, h + 2 * pad, w + 2 * pad, groups * group)
    t = te.compute(padded, inside, name="widened", tag="widened", stored=True)
    ky, kx = te.reduce_axis("ky", kernel), te.reduce_axis("kx", kernel)
    kc, kj = te.reduce_axis("kc", groups), te.reduce_axis("kj", group)
    shape = (1, h + 2 * pad - kernel + 1, w + 2 * pad - kernel + 1, oc)

    def term(b: Int, i: Int, j: Int, o: Int) -> te.ScalarValue:
        left = t[b, i + ky, j + kx, kc * group + kj].cast(I32)
        return te.sum_over((ky, kx, kc, kj), left * k[o // panel, ky, kx, kc, o % panel, kj].cast(I32))

    s = te.compute(shape, term, name="s", tag="conv")

    def rounded(*at: Int) -> te.ScalarValue:
        value = te.unary(UnaryOp.ROUND_EVEN, s[at].cast(F32) * scale[at[-1]])
        return te.minimum(te.maximum(value, 0.0), 255.0).cast(U8)

    return from_te("conv", [x, k, scale], [te.compute(shape, rounded, name="y", tag="requantize")])


@pytest.mark.parametrize(
    ("image", "channels", "kernel", "pad"),
    [((1, 7), (4, 8), 1, 0), ((3, 5), (3, 12), 3, 1), ((2, 3), (6, 20), 2, 1)],
)
def test_groups_become_dots(image: tuple, channels: tuple, kernel: int, pad: int) -> None:
    f = packed_conv(image, channels, kernel=kernel, pad=pad)
    s = Schedule(f)
    contraction(s, SMALL)
    text = print_function(s.function)
    assert "dot(" in text
    assert "select" not in text[text.index("dot(") :]
    hold_law(f, s)


def test_unknown_extents() -> None:
    f = packed_conv((dim("h"), dim("w")), (3, 9), kernel=2)
    s = Schedule(f)
    contraction(s, SMALL)
    assert "dot(" in print_function(s.function)
    hold_law(f, s, (3, 4), (2, 9))


@pytest.mark.parametrize(
    ("target", "x_format", "wide", "group", "has_dots"),
    [
        (SMALL, I8, I16, 2, True),
        (SMALL, U8, U8, 4, False),
        (Target(), I8, I16, 2, False),
        (Target(dot=("i16",)), I8, I16, 2, True),
        (Target(dot=("u8i8",)), U8, U8, 4, True),
        (Target(dot=("u8i8",)), I8, I8, 4, False),
    ],
)
def test_groups_of_other_targets_are_plain_sums(
    target: Target, x_format: DType, wide: DType, group: int, *, has_dots: bool
) -> None:
    f = packed_conv((1, 5), (6, 8), x_format=x_format, wide=wide, group=group)
    s = Schedule(f)
    contraction(s, target)
    assert ("dot(" in print_function(s.function)) is has_dots
    hold_law(f, s)


def test_what_is_widened_is_stored_in_front_of_the_products() -> None:
    f = packed_conv((4, 4), (8, 8), kernel=3, pad=1)
    s = Schedule(f)
    contraction(s, SMALL)
    text = print_function(s.function)
    assert text.rindex("i16(") < text.index("dot(")


def test_lines_that_share_nothing_are_widened_one_at_a_time() -> None:
    f = packed_conv((6, 4), (4, 40))
    s = Schedule(f)
    contraction(s, SMALL)
    text = print_function(s.function)
    assert text.index("parallel") < text.index("i16(") < text.index("dot(")
    assert text.count("parallel") == 1
    hold_law(f, s)


def test_a_tile_leaves_a_register_for_products_that_are_added_later() -> None:
    wide = baseline("x86_64", "v3")
    assert tile_options(wide, I32, 24, 64)[0] == (4,)
    assert tile_options(wide, I32, 24, 64, wide.tile_registers(KINDS["i16"]))[0] == (3, 1)


def test_what_was_asked_of_a_processor_is_what_its_features_give() -> None:
    assert decide(packed_conv((1, 5), (6, 8)), SMALL).facts["dot"] == ("i16",)


def test_what_is_chosen_stays_outside_so_that_all_choices_share_what_they_read() -> None:
    x = te.placeholder((4, 16, 6), I16, "x")
    w = te.placeholder((4, 1, 3, 8, 2), I16, "w")
    r, j = te.reduce_axis("r", 3), te.reduce_axis("j", 2)

    def chosen(f: Int, t: Int, c: Int) -> te.ScalarValue:
        return te.select(te.index(f).equals(te.index(0)), x[0, t, c] - x[1, t, c], x[2, t, c])

    v = te.compute((4, 16, 6), chosen, name="v", stored=True)

    def term(f: Int, t: Int, o: Int) -> te.ScalarValue:
        right = w[f, o // 8, r, o % 8, j].cast(I32)
        return te.sum_over((r, j), v[f, t, r * 2 + j].cast(I32) * right)

    f = from_te("chosen", [x, w], [te.compute((4, 16, 8), term, name="y")])
    s = Schedule(f)
    contraction(s, SMALL)
    text = print_function(s.function)
    before = text[: text.index("select")]
    assert "unroll" in before
    assert "dot(" not in before
    hold_law(f, s)


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("image", "channels", "kernel", "pad"),
    [((5, 13), (6, 16), 1, 0), ((4, 7), (5, 20), 3, 1), ((1, 9), (3, 3), 1, 0), ((6, 6), (2, 11), 3, 0)],
)
@pytest.mark.parametrize("x_format", [U8, I8])
def test_machine_code_gives_the_same_integers(
    image: tuple, channels: tuple, kernel: int, pad: int, x_format: DType
) -> None:
    f = packed_conv(image, channels, kernel=kernel, pad=pad, x_format=x_format)
    s = Schedule(f)
    contraction(s, host())
    inputs = []
    random = np.random.default_rng(11)
    for b in f.params[: f.n_reads]:
        shape, dtype = tuple(e.value or 0 for e in b.shape), b.dtype.numpy
        if b.dtype.is_integer:
            inputs.append(random.integers(np.iinfo(dtype).min, np.iinfo(dtype).max + 1, shape).astype(dtype))
        else:
            inputs.append((random.random(shape) * 0.001).astype(dtype))
    [want] = interp.run(f, inputs)
    [got] = run_native(lower(s.function, host()), inputs)
    np.testing.assert_array_equal(got, want)
