"""Values are inside of their intervals."""

from __future__ import annotations

import math

import pytest

from inlay.arith.dtype import BOOL, F32, I8, I32, U8
from inlay.arith.expr import fresh
from inlay.loop.intervals import Intervals
from inlay.loop.scalar import Binary, BinaryOp, Cast, Lit, Name, Scalar, Select, Unary, UnaryOp

X, Q = Name(fresh("x"), F32), Name(fresh("q"), U8)


def least(a: Scalar, b: Scalar) -> Scalar:
    return Select(Binary(BinaryOp.LT, a, b, BOOL), a, b, F32)


def wide(x: Scalar) -> Scalar:
    return Cast(x, I32)


def of(op: BinaryOp, a: Scalar, number: int) -> Scalar:
    return Binary(op, a, Lit(number, I32), I32)


CASES: list[tuple[Scalar, tuple[float, float] | None]] = [
    (X, None),
    (Q, (0, 255)),
    (least(X, Lit(4.0, F32)), (-math.inf, 4)),
    (least(Lit(4.0, F32), X), None),  # NaN where X is
    (wide(Unary(UnaryOp.ROUND_EVEN, X, F32)), (-(2**31), 2**31 - 1)),
    (of(BinaryOp.MUL, of(BinaryOp.SUB, wide(Q), 5), -3), (-750, 15)),
    (of(BinaryOp.MUL, wide(Q), 1 << 24), (-(2**31), 2**31 - 1)),  # wraps
    (Cast(of(BinaryOp.ADD, wide(Q), 1), U8), (0, 255)),
    (Cast(of(BinaryOp.SUB, wide(Q), 100), I8), (-128, 127)),
    (of(BinaryOp.MIN, of(BinaryOp.MAX, wide(Q), 3), 250), (3, 250)),
    (Lit(math.nan, F32), None),
]


@pytest.mark.parametrize(("x", "found"), CASES)
def test_intervals(x: Scalar, found: tuple[float, float] | None) -> None:
    assert Intervals().of(x) == found


def test_names_have_the_intervals_of_their_values() -> None:
    known, t = Intervals(), fresh("t")
    known.bind(t, Cast(Q, F32))
    assert known.within(Binary(BinaryOp.ADD, Name(t, F32), Lit(1.0, F32), F32), 1, 256)
    assert not known.within(Name(t, F32), 1, 255)
