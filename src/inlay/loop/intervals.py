"""Where the values of scalars are: closed intervals, by their formats, their constants and their clamps.

An interval says that a value is a number, at least and at most as large as its ends; ends of floats may be
infinite, and a value that may be NaN has none. What wraps may be anywhere in its format.
"""

from __future__ import annotations

import math

from inlay.arith.dtype import I64, DType
from inlay.arith.expr import Sym
from inlay.loop.scalar import (
    Binary,
    BinaryOp,
    Cast,
    Intrinsic,
    IntrinsicOp,
    Lit,
    Load,
    Name,
    Scalar,
    Select,
    Unary,
    UnaryOp,
)

Interval = tuple[float, float]

_EXACT = 1 << 24
"""Integers up to it are floats of 32 bits."""
_SLACK = 2.0**-22
"""What a few roundings to 32 bits add to a value at most, in proportion."""


class Intervals:
    """The intervals of names, as far as they were bound."""

    def __init__(self) -> None:
        self._names: dict[Sym, Interval | None] = {}
        self._memo: dict[Scalar, Interval | None] = {}

    def bind(self, sym: Sym, value: Scalar) -> None:
        """Give a name a value."""
        self._names[sym] = self.of(value)

    def within(self, x: Scalar, low: float, high: float) -> bool:
        """Whether a value is known to be between two numbers."""
        found = self.of(x)
        return found is not None and low <= found[0] and found[1] <= high

    def of(self, x: Scalar) -> Interval | None:
        """Return the interval of a value; None where it may be no number, or anything."""
        if x not in self._memo:
            self._memo[x] = self._of(x)
        return self._memo[x]

    def _of(self, x: Scalar) -> Interval | None:
        match x:
            case Lit(value=value):
                return None if math.isnan(value) else (float(value), float(value))
            case Name(sym=sym):
                return self._names.get(sym, ends(x.dtype))
            case Select():
                return self._select(x)
            case Cast(operand=operand, dtype=dtype):
                return self._cast(operand, dtype)
            case Unary(op=UnaryOp.ROUND_EVEN, operand=operand):
                found = self.of(operand)
                return None if found is None or math.inf in map(abs, found) else _rounded(found)
            case Binary(op=op, lhs=lhs, rhs=rhs, dtype=dtype):
                return _joined(op, self.of(lhs), self.of(rhs), dtype)
            case Intrinsic(op=IntrinsicOp.FMA, args=(a, b, c), dtype=dtype):
                product = _joined(BinaryOp.MUL, self.of(a), self.of(b), dtype)
                return _joined(BinaryOp.ADD, product, self.of(c), dtype)
            case _:
                return ends(x.dtype)

    def _select(self, x: Select) -> Interval | None:
        then, other = self.of(x.then), self.of(x.otherwise)
        condition = x.condition
        if isinstance(condition, Binary) and condition.op is BinaryOp.LT:
            a, b = condition.lhs, condition.rhs
            # The less, or the greater: the last one where the other may be NaN.
            low, high = then or (-math.inf, math.inf)
            if other is not None and same_leaf(x.then, a) and same_leaf(x.otherwise, b):
                return min(low, other[0]), min(high, other[1])
            if other is not None and same_leaf(x.then, b) and same_leaf(x.otherwise, a):
                return max(low, other[0]), max(high, other[1])
        return None if then is None or other is None else (min(then[0], other[0]), max(then[1], other[1]))

    def _cast(self, operand: Scalar, dtype: DType) -> Interval | None:
        found, whole = self.of(operand), ends(dtype)
        if found is None or not (dtype.is_integer or dtype.is_float):
            return whole
        if dtype.is_float:
            return _loose(found, dtype)
        assert whole is not None, "integers have ends"
        if operand.dtype.is_float and math.inf not in map(abs, found):
            found = float(math.floor(found[0])), float(math.ceil(found[1]))
        return found if whole[0] <= found[0] and found[1] <= whole[1] else whole


def ends(dtype: DType) -> Interval | None:
    """Return the least and the greatest integer of a format; None for other formats."""
    if not dtype.is_integer:
        return None
    half = 1 << (dtype.bits - 1)
    return (float(-half), float(half - 1)) if dtype.is_signed else (0.0, float(2 * half - 1))


def _joined(op: BinaryOp, a: Interval | None, b: Interval | None, dtype: DType) -> Interval | None:
    if a is None or b is None or dtype is I64:
        return ends(dtype)
    match op:
        case BinaryOp.ADD:
            made = a[0] + b[0], a[1] + b[1]
        case BinaryOp.SUB:
            made = a[0] - b[1], a[1] - b[0]
        case BinaryOp.MUL:
            products = [x * y for x in a for y in b]
            made = min(products), max(products)
        case BinaryOp.MIN:
            made = min(a[0], b[0]), min(a[1], b[1])
        case BinaryOp.MAX | BinaryOp.MAX_NUMBER:
            made = max(a[0], b[0]), max(a[1], b[1])
        case _:
            return ends(dtype)
    if any(math.isnan(x) for x in made):
        return ends(dtype)
    if dtype.is_float:
        return None if math.inf in map(abs, made) else _loose(made, dtype)
    whole = ends(dtype)
    return made if whole is not None and whole[0] <= made[0] and made[1] <= whole[1] else whole


def _loose(x: Interval, dtype: DType) -> Interval | None:
    """Return the interval of what is rounded to a float."""
    if dtype.bits < 32:
        return None
    if all(abs(e) <= _EXACT and e == math.floor(e) for e in x):
        return x
    low, high = x[0] - abs(x[0]) * _SLACK, x[1] + abs(x[1]) * _SLACK
    return (low, high) if max(abs(low), abs(high)) < 1e38 else None


def _rounded(x: Interval) -> Interval:
    return float(round(x[0])), float(round(x[1]))


def same_leaf(a: Scalar, b: Scalar) -> bool:
    """Whether two leaves are one value."""
    match a, b:
        case Name(sym=x), Name(sym=y):
            return x == y
        case Lit(value=x), Lit(value=y):
            return x == y and a.dtype is b.dtype
        case Load(buffer=x, indices=i), Load(buffer=y, indices=j):
            return x is y and i == j
        case _:
            return a is b
