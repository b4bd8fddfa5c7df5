"""Elementary functions of f64; those of narrower formats that have no code of their own, too."""

from __future__ import annotations

import math
from collections.abc import Sequence

from inlay.arith.dtype import BOOL, F64, I64
from inlay.base.diagnostics import InternalError
from inlay.codegen._math.arithmetic import Arithmetic
from inlay.codegen.llvm_builder import Carried
from inlay.codegen.llvm_types import Value, literal
from inlay.loop.scalar import EXP_RAISED, BinaryOp, IntrinsicOp, UnaryOp

# fmt: off
_EXP = (0.5, 0.16666666666666666, 0.04166666666666668, 0.008333333333333333, 0.0013888888888879004,
          0.00019841269841263252, 2.480158733663095e-05, 2.7557319247344507e-06, 2.755726307730941e-07,
          2.5052070959803662e-08, 2.091821231913398e-09, 1.6086677666787362e-10)
_LOG = (0.4, 0.2857142857142937, 0.22222222221654733, 0.1818181833565416, 0.15384594934597917,
          0.13334806212100603, 0.11706195689881364, 0.11723603622905411)
_SIN = (-0.16666666666666666, 0.008333333333333331, -0.00019841269841265017, 2.755731921930192e-06,
          -2.5052106219521895e-08, 1.6058529572267877e-10, -7.586576588171073e-13)
_COS = (0.041666666666666664, -0.0013888888888888887, 2.4801587301584618e-05, -2.7557319221382114e-07,
          2.087675578389404e-09, -1.1470459749675607e-11, 4.745804889760674e-14)
_ATAN = (-0.3333333333333333, 0.2, -0.1428571428571428, 0.11111111111109934, -0.09090909090802725,
           0.07692307686514771, -0.06666666460327221, 0.05882347888387368, -0.052630701587544064,
           0.04760805375620758, -0.04337817614380778, 0.03934035795359771, -0.0339352219463414,
           0.024363577253520646, -0.010313893151444422)
_ASIN = (0.16666666666666666, 0.075, 0.04464285714285733, 0.03038194444441584, 0.02237215909318402,
           0.017352764313537678, 0.013964847219599397, 0.011551724720418703, 0.009762808586751926,
           0.00837651731225761, 0.0074304052462118506, 0.005701520344814615, 0.009209741133345363,
           -0.006472730868844844, 0.03155316202061201, -0.035211615098485645, 0.033713373218838424)
_SINH = (0.16666666666666666, 0.008333333333333333, 0.00019841269841269773, 2.755731922404061e-06,
           2.5052108363972185e-08, 1.6059048410081293e-10, 7.646624280324513e-13, 2.8445596736423237e-15)
_ERF = (1.1283791670955126, -0.37612638903183754, 0.1128379167095512, -0.02686617064512984,
          0.0052239776254232985, -0.000854832702193483, 0.00012055332902888736, -1.4925647567519332e-05,
          1.6462045441468418e-06, -1.6364642158167616e-07, 1.4792401209404813e-08, -1.216456005728345e-09,
          8.709045129053106e-11, -4.230945824295338e-12)
# exp(x*x) * erfc(x) * (1 + 2x) over t = (x - 2) / (x + 2).
_ERFC = (1.2769783815525286, -0.09276382658574632, -0.1660303976152931, 0.16405128003352662,
           -0.05422000099151099, -0.008034015089360034, 0.008722653849325262, 0.001271339229045147,
           -0.0014568133573532682, -0.00045434622098302745, 0.0002063612681763108, 0.00015110176248132268,
           -1.4933939613516438e-06, -3.682535988904499e-05, -1.3361140379066396e-05, 4.985507670902402e-06,
           4.384777289214579e-06)
# fmt: on

_LOG2E = 1.4426950408889634
_LN2_HIGH, _LN2_LOW = 0.6931471803691238, 1.9082149292705877e-10
_PIO2 = (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33)
_TWO_THIRDS_LOW = 3.700743415417188e-17


class F64Math(Arithmetic):
    dtype = F64
    integer = I64

    exp_series: Sequence[float] = _EXP
    sin_series: Sequence[float] = _SIN
    cos_series: Sequence[float] = _COS
    atan_series: Sequence[float] = _ATAN
    asin_series: Sequence[float] = _ASIN
    sinh_series: Sequence[float] = _SINH
    exp_range: tuple[float, float] = (-760.0, 720.0)
    """Arguments whose exponentials are neither 0 nor infinite are in it."""
    log_range: float = 800.0
    """Logarithms of powers that are neither 0 nor infinite are smaller."""
    half_pi: Sequence[float] = _PIO2
    """To be subtracted one after the other."""

    def apply(self, op: IntrinsicOp, args: Sequence[Value]) -> Value:
        if op is IntrinsicOp.POW:
            return self.pow(args[0], args[1])
        functions = {
            IntrinsicOp.EXP: self.exp,
            IntrinsicOp.EXP_RAISED: self.exp_raised,
            IntrinsicOp.LOG: self.log,
            IntrinsicOp.SIN: self.sin,
            IntrinsicOp.COS: self.cos,
            IntrinsicOp.TAN: self.tan,
            IntrinsicOp.ASIN: self.asin,
            IntrinsicOp.ACOS: self.acos,
            IntrinsicOp.ATAN: self.atan,
            IntrinsicOp.SINH: self.sinh,
            IntrinsicOp.COSH: self.cosh,
            IntrinsicOp.TANH: self.tanh,
            IntrinsicOp.ASINH: self.asinh,
            IntrinsicOp.ACOSH: self.acosh,
            IntrinsicOp.ATANH: self.atanh,
            IntrinsicOp.ERF: self.erf,
            IntrinsicOp.SIGMOID: self.sigmoid,
        }
        if op not in functions:
            raise InternalError(f"no code for {op}", where="codegen.llvm_math")
        return functions[op](args[0])

    # ------------------------------------------------------------------ exponentials

    def exp(self, x: Value) -> Value:
        n, p = self._exp_parts(self.clamp(x, *self.exp_range))
        return self.scale(self.add(p, 1.0), n)

    def exp_raised(self, x: Value) -> Value:
        return self.mul(self.exp(x), EXP_RAISED)

    def _exp_parts(self, x: Value) -> tuple[Value, Value]:
        """Return n and p with exp(x) = 2^n * (1 + p)."""
        n = self.round(self.mul(x, _LOG2E))
        r = self.fma(n, -_LN2_LOW, self.fma(n, -_LN2_HIGH, x))
        return n, self.fma(self.mul(r, r), self.polynomial(r, self.exp_series), r)

    def _expm1(self, x: Value) -> Value:
        """exp(x) - 1 for |x| < 700."""
        n, p = self._exp_parts(x)
        two = self.power_of_two(n)
        return self.fma(p, two, self.sub(two, 1.0))

    def sigmoid(self, x: Value) -> Value:
        e = self.exp(self.neg(self.abs(x)))
        top = self.select(self.less(x, 0.0), e, 1.0)
        return self.div(top, self.add(e, 1.0))

    def tanh(self, x: Value) -> Value:
        t = self._expm1(self.clamp(self.mul(self.abs(x), -2.0), -80.0, 0.0))
        return self.copysign(self.div(self.neg(t), self.add(t, 2.0)), x)

    def sinh(self, x: Value) -> Value:
        size = self.abs(x)
        square = self.mul(x, x)
        near = self.fma(self.mul(size, square), self.polynomial(square, self.sinh_series), size)
        # Half of exp(x), as a square of exp(x/2): sinh overflows later than exp.
        root = self.exp(self.mul(size, 0.5))
        half = self.mul(self.mul(root, 0.5), root)
        e = self.exp(self.neg(size))
        far = self.fma(e, -0.5, half)
        return self.copysign(self.select(self.less(size, 1.0), near, far), x)

    def cosh(self, x: Value) -> Value:
        size = self.abs(x)
        root = self.exp(self.mul(size, 0.5))
        return self.fma(self.exp(self.neg(size)), 0.5, self.mul(self.mul(root, 0.5), root))

    # ------------------------------------------------------------------ logarithms

    def _log_parts(self, m: Value, e: Value) -> tuple[Value, Value]:
        """Return log(m * 2^e) as a sum of two, good to 2^-62 or so.

        log(m) = 2s + s^3 (2/3 + s^2 P(s^2)) with s = (m - 1) / (m + 1); what is larger than a
        rounding error of the sum is kept in two parts.
        """
        f, t = self.sub(m, 1.0), self.add(m, 1.0)
        t_low = self.sub(m, self.sub(t, 1.0))
        s = self.div(f, t)
        s_low = self.div(self.sub(self.fma(self.neg(s), t, f), self.mul(s, t_low)), t)
        w = self.mul(s, s)
        w_low = self.fma(self.mul(s, 2.0), s_low, self.fma(s, s, self.neg(w)))
        inner = self.fma(w, self.polynomial(w, _LOG), _TWO_THIRDS_LOW)
        c = self.add(inner, 2.0 / 3.0)
        c_low = self.sub(inner, self.sub(c, 2.0 / 3.0))
        cube = self.mul(s, w)
        cube_low = self.add(self.fma(s, w, self.neg(cube)), self.fma(s, w_low, self.mul(s_low, w)))
        term = self.mul(cube, c)
        term_low = self.add(self.fma(cube, c, self.neg(term)), self.fma(cube, c_low, self.mul(cube_low, c)))
        high, low = self._two_sum(self.mul(s, 2.0), term)
        low = self.add(low, self.add(self.mul(s_low, 2.0), term_low))
        scaled = self.mul(e, _LN2_HIGH)
        total, rest = self._two_sum(scaled, high)
        return self._two_sum(total, self.add(rest, self.fma(e, _LN2_LOW, low)))

    def _two_sum(self, a: Value, b: Value) -> tuple[Value, Value]:
        """Return the rounded sum and its error (Knuth)."""
        total = self.add(a, b)
        back = self.sub(total, a)
        return total, self.add(self.sub(a, self.sub(total, back)), self.sub(b, back))

    def log(self, x: Value) -> Value:
        high, low = self._log_parts(*self.split_float(x))
        return self.log_special(x, self.add(high, low))

    def log1p(self, x: Value) -> Value:
        """log(1 + x), right also where 1 + x rounds x away."""
        u = self.add(x, 1.0)
        lost = self.div(self.sub(x, self.sub(u, 1.0)), u)
        near = self.equal(u, 1.0)
        result = self.add(self.log(u), self.select(self.less(u, math.inf), lost, 0.0))
        return self.select(near, x, result)

    def asinh(self, x: Value) -> Value:
        size = self.abs(x)
        large = self.less(2.0**28, size)
        square = self.mul(size, size)
        root = self.sqrt(self.add(square, 1.0))
        small = self.log1p(self.add(size, self.div(square, self.add(root, 1.0))))
        far = self.add(self.log(size), math.log(2.0))
        return self.copysign(self.select(large, far, small), x)

    def acosh(self, x: Value) -> Value:
        t = self.sub(x, 1.0)
        near = self.log1p(self.add(t, self.sqrt(self.fma(t, t, self.mul(t, 2.0)))))
        far = self.add(self.log(x), math.log(2.0))
        result = self.select(self.less(2.0**28, x), far, near)
        return self.select(self.less(x, 1.0), math.nan, result)

    def atanh(self, x: Value) -> Value:
        size = self.abs(x)
        ratio = self.div(self.mul(size, 2.0), self.sub(1.0, size))
        result = self.mul(self.log1p(ratio), 0.5)
        return self.copysign(self.select(self.less(1.0, size), math.nan, result), x)

    def rsqrt(self, x: Value) -> Value:
        return self.div(1.0, self.sqrt(x))

    def pow(self, x: Value, y: Value) -> Value:
        size = self.abs(x)
        ordinary = self.both(self.less(0.0, size), self.less(size, math.inf))
        high, low = self._log_parts(*self.split_float(size))
        high = self.select(ordinary, high, self.log_special(size, high))
        low = self.select(ordinary, low, 0.0)
        product = self.mul(y, high)
        error = self.fma(y, low, self.fma(y, high, self.neg(product)))
        bounded = self.clamp(product, -self.log_range, self.log_range)
        inside = self.equal(bounded, product)
        n, p = self._exp_parts(bounded)
        grown = self.add(p, 1.0)
        grown = self.fma(grown, self.select(inside, error, 0.0), grown)
        power = self.scale(grown, n)
        return self._pow_special(x, y, power)

    def _pow_special(self, x: Value, y: Value, power: Value) -> Value:
        whole = self.equal(self.ops.unary(UnaryOp.FLOOR, y), y)
        halved = self.mul(y, 0.5)
        odd = self.both(whole, self.ops.compare(BinaryOp.NE, self.ops.unary(UnaryOp.FLOOR, halved), halved))
        signed = self.select(odd, self.copysign(power, x), power)
        negative = self.less(x, 0.0)
        no_root = self.both(
            negative,
            self.both(
                self.less(-math.inf, x), self.ops.binary(BinaryOp.XOR, whole, literal(1, BOOL, self.lanes))
            ),
        )
        result = self.select(no_root, math.nan, signed)
        infinite = self.equal(self.abs(y), math.inf)
        unit = self.both(self.equal(self.abs(x), 1.0), infinite)
        one = self.either(self.equal(x, 1.0), self.either(self.equal(y, 0.0), unit))
        return self.select(one, 1.0, result)

    # ------------------------------------------------------------------ trigonometry

    def _quadrant(self, x: Value) -> tuple[Value, Value]:
        """Return the nearest multiple n of pi/2, as an integer, and x - n * pi/2.

        Up to 2^30 a multiple has few enough digits for pi/2 in parts. Where a lane is beyond
        that, a helper reduces with as many digits of pi as it takes.
        """
        n = self.round(self.mul(x, 2.0 / math.pi))
        r = x
        for part in self.half_pi:
            r = self.fma(n, -part, r)
        bits = self.ops.bitcast(self.add(n, 1.5 * 2.0**52), I64)
        large = self.less(2.0**30, self.abs(x))
        quick = [Carried(bits.type, bits.text), Carried(r.type, r.text)]

        def exact() -> list[Carried]:
            safe = self.select(large, x, 2.0**30)
            some_bits, some_r = self._reduce_lanes(safe)
            exact_bits = self.ops.select(large, some_bits, bits)
            exact_r = self.select(large, some_r, r)
            return [Carried(bits.type, exact_bits.text), Carried(r.type, exact_r.text)]

        any_large = self.ops.any_lane(large)
        merged = self.ops.builder.branch(any_large.text, exact, lambda: quick)
        return Value(merged[0], I64, self.lanes), Value(merged[1], F64, self.lanes)

    def _reduce_lanes(self, x: Value) -> tuple[Value, Value]:
        self.ops.helpers.add("reduce")
        emit = self.ops.builder
        bits, r = Value("poison", I64, self.lanes), Value("poison", F64, self.lanes)
        for lane in range(max(self.lanes, 1)):
            one = self.ops.extract(x, lane) if self.lanes else x
            pair = emit.pure(f"call {{ double, i64 }} @inlay.reduce({one.typed})", (one.text,))
            left = Value(emit.pure(f"extractvalue {{ double, i64 }} {pair}, 0", (pair,)), F64)
            count = Value(emit.pure(f"extractvalue {{ double, i64 }} {pair}, 1", (pair,)), I64)
            if not self.lanes:
                return count, left
            bits, r = self.ops.insert(bits, count, lane), self.ops.insert(r, left, lane)
        return bits, r

    def _sin_cos(self, x: Value) -> tuple[Value, Value, Value]:
        """Return the quadrant, and sine and cosine of what is left."""
        quadrant, r = self._quadrant(x)
        w = self.mul(r, r)
        sine = self.fma(self.mul(r, w), self.polynomial(w, self.sin_series), r)
        cosine = self.fma(self.mul(w, w), self.polynomial(w, self.cos_series), self.fma(w, -0.5, 1.0))
        return quadrant, sine, cosine

    def _bit(self, quadrant: Value, mask: int) -> Value:
        found = self.ops.binary(BinaryOp.AND, quadrant, literal(mask, I64, self.lanes))
        return self.ops.compare(BinaryOp.NE, found, literal(0, I64, self.lanes))

    def sin(self, x: Value) -> Value:
        quadrant, sine, cosine = self._sin_cos(x)
        value = self.select(self._bit(quadrant, 1), cosine, sine)
        result = self.select(self._bit(quadrant, 2), self.neg(value), value)
        return self.select(self.equal(x, 0.0), x, result)

    def cos(self, x: Value) -> Value:
        quadrant, sine, cosine = self._sin_cos(x)
        value = self.select(self._bit(quadrant, 1), sine, cosine)
        moved = self.ops.add(quadrant, literal(1, I64, self.lanes))
        return self.select(self._bit(moved, 2), self.neg(value), value)

    def tan(self, x: Value) -> Value:
        quadrant, sine, cosine = self._sin_cos(x)
        odd = self._bit(quadrant, 1)
        top = self.select(odd, self.neg(cosine), sine)
        result = self.div(top, self.select(odd, sine, cosine))
        return self.select(self.equal(x, 0.0), x, result)

    def atan(self, x: Value) -> Value:
        size = self.abs(x)
        middle, large = self.less(0.4142135623730951, size), self.less(2.414213562373095, size)
        top = self.select(large, -1.0, self.select(middle, self.sub(size, 1.0), size))
        bottom = self.select(large, size, self.select(middle, self.add(size, 1.0), 1.0))
        t = self.div(top, bottom)
        w = self.mul(t, t)
        base = self.select(large, _PIO2[0], self.select(middle, _PIO2[0] / 2, 0.0))
        rest = self.select(large, _PIO2[1], self.select(middle, _PIO2[1] / 2, 0.0))
        series = self.fma(self.mul(t, w), self.polynomial(w, self.atan_series), rest)
        return self.copysign(self.add(base, self.add(t, series)), x)

    def _asin_parts(self, size: Value) -> tuple[Value, Value, Value]:
        """Return whether size > 1/2, and t and asin(t) - t, with t = size or sqrt((1 - size)/2)."""
        large = self.less(0.5, size)
        half = self.mul(self.sub(1.0, size), 0.5)
        w = self.select(large, half, self.mul(size, size))
        t = self.select(large, self.sqrt(half), size)
        return large, t, self.mul(self.mul(t, w), self.polynomial(w, self.asin_series))

    def asin(self, x: Value) -> Value:
        large, t, rest = self._asin_parts(self.abs(x))
        far = self.add(self.fma(t, -2.0, _PIO2[0]), self.fma(rest, -2.0, _PIO2[1]))
        return self.copysign(self.select(large, far, self.add(t, rest)), x)

    def acos(self, x: Value) -> Value:
        large, t, rest = self._asin_parts(self.abs(x))
        twice = self.mul(self.add(t, rest), 2.0)
        positive = twice
        negative = self.add(self.sub(2 * _PIO2[0], twice), 2 * _PIO2[1])
        far = self.select(self.less(x, 0.0), negative, positive)
        signed = self.copysign(self.add(t, rest), x)
        near = self.add(self.sub(_PIO2[0], signed), _PIO2[1])
        return self.select(large, far, near)

    def erf(self, x: Value) -> Value:
        size = self.abs(x)
        near = self.mul(size, self.polynomial(self.mul(x, x), _ERF))
        far_x = self.ops.extreme(BinaryOp.MIN, self.number(6.0), size)
        t = self.div(self.sub(far_x, 2.0), self.add(far_x, 2.0))
        decay = self.exp(self.neg(self.mul(far_x, far_x)))
        tail = self.div(self.polynomial(t, _ERFC), self.fma(far_x, 2.0, 1.0))
        far = self.fma(self.neg(decay), tail, 1.0)
        return self.copysign(self.select(self.less(size, 1.0), near, far), x)
