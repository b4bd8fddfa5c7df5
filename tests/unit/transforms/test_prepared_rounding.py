"""Prepared requantizations give what the requantizations give that they stand for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inlay.arith.dtype import I8, I16, I32, U8
from inlay.arith.expr import lit
from inlay.ir import make
from inlay.ir.expr import Call, Const, Var
from inlay.ir.types import TensorType
from inlay.ops.prepared_rounding import Nudge, PreparedAttrs, prepared
from inlay.ops.requantization import RequantizeAttrs, Rounding, requantized
from inlay.ops.table import table
from inlay.transforms._prepared_rounding import prepared_rounding

EDGE = st.integers(-(2**31), 2**31 - 1)
"""Any accumulator."""


def call(attrs: RequantizeAttrs, multiplier: np.ndarray, shift: np.ndarray) -> Call:
    """Return a requantization of three channels by constants."""
    x = Var("x", TensorType((lit(5), lit(3)), I32))
    made = make.call(
        table().definition("requantize").op, (x, make.const(multiplier), make.const(shift)), attrs
    )
    assert isinstance(made, Call)
    return made


def constants(made) -> tuple[list[np.ndarray], PreparedAttrs]:
    operands, attrs = made
    assert all(isinstance(e, Const) for e in operands)
    return [e.value for e in operands], attrs


def near_steps(x: list[int], m: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """Return accumulators, and those beside which the result of each channel changes."""
    found = [np.array(x, np.int64)[:, None].repeat(m.size, 1)]
    for k in range(-4, 5):
        at = ((2 * k - 1) * 2.0 ** (30 - shift.astype(np.float64)) / np.maximum(m, 1)).round()
        found += [(np.clip(at, -(2.0**31), 2.0**31 - 1) + d)[None].astype(np.int64) for d in (-1, 0, 1)]
    return np.clip(np.concatenate(found), -(2**31), 2**31 - 1).astype(np.int32)


@given(
    st.lists(EDGE, min_size=3, max_size=8),
    st.lists(
        st.one_of(st.integers(2**30, 2**31 - 1), st.sampled_from([0, 1, 2**30])), min_size=3, max_size=3
    ),
    st.lists(st.integers(-31, -2), min_size=3, max_size=3),
    st.sampled_from([-128, -3, 0, 127]),
    st.sampled_from([(None, None), (0, 100), (-128, -128), (-3, 127)]),
    st.sampled_from([I8, I16, I32]),
    st.sampled_from([Rounding.TFLITE, Rounding.HALF_UP]),
)
def test_it_gives_the_same(x, m, shift, zero, ends, dtype, rounding):
    attrs = RequantizeAttrs(dtype, zero, *ends, rounding=rounding)
    m, shift = np.array(m, np.int32), np.array(shift, np.int32)
    made = prepared_rounding(call(attrs, m, shift))
    assert made is not None, f"requantize {m} {shift} {attrs}"
    arrays, how = constants(made)
    points = near_steps(x, m, shift)
    wanted = requantized(attrs, points, m, shift)
    np.testing.assert_array_equal(prepared(how, points, *arrays), wanted, f"{m} {shift} {attrs}")


def test_accumulators_that_cannot_be_negative_in_the_result_need_no_sign() -> None:
    m, shift = np.full(3, 2**30, np.int32), np.full(3, -7, np.int32)
    tflite = {"rounding": Rounding.TFLITE}
    ends = [(-128, None), (-128, -100), (0, None), (0, 0)]
    found = [
        constants(prepared_rounding(call(RequantizeAttrs(I8, z, low, **tflite), m, shift)))[1].nudge
        for z, low in ends
    ]
    assert found == [Nudge.UP, Nudge.UP, Nudge.AWAY, Nudge.UP]


@pytest.mark.parametrize(
    ("attrs", "shift"),
    [
        (RequantizeAttrs(rounding=Rounding.TFLITE), -1),
        (RequantizeAttrs(rounding=Rounding.TFLITE), 3),
        (RequantizeAttrs(rounding=Rounding.TFLITE, bits=15), -9),
        (RequantizeAttrs(rounding=Rounding.HALF_EVEN), -9),
        (RequantizeAttrs(rounding=Rounding.HALF_AWAY), -9),
        (RequantizeAttrs(rounding=Rounding.HALF_UP), -1),
        (RequantizeAttrs(I32, 1 << 20, rounding=Rounding.TFLITE), -9),
    ],
)
def test_what_has_another_form_stays(attrs: RequantizeAttrs, shift: int) -> None:
    m = np.full(3, 2**30, np.int32)
    assert prepared_rounding(call(attrs, m, np.array([-9, -9, shift], np.int32))) is None


@pytest.mark.parametrize("shift", [-31, -1, 0, 5])
@pytest.mark.parametrize("rounding", [Rounding.TFLITE, Rounding.HALF_UP])
def test_channels_whose_weights_are_0_do_not_matter(shift: int, rounding: Rounding) -> None:
    attrs = RequantizeAttrs(I8, -3, -100, 90, rounding=rounding)
    m, shifts = np.array([0, 2**30, 0], np.int32), np.array([shift, -9, shift], np.int32)
    arrays, how = constants(prepared_rounding(call(attrs, m, shifts)))
    points = near_steps([-(2**31), -1, 0, 77, 2**31 - 1], m, shifts)
    np.testing.assert_array_equal(prepared(how, points, *arrays), requantized(attrs, points, m, shifts))


def test_the_zero_point_is_in_the_offset_where_it_has_room() -> None:
    m = np.full(3, 2**30, np.int32)
    attrs = RequantizeAttrs(U8, 128, rounding=Rounding.TFLITE)
    near, far = (
        constants(prepared_rounding(call(attrs, m, np.array([-9, -5, s], np.int32)))) for s in (-7, -31)
    )
    assert (near[1].zero, far[1].zero) == (0, 128)
    assert near[0][1].tolist() == [2**7 + 128 * 2**8, 2**3 + 128 * 2**4, 2**5 + 128 * 2**6]
