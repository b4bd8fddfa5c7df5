"""Elementary functions as vector code: no calls, no tables, any number of lanes.

Each function reduces its argument to a small interval, evaluates a polynomial there, and undoes the
reduction. Polynomials interpolate at Chebyshev nodes, computed with 60 digits; constants that are
subtracted in steps (pi/2, log 2) are split so that each step is exact.

`exp`, `log`, `tanh`, `erf` and `sigmoid` have their own f32 code, because networks spend time in
them. Every other function of f32 (and of the 16-bit formats) is computed in f64 and rounded, which
makes it accurate to half a unit in the last place at the price of twice the width; series end where
rounding hides the rest. Accuracy is tested in `tests/unit/codegen/test_math.py`, where the table of bounds
is.

Special values are those of IEEE 754 section 9.2 (and of NumPy); subnormal results are not flushed.

Sources: Cody and Waite, "Software Manual for the Elementary Functions"; Muller, "Elementary
Functions"; Schonfelder 1978 for the form of erfc.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from inlay.arith.dtype import BOOL, F32, F64
from inlay.base.diagnostics import InternalError
from inlay.codegen._math.f32 import F32Math
from inlay.codegen._math.f64 import F64Math
from inlay.codegen._math.rounded import RoundedMath
from inlay.codegen.llvm_ops import Operations
from inlay.codegen.llvm_types import Value, literal
from inlay.loop.scalar import BinaryOp, IntrinsicOp


class Math:
    """Writes elementary functions through `Operations`."""

    def __init__(self, ops: Operations) -> None:
        self.ops = ops

    def apply(self, op: IntrinsicOp, args: Sequence[Value]) -> Value:
        """Return a function of values, in their format."""
        x = args[0]
        if op is IntrinsicOp.IS_NAN:
            return self.ops.pure(f"fcmp uno {x.typed}, {x.text}", BOOL, x.lanes, x)
        if op is IntrinsicOp.IS_INF:
            size = self.ops.call("fabs", x.dtype, x)
            return self.ops.compare(BinaryOp.EQ, size, literal(math.inf, x.dtype, x.lanes))
        if not x.dtype.is_float:
            raise InternalError(f"{op} of {x.dtype}", where="codegen.llvm_math")
        if op is IntrinsicOp.RSQRT:
            # One rounding of each step in f64 leaves the last place of f32 right.
            return self._in_f64(args, lambda f, a: f.rsqrt(a[0]))
        native = {
            IntrinsicOp.EXP: F32Math.exp,
            IntrinsicOp.EXP_RAISED: F32Math.exp_raised,
            IntrinsicOp.LOG: F32Math.log,
            IntrinsicOp.TANH: F32Math.tanh,
            IntrinsicOp.ERF: F32Math.erf,
            IntrinsicOp.SIGMOID: F32Math.sigmoid,
        }
        if x.dtype.bits <= 32 and op in native:
            wide = Value(x.text, F32, x.lanes)
            result = native[op](F32Math(self.ops, x.lanes), wide)
            return self.ops.rounded(Value(result.text, x.dtype, x.lanes))
        return self._in_f64(args, lambda f, a: f.apply(op, a))

    def _in_f64(self, args: Sequence[Value], run: Callable[[F64Math, list[Value]], Value]) -> Value:
        dtype = args[0].dtype
        wide = [self.ops.cast(a, F64) for a in self.ops.unify(*args)]
        functions = RoundedMath if dtype.bits <= F32.bits else F64Math
        return self.ops.cast(run(functions(self.ops, wide[0].lanes), wide), dtype)
