"""Requantization against exact rational arithmetic, and against the two roundings as they are specified."""

from __future__ import annotations

from fractions import Fraction
from math import ceil, floor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inlay.arith.dtype import F32, I8, I16, I32, I64, U8
from inlay.base.diagnostics import CompileError
from inlay.ir import make
from inlay.ir.types import TensorType
from inlay.ops.requantization import RequantizeAttrs, Rounding, quantized_multiplier, requantized
from inlay.ops.table import table


def exact(q: Fraction, rounding: Rounding) -> int:
    """Round a rational number."""
    match rounding:
        case Rounding.HALF_UP:
            return floor(q + Fraction(1, 2))
        case Rounding.HALF_AWAY:
            return floor(q + Fraction(1, 2)) if q >= 0 else ceil(q - Fraction(1, 2))
        case _:
            return round(q)


def two_roundings(x: int, multiplier: int, shift: int) -> int:
    """The doubling high product with its nudge, and the division by a power of two with its threshold."""
    product = x * (1 << max(shift, 0)) * multiplier
    nudge = 1 << 30 if product >= 0 else 1 - (1 << 30)
    total = product + nudge
    high = total // (1 << 31) if total >= 0 else -(-total // (1 << 31))
    distance = max(-shift, 0)
    mask = (1 << distance) - 1
    threshold = (mask >> 1) + (1 if high < 0 else 0)
    return (high >> distance) + (1 if (high & mask) > threshold else 0)


accumulators = st.one_of(st.integers(-(2**31), 2**31 - 1), st.integers(-300, 300))


@given(
    accumulators,
    st.one_of(st.integers(0, 2**31 - 1), st.integers(0, 31).map(lambda k: (1 << k) & 0x7FFFFFFF)),
    st.integers(-31, 31),
    st.sampled_from([r for r in Rounding if r is not Rounding.TFLITE]),
    st.integers(-128, 127),
    st.sampled_from([I8, U8, I16, I32]),
)
def test_one_rounding_is_that_of_the_exact_product(x, m, shift, rounding, zero, dtype):
    attrs = RequantizeAttrs(dtype, zero, rounding=rounding)
    found = requantized(attrs, np.array([x], np.int32), np.array(m, np.int32), np.array(shift, np.int32))
    low, high = attrs.ends()
    wanted = exact(Fraction(x * m) * Fraction(2) ** (shift - 31), rounding) + zero
    assert int(found[0]) == min(max(wanted, low), high)


@given(st.integers(-(2**31), 2**31 - 1), st.integers(2**30, 2**31 - 1), st.integers(-31, 12))
def test_two_roundings_are_those_of_the_specification(x, m, shift):
    x >>= max(shift, 0)  # the reference kernels leave open what overflows here
    attrs = RequantizeAttrs(I32, rounding=Rounding.TFLITE)
    found = requantized(attrs, np.array([x], np.int32), np.array(m, np.int32), np.array(shift, np.int32))
    assert int(found[0]) == two_roundings(x, m, shift)


@given(st.integers(-(2**47), 2**47), st.integers(0, 2**15 - 1), st.integers(-30, 1))
def test_wide_accumulators_have_short_multipliers(x, m, shift):
    attrs = RequantizeAttrs(I16, rounding=Rounding.HALF_UP, bits=15)
    found = requantized(attrs, np.array([x]), np.array(m, np.int32), np.array(shift, np.int32))
    wanted = exact(Fraction(x * m) * Fraction(2) ** (shift - 15), Rounding.HALF_UP)
    assert int(found[0]) == min(max(wanted, -(2**15)), 2**15 - 1)


@given(accumulators, st.floats(0, 1e6, width=32), st.sampled_from([Rounding.HALF_EVEN, Rounding.HALF_AWAY]))
def test_a_float_scale_is_a_product_in_f32(x, scale, rounding):
    attrs = RequantizeAttrs(I16, rounding=rounding)
    found = requantized(attrs, np.array([x], np.int32), np.array(scale, np.float32))
    product = Fraction(float(np.float32(x) * np.float32(scale)))
    assert int(found[0]) == min(max(exact(product, rounding), -(2**15)), 2**15 - 1)


@given(st.lists(st.floats(1e-8, 1e4), min_size=1, max_size=4), st.sampled_from([15, 31]))
def test_multipliers_are_factors(factors, bits):
    multipliers, shifts = quantized_multiplier(factors, bits)
    assert ((1 << bits - 1) <= multipliers).all()
    assert (multipliers.astype(np.int64) < 1 << bits).all()
    made = multipliers * 2.0**-bits * 2.0**shifts
    np.testing.assert_allclose(made, factors, rtol=2.0**-bits)


@pytest.mark.parametrize(
    ("attrs", "types", "words"),
    [
        (RequantizeAttrs(I64), (I32, F32), "cannot requantize to i64"),
        (RequantizeAttrs(low=5, high=4), (I32, F32), "the ends 5 and 4"),
        (RequantizeAttrs(high=200), (I32, F32), "the ends -128 and 200"),
        (RequantizeAttrs(rounding=Rounding.TFLITE), (I32, F32), "the rounding tflite of a float scale"),
        (RequantizeAttrs(), (I32, I32), "a multiplier without a shift"),
        (RequantizeAttrs(), (I32, F32, I32), "a shift beside a float scale"),
        (RequantizeAttrs(bits=40), (I32, I32, I32), "multipliers of 40 bits"),
    ],
)
def test_what_is_refused(attrs, types, words):
    first, *others = types
    args = [make.var("x", TensorType((2, 3), first)), *(make.var("f", TensorType((), t)) for t in others)]
    with pytest.raises(CompileError, match=words):
        make.call(table().definition("requantize").op, tuple(args), attrs)
