"""Elementary functions in f64 whose results are rounded to f32 or to fewer bits.

An error of 2e-11 moves the border between two floats of 24 bits by 2^-11 of their distance: series end sooner
than those of f64, and a logarithm is one number, off by 2e-13, as powers multiply it by up to 100. Arguments
are numbers of f32: none is subnormal in f64, and what is beyond the range of f32 need not be right.
"""

from __future__ import annotations

import math

from inlay.codegen._math.f64 import F64Math
from inlay.codegen.llvm_types import Value

# fmt: off
_LOG = (0.6666666666737509, 0.3999999879733759, 0.2857175453591449, 0.22191400830308503,
        0.19362653714202008)
# fmt: on
_MOST = 200.0
"""Exponentials of larger numbers are no f32, of smaller ones 0; powers of two up to there are normal f64."""


class RoundedMath(F64Math):
    # fmt: off
    exp_series = (0.5, 0.16666666719021456, 0.041666666719004784, 0.008333298473121765, 0.0013888854038986412,
                  0.00019899282811157944, 2.485958707110813e-05)
    sin_series = (-0.1666666666385529, 0.008333331874710208, -0.00019840086735384846, 2.724992580305979e-06)
    cos_series = (0.0416666666643212, -0.001388888767201679, 2.480060037715673e-05, -2.730095920390147e-07)
    atan_series = (-0.3333333333144073, 0.1999999891728836, -0.14285612511370038, 0.11107495135242318,
                   -0.09028983494481471, 0.0713532508901315, -0.04043224755499772)
    asin_series = (0.16666666665495086, 0.07500000598829049, 0.044642358484883196, 0.030397634130580702,
                   0.022132443623426794, 0.019306260869368045, 0.0054431851027481075, 0.02930523970533579)
    sinh_series = (0.16666666666698407, 0.008333333317464362, 0.0001984128253011599, 2.755377026364149e-06,
                   2.545670657152382e-08)
    # fmt: on
    exp_range = (-_MOST, _MOST)
    log_range = _MOST
    half_pi = F64Math.half_pi[:2]
    has_subnormals = False

    def scale(self, x: Value, n: Value) -> Value:
        return self.mul(x, self.power_of_two(n))

    def _log_parts(self, m: Value, e: Value) -> tuple[Value, Value]:
        s = self.div(self.sub(m, 1.0), self.add(m, 1.0))
        w = self.mul(s, s)
        near = self.fma(self.mul(s, w), self.polynomial(w, _LOG), self.mul(s, 2.0))
        return self.fma(e, math.log(2.0), near), self.number(-0.0)
