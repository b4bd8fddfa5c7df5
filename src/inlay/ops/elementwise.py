"""Element-wise operators: arithmetic, logic, comparison, select, cast.

All of several operands broadcast (NumPy rules, aligned at the last dims; see `_rules.broadcast`).
Operands of one call have one element type. `minimum` and `maximum` propagate NaN.
`activations` has those that networks put between layers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from inlay.arith.dtype import ALL, BF16, BOOL, F16, F32, F64, I64, U8, DType, from_numpy
from inlay.arith.expr import Int
from inlay.ir.op import NoAttrs, TypeContext
from inlay.ir.types import TensorType
from inlay.loop import te
from inlay.loop.scalar import BinaryOp, IntrinsicOp, UnaryOp
from inlay.loop.te import ScalarValue
from inlay.ops import _rules as rules
from inlay.ops._build import Array, call, element, pointwise, saturate, saturate_array, widen
from inlay.ops._define import Cost, FusionPattern, OpDef, Sample, define
from inlay.ops._pointwise import binary, np_erf, predicate, scalar_binary, unary
from inlay.ops._rules import BOOLS, ELEMENTS, INTEGERS, NUMBERS, Types
from inlay.ops._samples import edges, noise

# --------------------------------------------------------------------------- division


def _total(
    divide: Callable[[ScalarValue, ScalarValue], ScalarValue],
    by_minus_one: Callable[[ScalarValue], ScalarValue],
) -> Callable[[ScalarValue, ScalarValue], ScalarValue]:
    """Make integer division total: 0 by a divisor of 0, and no overflow at the least integer."""

    def scalar(x: ScalarValue, y: ScalarValue) -> ScalarValue:
        zero = y.equals(0)
        if not x.dtype.is_signed:
            return te.select(zero, 0, divide(x, te.select(zero, 1, y)))
        minus = y.equals(-1)
        safe = te.select(zero | minus, 1, y)
        return te.select(zero, 0, te.select(minus, by_minus_one(x), divide(x, safe)))

    return scalar


def _zero(x: ScalarValue) -> ScalarValue:
    return te.const(0, x.dtype)


def _div(x: ScalarValue, y: ScalarValue) -> ScalarValue:
    return x / y if x.dtype.is_float else _total(te.trunc_div, lambda v: -v)(x, y)


def _floor_div(x: ScalarValue, y: ScalarValue) -> ScalarValue:
    if x.dtype.is_float:
        return te.unary(UnaryOp.FLOOR, x / y)
    return _total(lambda a, b: a // b, lambda v: -v)(x, y)


def _rem(x: ScalarValue, y: ScalarValue) -> ScalarValue:
    return te.trunc_rem(x, y) if x.dtype.is_float else _total(te.trunc_rem, _zero)(x, y)


def _mod(x: ScalarValue, y: ScalarValue) -> ScalarValue:
    if x.dtype.is_float:
        r = te.trunc_rem(x, y)
        return te.select(r.differs(0) & (r < 0).differs(y < 0), r + y, r)
    return _total(lambda a, b: a % b, _zero)(x, y)


def _np_div(x: Array, y: Array) -> Array:
    if x.dtype.kind == "f":
        return x / y
    # NumPy floors; truncation differs by one where the signs differ and there is a remainder.
    quotient = np.asarray(np.floor_divide(x, y))
    if x.dtype.kind == "u":
        return quotient
    inexact = quotient * y != x
    whole = quotient + (inexact & ((x < 0) != (y < 0)))
    return np.asarray(np.where(y == 0, x.dtype.type(0), whole), x.dtype)


def _np_floor_div(x: Array, y: Array) -> Array:
    return np.floor(x / y) if x.dtype.kind == "f" else np.floor_divide(x, y)


def _np_pow(x: Array, y: Array) -> Array:
    # For a scalar exponent of 0.5 NumPy takes the square root, which is NaN of -inf.
    base, exponent = (v.copy() for v in np.broadcast_arrays(x, y))
    if base.dtype.kind != "i":
        return np.power(base, exponent)
    unit = np.where(base == -1, np.where(exponent % 2, -1, 1), base == 1)
    return np.where(exponent < 0, unit, np.power(base, np.maximum(exponent, 0)))


def _np_mod(x: Array, y: Array) -> Array:
    if x.dtype.kind != "f":
        return np.mod(x, y)
    r = np.asarray(np.fmod(x, y))
    return np.where((r != 0) & ((r < 0) != (y < 0)), r + y, r)


# --------------------------------------------------------------------------- magnitude


def _sign(x: ScalarValue) -> ScalarValue:
    if not x.dtype.is_signed:
        return te.select(x.equals(0), 0, te.const(1, x.dtype))
    return te.select(x > 0, 1, te.select(x < 0, -1, x))


def _abs(x: ScalarValue) -> ScalarValue:
    return te.unary(UnaryOp.ABS, x) if x.dtype.is_signed else x


# --------------------------------------------------------------------------- shifts


def _shift(name: str, doc: str, op: BinaryOp, numpy: Callable[[Array, Array], Array]) -> OpDef:
    def wide(x: Array, y: Array) -> Array:
        width = x.dtype.itemsize * 8
        out = np.asarray(numpy(x, np.where((y >= 0) & (y < width), y, 0).astype(x.dtype)))
        gone = np.where(x < 0, -1, 0).astype(x.dtype) if op is BinaryOp.SHR else x.dtype.type(0)
        return np.where((y >= 0) & (y < width), out, gone)

    def scalar(x: ScalarValue, y: ScalarValue) -> ScalarValue:
        if not y.dtype.is_signed:
            return te.binary(op, x, y)
        width = y.dtype.bits
        return te.binary(op, x, te.select(y < 0, te.const(width, y.dtype), y))

    return binary(name, doc, scalar, wide, domain=INTEGERS)


# --------------------------------------------------------------------------- select, cast


@dataclass(frozen=True, slots=True)
class CastAttrs:
    """`dtype`: element type of the result."""

    dtype: DType


def _select_rule(ctx: TypeContext, attrs: NoAttrs, args: Types) -> TensorType:
    condition = rules.tensor(ctx, args, 0, BOOLS)
    x, y = rules.tensors(ctx, args[1:])
    return TensorType(rules.broadcast(ctx, (condition.shape, x.shape, y.shape)), x.dtype)


def _select_reference(a: NoAttrs, c: Array, x: Array, y: Array) -> Array:
    return np.where(c, x, y).astype(x.dtype)


def _select_compute(a: NoAttrs, operands: Sequence[te.Tensor], result: TensorType) -> te.Tensor:
    def body(*i: Int) -> ScalarValue:
        c, x, y = (element(t, i) for t in operands)
        return te.select(c, x, y)

    return te.compute(result.shape, body, name="select")


def _select_samples() -> list[Sample]:
    none = NoAttrs()
    c, x, y = noise((3, 1), BOOL), noise((2, 1, 4), F32), noise((3, 4), F32, seed="y")
    return [
        Sample("broadcast", none, (c, x, y), (("n", 1), ("b", 1, "m"), ("n", "m")), exact=True),
        Sample("bools", none, (c, c, ~c), (("n", 1),) * 3),
        Sample("i64", none, (np.asarray(c[0, 0]), noise((5,), I64), noise((5,), I64, seed="y"))),
        *(Sample(f"{d}", none, (c, edges(d), edges(d)[::-1].copy()), exact=True) for d in (F16, BF16, U8)),
        Sample("empty", none, (c, x[:0], y), (("n", 1), ("b", 1, 4), ("n", 4))),
    ]


def _cast_rule(ctx: TypeContext, attrs: CastAttrs, args: Types) -> TensorType:
    x = rules.tensor(ctx, args, 0, ELEMENTS)
    if attrs.dtype not in ELEMENTS:
        raise ctx.fail(f"cannot cast to {attrs.dtype}", id="type.dtype-mismatch")
    return TensorType(x.shape, attrs.dtype)


def _cast_reference(attrs: CastAttrs, x: Array) -> Array:
    to = attrs.dtype
    if to.is_integer and from_numpy(x.dtype).is_float:
        return saturate_array(widen(x), to)
    if to is BOOL:
        return widen(x) != 0
    return widen(x).astype(to.numpy)


def _cast_compute(a: CastAttrs, operands: Sequence[te.Tensor], result: TensorType) -> te.Tensor:
    def body(x: ScalarValue) -> ScalarValue:
        return saturate(x, a.dtype) if x.dtype.is_float and a.dtype.is_integer else x.cast(a.dtype)

    return pointwise(result.shape, operands, body, "cast")


_SEEN = (F32, F64, *INTEGERS)
"""Formats that are computed with as they are stored; narrow floats are widened when they are read."""


def _bitcast_rule(ctx: TypeContext, attrs: CastAttrs, args: Types) -> TensorType:
    x = rules.tensor(ctx, args, 0, _SEEN)
    if attrs.dtype not in _SEEN or attrs.dtype.bits != x.dtype.bits:
        raise ctx.fail(f"cannot see {x.dtype} as {attrs.dtype}", id="type.dtype-mismatch")
    return TensorType(x.shape, attrs.dtype)


def _bitcast_reference(a: CastAttrs, x: Array) -> Array:
    return x.view(a.dtype.numpy)


def _bitcast_compute(a: CastAttrs, operands: Sequence[te.Tensor], result: TensorType) -> te.Tensor:
    def body(x: ScalarValue) -> ScalarValue:
        if x.dtype == a.dtype:
            return x
        return te.intrinsic(IntrinsicOp.BITCAST, x, dtype=a.dtype)

    return pointwise(result.shape, operands, body, "bitcast")


def _bitcast_samples() -> list[Sample]:
    pairs = [(s, t) for s in _SEEN for t in _SEEN if s.bits == t.bits]
    return [Sample(f"{s} as {t}", CastAttrs(t), (edges(s),), (("n",),), exact=True) for s, t in pairs]


def _cast_samples() -> list[Sample]:
    return [Sample(f"{s} to {t}", CastAttrs(t), (edges(s),), (("n",),)) for s in ELEMENTS for t in ELEMENTS]


# --------------------------------------------------------------------------- the table

DEFINITIONS: tuple[OpDef, ...] = (
    # Arithmetic
    binary("add", "x + y; integers wrap", scalar_binary(BinaryOp.ADD), np.add, commutative=True),
    binary("sub", "x - y; integers wrap", scalar_binary(BinaryOp.SUB), np.subtract),
    binary("mul", "x * y; integers wrap", scalar_binary(BinaryOp.MUL), np.multiply, commutative=True),
    binary("div", "x / y; integers truncate, and give 0 where y is 0", _div, _np_div, cost=Cost.DIVISION),
    binary(
        "floor_div",
        "x / y rounded down; integers give 0 where y is 0",
        _floor_div,
        _np_floor_div,
        cost=Cost.DIVISION,
    ),
    binary(
        "rem",
        "x - y * trunc(x / y), with the sign of x (C fmod); integers 0 where y is 0",
        _rem,
        np.fmod,
        cost=Cost.DIVISION,
    ),
    binary(
        "mod",
        "x - y * floor(x / y), with the sign of y; integers 0 where y is 0",
        _mod,
        _np_mod,
        cost=Cost.DIVISION,
    ),
    binary(
        "pow",
        "x to the power y; integers wrap, and give 0 where it is a fraction",
        lambda x, y: te.intrinsic(IntrinsicOp.POW, x, y),
        _np_pow,
        cost=Cost.FUNCTION,
    ),
    binary("minimum", "the lesser; NaN if either is", te.minimum, np.minimum, commutative=True),
    binary("maximum", "the greater; NaN if either is", te.maximum, np.maximum, commutative=True),
    unary("neg", "-x; integers wrap", lambda x: -x, np.negative, domain=NUMBERS),
    unary("abs", "magnitude; the least integer wraps", _abs, np.abs, domain=NUMBERS),
    unary("sign", "-1, 0 or 1; NaN for NaN", _sign, np.sign, domain=NUMBERS),
    unary("reciprocal", "1 / x", lambda x: 1.0 / x, lambda x: x.dtype.type(1) / x, cost=Cost.DIVISION),
    unary("sqrt", "square root", lambda x: te.unary(UnaryOp.SQRT, x), np.sqrt, cost=Cost.DIVISION),
    unary("rsqrt", "1 / sqrt(x)", call(IntrinsicOp.RSQRT), lambda x: 1 / np.sqrt(x), cost=Cost.DIVISION),
    unary("floor", "rounded down", lambda x: te.unary(UnaryOp.FLOOR, x), np.floor),
    unary("ceil", "rounded up", lambda x: te.unary(UnaryOp.CEIL, x), np.ceil),
    unary("trunc", "rounded toward zero", lambda x: te.unary(UnaryOp.TRUNC, x), np.trunc),
    unary("round", "rounded to nearest, ties to even", lambda x: te.unary(UnaryOp.ROUND_EVEN, x), np.rint),
    # Transcendental functions
    unary("exp", "e to the power x", call(IntrinsicOp.EXP), np.exp, cost=Cost.FUNCTION),
    unary("log", "natural logarithm", call(IntrinsicOp.LOG), np.log, cost=Cost.FUNCTION),
    unary("sin", "sine", call(IntrinsicOp.SIN), np.sin, cost=Cost.FUNCTION),
    unary("cos", "cosine", call(IntrinsicOp.COS), np.cos, cost=Cost.FUNCTION),
    unary("tan", "tangent", call(IntrinsicOp.TAN), np.tan, cost=Cost.FUNCTION),
    unary("asin", "arc sine", call(IntrinsicOp.ASIN), np.arcsin, cost=Cost.FUNCTION),
    unary("acos", "arc cosine", call(IntrinsicOp.ACOS), np.arccos, cost=Cost.FUNCTION),
    unary("atan", "arc tangent", call(IntrinsicOp.ATAN), np.arctan, cost=Cost.FUNCTION),
    unary("sinh", "hyperbolic sine", call(IntrinsicOp.SINH), np.sinh, cost=Cost.FUNCTION),
    unary("cosh", "hyperbolic cosine", call(IntrinsicOp.COSH), np.cosh, cost=Cost.FUNCTION),
    unary("tanh", "hyperbolic tangent", call(IntrinsicOp.TANH), np.tanh, cost=Cost.FUNCTION),
    unary("asinh", "inverse hyperbolic sine", call(IntrinsicOp.ASINH), np.arcsinh, cost=Cost.FUNCTION),
    unary("acosh", "inverse hyperbolic cosine", call(IntrinsicOp.ACOSH), np.arccosh, cost=Cost.FUNCTION),
    unary("atanh", "inverse hyperbolic tangent", call(IntrinsicOp.ATANH), np.arctanh, cost=Cost.FUNCTION),
    unary("erf", "error function", call(IntrinsicOp.ERF), np_erf, cost=Cost.FUNCTION),
    # Predicates, logic, bits
    unary("is_nan", "whether x is NaN", predicate(IntrinsicOp.IS_NAN), np.isnan, to_bool=True),
    unary("is_inf", "whether x is infinite", predicate(IntrinsicOp.IS_INF), np.isinf, to_bool=True),
    unary("logical_not", "the other truth value", lambda x: ~x, np.logical_not, domain=BOOLS),
    binary("logical_and", "both", lambda x, y: x & y, np.logical_and, domain=BOOLS, commutative=True),
    binary("logical_or", "either", lambda x, y: x | y, np.logical_or, domain=BOOLS, commutative=True),
    binary(
        "logical_xor",
        "one and not the other",
        lambda x, y: x ^ y,
        np.logical_xor,
        domain=BOOLS,
        commutative=True,
    ),
    unary("bitwise_not", "every bit inverted", lambda x: ~x, np.invert, domain=INTEGERS),
    binary(
        "bitwise_and",
        "bits set in both",
        lambda x, y: x & y,
        np.bitwise_and,
        domain=INTEGERS,
        commutative=True,
    ),
    binary(
        "bitwise_or",
        "bits set in either",
        lambda x, y: x | y,
        np.bitwise_or,
        domain=INTEGERS,
        commutative=True,
    ),
    binary(
        "bitwise_xor",
        "bits set in one only",
        lambda x, y: x ^ y,
        np.bitwise_xor,
        domain=INTEGERS,
        commutative=True,
    ),
    _shift("shift_left", "x * 2**y; 0 where y is outside the width", BinaryOp.SHL, np.left_shift),
    _shift(
        "shift_right",
        "x / 2**y rounded down; 0 or the sign where y is outside the width",
        BinaryOp.SHR,
        np.right_shift,
    ),
    # Comparison
    binary("equal", "x == y", lambda x, y: x.equals(y), np.equal, domain=ALL, commutative=True, to_bool=True),
    binary(
        "not_equal",
        "x != y",
        lambda x, y: x.differs(y),
        np.not_equal,
        domain=ALL,
        commutative=True,
        to_bool=True,
    ),
    binary("less", "x < y", lambda x, y: x < y, np.less, to_bool=True),
    binary("less_equal", "x <= y", lambda x, y: x <= y, np.less_equal, to_bool=True),
    binary("greater", "x > y", lambda x, y: x > y, np.greater, to_bool=True),
    binary("greater_equal", "x >= y", lambda x, y: x >= y, np.greater_equal, to_bool=True),
    # Choice and conversion
    define(
        "select",
        NoAttrs,
        _select_rule,
        3,
        FusionPattern.BROADCAST,
        "x where the condition holds, else y",
        reference=_select_reference,
        compute=_select_compute,
        samples=_select_samples,
        in_place=(1, 2),
    ),
    define(
        "bitcast",
        CastAttrs,
        _bitcast_rule,
        1,
        FusionPattern.ELEMENTWISE,
        "The bits of x as elements of `dtype`, which has as many.",
        reference=_bitcast_reference,
        compute=_bitcast_compute,
        samples=_bitcast_samples,
    ),
    define(
        "cast",
        CastAttrs,
        _cast_rule,
        1,
        FusionPattern.ELEMENTWISE,
        "value converted to dtype: floats to integers truncate and saturate, NaN gives 0; "
        "integers to integers wrap; to bool compares with 0",
        reference=_cast_reference,
        compute=_cast_compute,
        samples=_cast_samples,
        in_place=(0,),
    ),
)
