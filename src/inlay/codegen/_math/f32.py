"""Elementary functions of f32 on which networks spend time."""

from __future__ import annotations

import math

from inlay.arith.dtype import F32, I32
from inlay.codegen._math import avx512
from inlay.codegen._math.arithmetic import Arithmetic
from inlay.codegen.llvm_types import Value, literal
from inlay.loop.scalar import EXP_RAISED, BinaryOp

# fmt: off
_EXP = (0.5, 0.16666576266288757, 0.04166655242443085, 0.00836323294788599, 0.0013926250394433737)
# 2 to the power x for 0 <= x < 1 and for |x| <= 1/2, 1 at 0: off by 8.2e-8 and 9.2e-8 of it at most.
_EXP2_ABOVE = (1.0, 0.6931513118002685, 0.24016445020137828, 0.05579991294653963, 0.009017030528361432,
                 0.0018671299794259571)
_EXP2_NEAR = (1.0, 0.6931469775997704, 0.24022242085412834, 0.055507337420642726, 0.009671512639549813,
                0.0013264727584796877)
_LOG = (0.3333333134651184, -0.2499999701976776, 0.20000715553760529, -0.1666780263185501,
          0.14249058067798615, -0.12425687164068222, 0.11685419827699661, -0.11479733884334564,
          0.06971611827611923)
# erf(x) / x for |x| up to 3.8, as a quotient of polynomials in the square of x.
_ERF = (1.1283791065216064, 0.18360084295272827, 0.050766874104738235, 0.0033475898671895266,
          0.0002287471725139767)
_ERF_BELOW = (1.0, 0.49604472517967224, 0.11034250259399414, 0.01394567172974348, 0.0010056763421744108,
                2.3711130779702216e-05, -1.2016943173875916e-07)
# fmt: on

_LOG2E = 1.4426950408889634
_HELD = 1.5 * 2.0**23  # added to a small integer, it puts it in the low bits of an f32
_BIAS = 127.0  # of exponents
_LN2_HIGH, _LN2_LOW = 0.693359375, -0.00021219444170128554


class F32Math(Arithmetic):
    dtype = F32
    integer = I32

    def _scales(self) -> bool:
        return self.ops.has_scalef and avx512.fits(self.lanes)

    def exp(self, x: Value) -> Value:
        x = self.ops.extreme(BinaryOp.MAX, self.number(-105.0), x)
        if self._scales():
            # No upper limit: the polynomial, of even degree, is positive wherever it is a number, and what is
            # no number times 2 to infinity is infinity.
            _, n, r = self._reduce(x)
            return avx512.scaled(self.ops, self.polynomial(r, (1.0, 1.0, *_EXP)), n)
        x = self.ops.extreme(BinaryOp.MIN, self.number(100.0), x)
        held, _, r = self._reduce(x, 2 * _BIAS)
        p = self.polynomial(r, (1.0, 1.0, *_EXP))
        # In two steps, so that subnormal results round once; the first is by about half of the integer.
        half = self.ops.bitcast(self.fma(x, _LOG2E / 2, _HELD + _BIAS), I32)
        rest = self.ops.binary(BinaryOp.SUB, self.ops.bitcast(held, I32), half)
        return self.mul(self.mul(p, self._power(half)), self._power(rest))

    # Where an error of |x| 2^-23 of the result is no matter, one step of reduction is enough, to powers of 2:
    #
    # * exponentials of differences that are divided by their sum (`exp_raised`): what rounding the difference
    #   did is of that size too;
    # * sigmoid: of 1 it is at most 2^-25.
    #
    # A factor that is a power of 2 as well costs nothing, and keeps results from being subnormal or infinite.

    def exp_raised(self, x: Value) -> Value:
        """Return `EXP_RAISED` times the exponential of what is at most 0."""
        if self.ops.has_fractions:
            return self._exp2(self.mul(x, _LOG2E), EXP_RAISED)
        x = self.ops.extreme(BinaryOp.MAX, self.number(-105.0), x)
        return self.mul(*self._exp2_parts(x, _LOG2E, EXP_RAISED))

    def sigmoid(self, x: Value) -> Value:
        factor = 2.0**-32
        if self.ops.has_fractions:
            below = self.add(self._exp2(self.mul(x, -_LOG2E), factor), factor)
        else:
            below = self.fma(*self._exp2_parts(self.clamp(x, -105.0, 30.0), -_LOG2E, factor), factor)
        return self.div(factor, below)

    def _exp2(self, t: Value, factor: float) -> Value:
        """Return a factor times 2^t for any t (`Operations.has_fractions`): the fraction of infinity is 0."""
        p = self.polynomial(avx512.fraction(self.ops, t), [c * factor for c in _EXP2_ABOVE])
        return avx512.scaled(self.ops, p, t)

    def _exp2_parts(self, x: Value, times: float, factor: float) -> tuple[Value, Value]:
        """Return two whose product is a factor, a power of 2, times 2^(x * times)."""
        held_zero = _HELD + _BIAS + math.log2(factor)
        held = self.fma(x, times, held_zero)
        r = self.fma(x, times, self.sub(held_zero, held))
        return self.polynomial(r, _EXP2_NEAR), self._power(self.ops.bitcast(held, I32))

    def _reduce(self, x: Value, bias: float = 0.0) -> tuple[Value, Value, Value]:
        """Return a float that holds n + bias in its low bits, n, and r with exp(x) = 2^n * exp(r)."""
        held = self.fma(x, _LOG2E, _HELD + bias)
        n = self.sub(held, _HELD + bias)
        r = self.fma(n, -_LN2_HIGH, x)
        return held, n, self.fma(n, -_LN2_LOW, r)

    def _power(self, held: Value) -> Value:
        """Return the power of two whose exponent, with its bias, is in the low bits of an integer."""
        return self.ops.bitcast(self.ops.binary(BinaryOp.SHL, held, literal(23, I32, self.lanes)), F32)

    def _expm1(self, x: Value) -> Value:
        """exp(x) - 1 for -40 < x <= 0."""
        held, _, r = self._reduce(x, _BIAS)
        p = self.fma(self.mul(r, r), self.polynomial(r, _EXP), r)
        two = self._power(self.ops.bitcast(held, I32))
        return self.fma(p, two, self.sub(two, 1.0))

    def log(self, x: Value) -> Value:
        m, e = self.split_float(x)
        f = self.sub(m, 1.0)
        square = self.mul(f, f)
        p = self.mul(self.mul(square, f), self.polynomial(f, _LOG))
        tail = self.fma(e, _LN2_LOW, self.fma(square, -0.5, p))
        return self.log_special(x, self.fma(e, _LN2_HIGH, self.add(f, tail)))

    def tanh(self, x: Value) -> Value:
        t = self._expm1(self.clamp(self.mul(self.abs(x), -2.0), -40.0, 0.0))
        return self.copysign(self.div(self.neg(t), self.add(t, 2.0)), x)

    def erf(self, x: Value) -> Value:
        x = self.clamp(x, -3.8, 3.8)
        square = self.mul(x, x)
        top = self.mul(x, self.polynomial(square, _ERF))
        return self.clamp(self.div(top, self.polynomial(square, _ERF_BELOW)), -1.0, 1.0)
