"""Loops over tensors in larger ones: addresses change, nests do not, and axes merge where rows are one."""

from __future__ import annotations

import numpy as np

from inlay.arith.dtype import F32
from inlay.arith.expr import fresh, lit, to_int
from inlay.interp.loop import run
from inlay.loop import te
from inlay.loop.buffer import flat_index
from inlay.loop.from_te import from_te
from inlay.loop.parser import parse_function
from inlay.loop.printer import print_function
from inlay.loop.verify import check
from inlay.lower.in_windows import Window, Windows, in_windows
from inlay.schedule.primitives.merge_axes import merge_axes
from inlay.schedule.state import Schedule

N = fresh("n")


def negation(*shape):
    x = te.placeholder(shape, F32, "x")
    return from_te("f", [x], [te.compute(shape, lambda *i: -x[i], name="y")])


def test_a_part_continues_the_whole_that_its_operand_is_in():
    f = in_windows(negation(N, 4), Windows({0: Window(1, 2, 9)}, Window(1, 5, 9), continues=True))
    check(f)
    text = print_function(f)
    assert text.splitlines()[0] == (
        "schedulable func f(x: f32[n, 4] strides [9, 1] first 2, whole: f32[n, 9]) -> "
        "(y: f32[n, 4] strides [9, 1] first 5) over (n) {"
    )
    assert print_function(parse_function(text)) == text
    (i,) = (to_int(N),)
    assert flat_index(f.params[2], (i, lit(3))) == i * 9 + 8


def test_windows_of_windows_of_one_axis_stay_apart_from_rows():
    """Pictures become rows of pixels; pixels and channels do not become one axis."""
    f = in_windows(negation(2, 3, 5, 4), Windows({0: Window(3, 2, 9)}, Window(3, 5, 9)))
    s = Schedule(f)
    merge_axes(s)
    x, y = s.function.params
    assert (x.shape, x.strides, x.first) == ((30, 4), (9, 1), 2)
    assert (y.shape, y.strides, y.first) == ((30, 4), (9, 1), 5)


def test_planes_in_a_larger_stack_of_planes_are_one_axis():
    """What is behind the axis lies in one piece."""
    s = Schedule(in_windows(negation(2, 4, 3, 5), Windows({0: Window(1, 2, 9)})))
    merge_axes(s)
    x, y = s.function.params
    assert (x.shape, x.strides, x.first) == ((2, 60), (135, 1), 30)
    assert (y.shape, y.strides) == ((2, 60), None)


def test_what_is_computed_stays():
    f = in_windows(negation(3, 4), Windows({0: Window(1, 2, 9)}))
    whole = np.arange(27, dtype=np.float32).reshape(3, 9)
    (found,) = run(f, [whole[:, 2:6].copy()])
    np.testing.assert_array_equal(found, -whole[:, 2:6])
