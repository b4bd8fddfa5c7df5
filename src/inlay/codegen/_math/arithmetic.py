"""Shorthand in which elementary functions are written: arithmetic of one format and number of lanes."""

from __future__ import annotations

import math
from collections.abc import Sequence

from inlay.arith.dtype import F32, DType
from inlay.codegen.llvm_ops import Operations
from inlay.codegen.llvm_types import Value, literal
from inlay.loop.scalar import BinaryOp, UnaryOp


class Arithmetic:
    """Shorthand for one format and number of lanes; numbers may be Python floats."""

    dtype: DType
    integer: DType
    has_subnormals = True
    """Whether arguments may be subnormal."""

    def __init__(self, ops: Operations, lanes: int) -> None:
        self.ops = ops
        self.lanes = lanes

    def number(self, x: float) -> Value:
        return literal(x, self.dtype, self.lanes)

    def _value(self, x: Value | float) -> Value:
        return x if isinstance(x, Value) else self.number(x)

    def _binary(self, op: BinaryOp, a: Value | float, b: Value | float) -> Value:
        return self.ops.binary(op, self._value(a), self._value(b))

    def add(self, a: Value | float, b: Value | float) -> Value:
        return self._binary(BinaryOp.ADD, a, b)

    def sub(self, a: Value | float, b: Value | float) -> Value:
        return self._binary(BinaryOp.SUB, a, b)

    def mul(self, a: Value | float, b: Value | float) -> Value:
        return self._binary(BinaryOp.MUL, a, b)

    def div(self, a: Value | float, b: Value | float) -> Value:
        return self._binary(BinaryOp.DIV, a, b)

    def less(self, a: Value | float, b: Value | float) -> Value:
        return self._binary(BinaryOp.LT, a, b)

    def equal(self, a: Value | float, b: Value | float) -> Value:
        return self._binary(BinaryOp.EQ, a, b)

    def either(self, a: Value, b: Value) -> Value:
        return self.ops.binary(BinaryOp.OR, a, b)

    def both(self, a: Value, b: Value) -> Value:
        return self.ops.binary(BinaryOp.AND, a, b)

    def select(self, c: Value, a: Value | float, b: Value | float) -> Value:
        return self.ops.select(c, self._value(a), self._value(b))

    def fma(self, a: Value | float, b: Value | float, c: Value | float) -> Value:
        return self.ops.fma(self._value(a), self._value(b), self._value(c))

    def neg(self, a: Value) -> Value:
        return self.ops.unary(UnaryOp.NEG, a)

    def abs(self, a: Value) -> Value:
        return self.ops.unary(UnaryOp.ABS, a)

    def sqrt(self, a: Value) -> Value:
        return self.ops.unary(UnaryOp.SQRT, a)

    def copysign(self, size: Value, sign: Value) -> Value:
        return self.ops.call("copysign", self.dtype, size, sign)

    def clamp(self, x: Value, lo: float, hi: float) -> Value:
        """Limit a value; NaN stays NaN."""
        at_least = self.ops.extreme(BinaryOp.MAX, self.number(lo), x)
        return self.ops.extreme(BinaryOp.MIN, self.number(hi), at_least)

    def polynomial(self, x: Value, coefficients: Sequence[float]) -> Value:
        """Return the sum of coefficient i times x to the i, by Horner's rule."""
        total = self.number(coefficients[-1])
        for c in reversed(coefficients[:-1]):
            total = self.fma(total, x, c)
        return total

    def round(self, x: Value) -> Value:
        return self.ops.unary(UnaryOp.ROUND_EVEN, x)

    # Integers that are held in floats: adding 1.5 * 2^(digits - 1) puts them in the low bits.

    def power_of_two(self, n: Value) -> Value:
        """Return 2 to an integer in the range of normal exponents."""
        digits, bias = (23, 127) if self.dtype == F32 else (52, 1023)
        magic = 1.5 * 2.0**digits
        bits = self.ops.bitcast(self.add(n, magic + bias), self.integer)
        shift = literal(digits, self.integer, self.lanes)
        return self.ops.bitcast(self.ops.binary(BinaryOp.SHL, bits, shift), self.dtype)

    def scale(self, x: Value, n: Value) -> Value:
        """Return x times 2 to an integer, in two steps so that subnormal results round once."""
        half = self.ops.unary(UnaryOp.FLOOR, self.mul(n, 0.5))
        first = self.mul(x, self.power_of_two(half))
        return self.mul(first, self.power_of_two(self.sub(n, half)))

    def split_float(self, x: Value) -> tuple[Value, Value]:
        """Return m and e with x = m * 2^e and m from sqrt(1/2) to sqrt(2), for positive x."""
        digits, smallest, root = (
            (23, 2.0**-126, 0x3F3504F3) if self.dtype == F32 else (52, 2.0**-1022, 0x3FE6A09E667F3BCD)
        )
        tiny = self.less(x, smallest) if self.has_subnormals else None
        if tiny is not None:
            x = self.select(tiny, self.mul(x, 2.0**digits), x)
        bits = self.ops.bitcast(x, self.integer)
        shift = literal(digits, self.integer, self.lanes)
        moved = self.ops.binary(BinaryOp.SUB, bits, literal(root, self.integer, self.lanes))
        e = self.ops.binary(BinaryOp.SHR, moved, shift)
        m = self.ops.binary(BinaryOp.SUB, bits, self.ops.binary(BinaryOp.SHL, e, shift))
        exponent = self.ops.cast(e, self.dtype)
        if tiny is not None:
            exponent = self.select(tiny, self.sub(exponent, float(digits)), exponent)
        return self.ops.bitcast(m, self.dtype), exponent

    def log_special(self, x: Value, result: Value) -> Value:
        """Put in the logarithm of zero, infinity, negative numbers and NaN."""
        positive = self.less(0.0, x)
        finite = self.less(x, math.inf)
        # What is neither ordinary is x itself for infinity and NaN.
        result = self.select(self.both(positive, finite), result, x)
        result = self.select(self.less(x, 0.0), math.nan, result)
        return self.select(self.equal(x, 0.0), -math.inf, result)
