"""Floats that are found for a requantization give its results."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inlay.analysis.float_roundings import FloatRounding, float_rounding
from inlay.analysis.roundings import Requantization
from inlay.arith.dtype import I8, I16, U8
from inlay.ops.float_rounding import (
    MOST_OFFSET,
    MOST_SCALE,
    OFFSET_STEP,
    SCALE_STEP,
    FloatRoundingAttrs,
    rounded,
)
from inlay.ops.requantization import RequantizeAttrs, Rounding, quantized_multiplier

ENDS = {I8: (-128, 127), U8: (0, 255)}


def fixed(factors, attrs: RequantizeAttrs) -> Requantization:
    return Requantization(attrs, *quantized_multiplier(factors))


def results(found: FloatRounding, r: Requantization, x: np.ndarray) -> np.ndarray:
    """Return what floats give for accumulators `[channel, any]`."""
    attrs = FloatRoundingAttrs(r.attrs.dtype, *r.attrs.ends(), 0)
    arrays = (found.scale, found.offset, found.step, found.pivot)
    return rounded(attrs, x - found.shift.astype(np.int64)[:, None], *arrays)


def check(r: Requantization, low: np.ndarray, high: np.ndarray) -> FloatRounding | None:
    """Compare results on all accumulators of small ranges, and next to all steps and ends of others."""
    found = float_rounding(r, low, high)
    if found is None:
        return None
    for c in range(low.size):
        if high[c] - low[c] < 1 << 16:
            x = np.arange(low[c], high[c] + 1)
        else:
            exact = r.factor[c] * (1.0 if r.shift is None else 2.0 ** (float(r.shift[c]) - r.attrs.bits))
            steps = np.rint((np.arange(-300, 300) + 0.5) / exact)[:, None] + np.arange(-3, 4)
            x = np.concatenate([np.clip(steps.ravel(), low[c], high[c]), [low[c], high[c]]]).astype(np.int64)
        every = np.broadcast_to(x, (low.size, x.size))
        np.testing.assert_array_equal(results(found, r, every)[c], r(every)[c], f"{c}: {r}")
    for values, most, step in (
        (found.scale, MOST_SCALE, SCALE_STEP),
        (found.offset, MOST_OFFSET, OFFSET_STEP),
    ):
        wide = values.astype(np.float64) / step
        assert np.all(abs(values) <= most) and np.array_equal(wide, np.rint(wide))
    return found


@given(
    st.lists(st.floats(2e-4, 0.24), min_size=1, max_size=3),
    st.sampled_from(list(Rounding)),
    st.sampled_from([I8, U8]),
    st.integers(0, 255),
    st.lists(st.integers(-(2**17), 2**17), min_size=2, max_size=2),
)
def test_results_are_the_same(factors, rounding, dtype, zero, ends):
    r = fixed(factors, RequantizeAttrs(dtype, zero + ENDS[dtype][0], rounding=rounding, axis=0))
    low, high = (np.full(len(factors), e, np.int64) for e in sorted(ends))
    check(r, low, high)


@given(st.lists(st.floats(2e-4, 0.24), min_size=1, max_size=3), st.integers(-128, 127))
def test_float_scales_are_proved_too(factors, zero):
    r = Requantization(RequantizeAttrs(I8, zero, axis=0), np.asarray(factors, np.float32))
    low, high = np.full(len(factors), -(2**31)), np.full(len(factors), 2**31 - 1)
    check(r, low, high)


@pytest.mark.parametrize("rounding", [Rounding.TFLITE, Rounding.HALF_UP])
@pytest.mark.parametrize("zero", [-128, 5])
def test_floats_are_found_for_most_channels(rounding: Rounding, zero: int) -> None:
    factors = np.random.default_rng(3).uniform(1e-3, 2e-2, 48)
    found = 0
    for one in factors:
        r = fixed([one], RequantizeAttrs(I8, zero, rounding=rounding, axis=0))
        found += check(r, np.array([-200_000]), np.array([200_000])) is not None
    assert found >= 44


def test_accumulators_below_zero_have_an_offset_where_two_roundings_need_it() -> None:
    ends = np.array([-30_000]), np.array([30_000])
    one = check(fixed([0.0047], RequantizeAttrs(I8, 3, rounding=Rounding.TFLITE, axis=0)), *ends)
    other = check(fixed([0.0047], RequantizeAttrs(I8, -128, rounding=Rounding.TFLITE, axis=0)), *ends)
    assert one is not None and one.step < 0
    assert other is not None and other.step == 0


def test_a_channel_of_one_result_needs_no_scale() -> None:
    r = fixed([2e-9, 0.004], RequantizeAttrs(I8, -7, rounding=Rounding.TFLITE, axis=0))
    found = check(r, np.array([-9000, -9000]), np.array([9000, 9000]))
    assert found is not None and found.scale[0] == 0 and found.offset[0] == -7


def test_a_shift_brings_accumulators_that_floats_do_not_tell_apart_to_zero() -> None:
    far, middle = RequantizeAttrs(I8, -128, rounding=Rounding.TFLITE, axis=0), 1 << 26
    found = check(
        fixed([2e-4], replace(far, zero=-127 - int(middle * 2e-4))), *np.array([[middle], [middle + 10**6]])
    )
    assert found is not None and found.shift[0] > middle


@pytest.mark.parametrize(
    "attrs", [RequantizeAttrs(I16, axis=0), RequantizeAttrs(I8, rounding=Rounding.HALF_UP, axis=0)]
)
def test_nothing_is_found_for_wide_results_and_large_factors(attrs: RequantizeAttrs) -> None:
    factor = 0.01 if attrs.dtype is I16 else 0.6
    assert float_rounding(fixed([factor], attrs), np.array([-100]), np.array([100])) is None
