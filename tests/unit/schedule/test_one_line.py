"""Pixels of all lines are the rows of one product where a window is one pixel."""

from __future__ import annotations

import pytest

from inlay.arith.dtype import F32
from inlay.arith.expr import Int, floordiv, lit, mod, to_int
from inlay.ir.types import TensorType
from inlay.loop import te
from inlay.loop.from_te import from_te
from inlay.loop.func import LoopFunction
from inlay.machine.target import baseline
from inlay.ops.convolution import PackedConvAttrs
from inlay.ops.table import table
from inlay.schedule.choose import schedule
from inlay.schedule.rules import contraction as rule
from inlay.schedule.rules.contraction import contraction
from inlay.schedule.state import Schedule, illegal
from tests.unit.schedule.programs import dim, hold_law

SMALL = baseline("x86_64", "v2")
"""Four lanes."""


def convolution(images: Int | int, window: int) -> LoopFunction:
    """A convolution of three channels to eight."""
    x = te.placeholder((images, 5, 7, 3), F32, "x")
    w = te.placeholder((1, window, window, 3, 8), F32, "w")
    attrs = PackedConvAttrs(8, 8, pads=(window // 2,) * 4)
    shape = (to_int(images), to_int(5), to_int(7), to_int(8))
    y = table().definition("conv_nhwc_packed").compute(attrs, [x, w], TensorType(shape, F32))
    return from_te("conv", [x, w], [te.compute(shape, lambda *i: te.maximum(y[i], 0.0), name="z")])


@pytest.mark.parametrize(
    ("images", "window", "rows", "sizes"),
    [(1, 1, (35, 8), [()]), (2, 1, (70, 8), [()]), (dim("n"), 1, (None, 35, 8), [(0,), (2,)])],
    ids=["one image", "images", "images that are not known"],
)
def test_lines_are_one(images, window, rows, sizes) -> None:
    f = convolution(images, window)
    s = Schedule(f)
    contraction(s, SMALL)
    hold_law(f, s, *sizes)
    assert tuple(e.value for e in s.outputs[0].shape) == rows


def test_lines_of_windows_stay() -> None:
    f = convolution(1, 3)
    s = Schedule(f)
    contraction(s, SMALL)
    assert "merge_axes" not in [step.primitive for step in s.trace]


def row_of_parts(images: int = 1) -> LoopFunction:
    """A row times a matrix, of whose result each number reads two."""
    x, w = te.placeholder((images, 6), F32, "x"), te.placeholder((2, 6, 8), F32, "w")
    k = te.reduce_axis("k", 6)

    def product(i: Int, j: Int) -> te.ScalarValue:
        return te.sum_over(k, x[i, k] * w[floordiv(j, lit(8)), k, mod(j, lit(8))])

    y = te.compute((images, 14), product, name="y")
    z = te.compute((images, 7), lambda i, j: y[i, j] * y[i, j + 7], name="z")
    return from_te("row", [x, w], [z])


def test_one_row_stays_a_row() -> None:
    """There are no lines to merge: without an axis of rows there would be no tiles."""
    f = row_of_parts()
    s = schedule(f, SMALL)
    hold_law(f, s, ())
    assert s.rule == "contraction"
    assert "merge_axes" not in [step.primitive for step in s.trace]


def test_what_is_refused_half_way_keeps_its_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise illegal("not-nested", "found a test that refuses, needed none")

    monkeypatch.setattr(rule, "merge_axes", refuse)
    f = convolution(1, 1)
    s = schedule(f, SMALL)
    hold_law(f, s, ())
    assert s.rule == "plain_contraction"
    assert [name for name, _ in s.refusals] == ["injective", "contraction"]
