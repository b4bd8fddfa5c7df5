"""Values by hand for what is easily done differently."""

from __future__ import annotations

import numpy as np
import pytest

from inlay.arith.dtype import BF16, BOOL, F16, F32, F64, I8, I32, I64, U8
from inlay.ops.activations import ClipAttrs
from inlay.ops.elementwise import CastAttrs
from inlay.ops.table import op_ref, table

MIN32, MAX32 = -(2**31), 2**31 - 1


def call(name: str, *args, **attrs):
    return table().definition(name).evaluate(op_ref(name, **attrs).attrs, *args)


def i32(*values):
    return np.array(values, np.int32)


def f32(*values):
    return np.array(values, np.float32)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("div", [2, -2, -2, 2, 0, MIN32]),
        ("floor_div", [2, -3, -3, 2, 0, MIN32]),
        ("rem", [1, -1, 1, -1, 0, 0]),
        ("mod", [1, 2, -2, -1, 0, 0]),
    ],
)
def test_integer_division_rounds_as_named_and_is_total(name, expected):
    x, y = i32(7, -7, 7, -7, 5, MIN32), i32(3, 3, -3, -3, 0, -1)
    assert call(name, x, y).tolist() == expected


def test_float_division_follows_ieee():
    assert call("div", f32(1, -1, 0), f32(0, 0, 0))[:2].tolist() == [np.inf, -np.inf]
    assert call("rem", f32(-7.5), f32(2)).tolist() == [-1.5]
    assert call("mod", f32(-7.5), f32(2)).tolist() == [0.5]


def test_integers_wrap():
    assert call("add", i32(MAX32), i32(1)).tolist() == [MIN32]
    assert call("abs", i32(MIN32)).tolist() == [MIN32]
    assert call("sub", np.array([0], np.uint8), np.array([1], np.uint8)).tolist() == [255]


def test_extremes_propagate_nan_from_either_side():
    x, y = f32(np.nan, 1, np.nan), f32(1, np.nan, np.nan)
    assert np.isnan(call("minimum", x, y)).all()
    assert np.isnan(call("maximum", x, y)).all()
    assert np.isnan(call("clip", f32(np.nan), low=0.0, high=1.0)).all()
    assert np.isnan(call("relu", f32(np.nan))).all()


def test_round_takes_ties_to_even():
    assert call("round", f32(0.5, 1.5, 2.5, -0.5, -1.5)).tolist() == [0, 2, 2, 0, -2]


@pytest.mark.parametrize(
    ("to", "expected"),
    [
        (I8, [-128, 127, 0, 1, -1, 127, -128]),
        (U8, [0, 255, 0, 1, 0, 255, 0]),
        (I32, [MIN32, MAX32, 0, 1, -1, MAX32, MIN32]),
        (I64, [-(10**10), 10**10, 0, 1, -1, 2**63 - 1, -(2**63)]),
        (BOOL, [True, True, True, True, True, True, True]),
    ],
)
def test_floats_truncate_and_saturate(to, expected):
    x = np.array([-1e10, 1e10, np.nan, 1.9, -1.9, np.inf, -np.inf])
    assert call("cast", x, dtype=to).tolist() == expected


def test_a_bound_that_f32_cannot_hold_saturates_to_the_bound():
    x = f32(2.0**31, 2.0**31 - 128, -(2.0**31))
    assert call("cast", x, dtype=I32).tolist() == [MAX32, 2**31 - 128, MIN32]


def test_narrow_floats_round_once():
    # In f16 each of the small terms is lost; in f32 they add up to one step of f16.
    terms = np.array([1, 2**-12, 2**-12, 2**-12, 2**-12], np.float16)
    assert call("reduce_sum", terms, axes=(0,)).tolist() == 1 + 2**-10
    assert call("cast", np.array([1 + 2**-9]), dtype=BF16).astype(float).tolist() == [1.0]
    assert call("cast", np.array([65520.0]), dtype=F16).tolist() == [np.inf]
    assert call("cast", np.array([0.1], np.float32), dtype=F64).tolist() == [float(np.float32(0.1))]


def test_clip_of_integers_takes_whole_bounds():
    assert call("clip", i32(-5, 0, 5), low=-1.5, high=2.5).tolist() == [-1, 0, 2]
    assert call("clip", i32(MIN32, MAX32)).tolist() == [MIN32, MAX32]


def test_shifts_beyond_the_width_leave_nothing_or_the_sign():
    x = i32(1, -8, -8, 5)
    assert call("shift_left", x, i32(3, 1, 32, -1)).tolist() == [8, -16, 0, 0]
    assert call("shift_right", x, i32(1, 2, 40, -1)).tolist() == [0, -2, -1, 0]


def test_ranks_below_one_stay():
    assert call("exp", np.asarray(0, np.float32)).shape == ()
    assert call("add", np.asarray(1.0), np.asarray(2.0)).shape == ()


def test_default_attributes():
    assert ClipAttrs() == op_ref("clip").attrs
    assert op_ref("cast", dtype=F32).attrs == CastAttrs(F32)
