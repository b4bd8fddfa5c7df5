"""Sums of a few scaled small integers in floats, and clamps after rounding, where results are the same.

    f32((i32(u8(q + 3)) - 3) * 5 + i32(x) * 7 + 2) * 0.25        q from -3 to 252, x: u8

    fma(f32(x), 1.75, fma(f32(q), 1.25, 0.5))

Every number that occurs in it is below 2^24 times a power of two, so nothing is rounded on the way, and
vectors multiply floats several times as fast as integers of 32 bits. A float that is known to be near enough
is rounded before it is clamped: machines narrow vectors of integers with the clamp of the narrow format. An
integer that fits a narrow format is not brought to it on its way to a float.

Intervals of values (`loop/intervals.py`) prove both. What is not proved stays.
"""

from __future__ import annotations

import math

from inlay.arith.dtype import F32, I32
from inlay.arith.expr import Sym
from inlay.loop.intervals import Intervals, ends, same_leaf
from inlay.loop.scalar import (
    Binary,
    BinaryOp,
    Cast,
    Intrinsic,
    IntrinsicOp,
    Lit,
    Name,
    Scalar,
    Select,
    Unary,
    UnaryOp,
)
from inlay.loop.stmt import Let, Stmt, Store
from inlay.loop.walk import map_children, map_operands, own_scalars, scalars_below, stmts_below
from inlay.machine.target import Target

_EXACT = 1 << 24
"""Integers up to it are floats of 32 bits."""
_NEAR = float(1 << 30)
"""Floats up to it are rounded to integers of 32 bits."""

Terms = tuple[tuple[Scalar, int], ...]
"""Integers and their factors."""


def exact_floats(s: Stmt, target: Target) -> Stmt:
    """Return an equal statement. Requires: no `Block`; a symbol is bound once."""
    return _Floats(has_fma=target.has_fma).stmt(s)


class _Floats:
    """Rewrites statements; keeps what names stand for."""

    def __init__(self, *, has_fma: bool) -> None:
        self._has_fma = has_fma
        self._intervals = Intervals()
        self._values: dict[Sym, Scalar] = {}
        self._clamps: set[Sym] = set()
        self._memo: dict[Scalar, Scalar] = {}

    def stmt(self, s: Stmt) -> Stmt:
        match s:
            case Store(buffer=buffer, indices=indices, value=value):
                made = self.scalar(value)
                return s if made is value else Store(buffer, indices, made)
            case Let(sym=sym, value=value, body=body):
                made = self.scalar(value)
                self._values[sym] = made
                self._intervals.bind(sym, made)
                inner = self.stmt(body)
                if sym in self._clamps and not _is_used(sym, inner):
                    return inner
                return s if made is value and inner is body else Let(sym, made, inner)
            case _:
                return map_children(s, self.stmt)

    def scalar(self, x: Scalar) -> Scalar:
        if x not in self._memo:
            self._memo[x] = self._rewritten(map_operands(x, self.scalar))
        return self._memo[x]

    def _rewritten(self, x: Scalar) -> Scalar:
        match x:
            case Binary(op=BinaryOp.MUL, lhs=Cast(operand=e), rhs=Lit(value=scale), dtype=dtype) if (
                dtype is F32 and e.dtype is I32 and _is_power(float(scale))
            ):
                return self._sum(e, float(scale)) or x
            case Cast(operand=Unary(op=UnaryOp.ROUND_EVEN, operand=clamped), dtype=dtype) if dtype is I32:
                return self._rounded_first(clamped) or x
            case Cast(operand=Cast(operand=e, dtype=narrow), dtype=dtype) if dtype is F32 and e.dtype is I32:
                whole = ends(narrow)
                is_same = whole is not None and self._intervals.within(e, *whole)
                return Cast(e, F32) if is_same else x
            case _:
                return x

    # ------------------------------------------------------------------ sums

    def _sum(self, e: Scalar, scale: float) -> Scalar | None:
        """Return a sum of integers times a power of two in floats; None where it may be rounded."""
        terms, constant = self._linear(e, 1)
        if all(abs(factor) == 1 for _, factor in terms):
            return None
        low, high, total = float(constant), float(constant), _float(constant * scale)
        for leaf, factor in terms:
            found = self._intervals.of(leaf)
            if found is None:
                return None
            parts = found[0] * factor, found[1] * factor
            low, high = low + min(parts), high + max(parts)
            if max(-low, high, *map(abs, found), *map(abs, parts)) > _EXACT:
                return None
            total = self._added(_as_float(leaf), _float(factor * scale), total)
        return total

    def _linear(self, e: Scalar, by: int) -> tuple[Terms, int]:
        """Return integers and their factors, and a constant, whose sum is an integer but for what wraps."""
        match e:
            case Lit(value=value):
                return (), int(value) * by
            case Binary(op=BinaryOp.ADD | BinaryOp.SUB as op, lhs=a, rhs=b):
                left, right = self._linear(a, by), self._linear(b, by if op is BinaryOp.ADD else -by)
                return left[0] + right[0], left[1] + right[1]
            case Binary(op=BinaryOp.MUL, lhs=a, rhs=Lit(value=value)):
                return self._linear(a, by * int(value))
            case Cast(operand=Cast(operand=inner, dtype=dtype)) if inner.dtype is I32:
                whole = ends(dtype)
                if whole is not None and self._intervals.within(inner, *whole):
                    return self._linear(inner, by)
                return ((e, by),), 0
            case _:
                return ((e, by),), 0

    def _added(self, a: Scalar, b: Scalar, c: Scalar) -> Scalar:
        if self._has_fma:
            return Intrinsic(IntrinsicOp.FMA, (a, b, c), F32)
        return Binary(BinaryOp.ADD, Binary(BinaryOp.MUL, a, b, F32), c, F32)

    # ------------------------------------------------------------------ clamps

    def _rounded_first(self, x: Scalar) -> Scalar | None:
        """Return a clamped float, rounded before it is clamped; None where that may be another integer."""
        raised = self._clamp(x, is_least=True)
        lowered = None if raised is None else self._clamp(raised[0], is_least=False)
        if raised is None or lowered is None:
            return None
        (inner, most), least = lowered, raised[1]
        if not self._intervals.within(inner, -_NEAR, _NEAR) or least > most:
            return None
        whole = Cast(Unary(UnaryOp.ROUND_EVEN, inner, F32), I32)
        at_least = Binary(BinaryOp.MAX, whole, Lit(int(least), I32), I32)
        return Binary(BinaryOp.MIN, at_least, Lit(int(most), I32), I32)

    def _clamp(self, x: Scalar, *, is_least: bool) -> tuple[Scalar, float] | None:
        """Return what a whole number is the least or the greatest value for, and that number."""
        if isinstance(x, Name):
            self._clamps.add(x.sym)
            x = self._values.get(x.sym, x)
        if not isinstance(x, Select) or not isinstance(x.condition, Binary) or x.dtype is not F32:
            return None
        condition = x.condition
        if condition.op is not BinaryOp.LT or not isinstance(x.otherwise, Lit):
            return None
        a, b, end = condition.lhs, condition.rhs, float(x.otherwise.value)
        number, inner = (a, b) if is_least else (b, a)
        if not isinstance(number, Lit) or number.value != end or abs(end) > _EXACT or end != math.floor(end):
            return None
        return (inner, end) if same_leaf(inner, x.then) or inner is x.then else None


def _is_power(x: float) -> bool:
    """Whether a number is a power of two that is no float's end."""
    return 2.0**-60 <= x <= 2.0**60 and math.frexp(x)[0] == 0.5


def _float(x: float) -> Lit:
    return Lit(x, F32)


def _as_float(leaf: Scalar) -> Scalar:
    """Return an integer as a float, without widening it before."""
    is_wide = isinstance(leaf, Cast) and leaf.operand.dtype.is_integer
    return Cast(leaf.operand if isinstance(leaf, Cast) and is_wide else leaf, F32)


def _is_used(sym: Sym, s: Stmt) -> bool:
    return any(
        isinstance(x, Name) and x.sym == sym
        for below in stmts_below(s)
        for own in own_scalars(below)
        for x in scalars_below(own)
    )
