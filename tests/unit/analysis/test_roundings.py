"""`equal_rounding` says what looking at every accumulator says."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from inlay.analysis.roundings import Requantization, equal_rounding
from inlay.arith.dtype import I8, I32
from inlay.ops.requantization import RequantizeAttrs, Rounding, quantized_multiplier

ROUNDINGS = st.sampled_from(list(Rounding))


def fixed(factors, rounding: Rounding, bits: int = 31, **more: int) -> Requantization:
    multipliers, shifts = quantized_multiplier(factors, bits)
    if bits < 31:  # a shorter multiplier, in the same fraction
        multipliers = multipliers << (31 - bits)
    return Requantization(RequantizeAttrs(I8, axis=0, rounding=rounding, **more), multipliers, shifts)


def floating(factors) -> Requantization:
    return Requantization(RequantizeAttrs(I8, axis=0), np.asarray(factors, np.float32))


def first_difference(a: Requantization, b: Requantization, low: int, high: int):
    points = np.tile(np.arange(low, high + 1), (a.factor.size, 1))
    differs = np.argwhere(a(points) != b(points))
    return tuple(map(int, differs[0] + np.array([0, low]))) if differs.size else None


@given(
    st.lists(st.floats(1e-3, 0.9), min_size=1, max_size=3),
    ROUNDINGS,
    ROUNDINGS,
    st.sampled_from([12, 15, 31]),
)
def test_it_is_what_looking_at_all_of_them_says(factors, one, other, bits):
    a, b = fixed(factors, one), fixed(factors, other, bits)
    low, high = -5000, 4000
    found = equal_rounding(a, b, low, high)
    wanted = first_difference(a, b, low, high)
    assert (found is None) == (wanted is None)
    if found is not None and wanted is not None:
        assert found.channel == wanted[0]
        at = np.array([[found.accumulator]] * len(factors))
        assert a(at)[found.channel, 0] != b(at)[found.channel, 0]


def test_roundings_that_differ_at_ties_alone_agree_where_none_occurs():
    factors = np.random.default_rng(0).uniform(1e-4, 1e-2, 64)
    one, other = fixed(factors, Rounding.HALF_EVEN), fixed(factors, Rounding.HALF_AWAY)
    assert equal_rounding(one, other, -(2**20), 2**20) is None


def test_a_product_in_f32_makes_ties_that_the_exact_one_does_not_have():
    scale = np.float32(0.00026362)
    found = equal_rounding(floating([scale]), fixed([scale], Rounding.HALF_EVEN), -(2**20), 2**20)
    assert found is not None
    product = float(np.float32(found.accumulator) * scale)
    assert product % 1 == 0.5
    assert found.accumulator * float(scale) != product


def test_ties_of_powers_of_two_differ():
    found = equal_rounding(floating([2.0**-5]), fixed([2.0**-5], Rounding.HALF_UP), -100, 100)
    assert found is not None
    assert (found.accumulator, found.results) == (-48, (-2, -1))


def test_other_ends_differ():
    found = equal_rounding(fixed([0.1], Rounding.HALF_UP), fixed([0.1], Rounding.HALF_UP, low=0), -99, 99)
    assert found is not None
    assert found.results[1] == 0


def test_an_empty_range_is_equal():
    assert equal_rounding(fixed([0.1], Rounding.HALF_UP), fixed([0.7], Rounding.HALF_UP), 1, 0) is None


def test_what_is_not_decided_says_why():
    wide = Requantization(RequantizeAttrs(I32), *quantized_multiplier([0.1]))
    found = equal_rounding(wide, wide, 0, 1)
    assert found is not None
    assert "steps" in found.reason
    wraps = fixed([4.0], Rounding.TFLITE)
    found = equal_rounding(wraps, wraps, 0, 2**31 - 1)
    assert found is not None
    assert "fall" in found.reason
