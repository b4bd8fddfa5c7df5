"""Operations on scalars, as the loop IR means them.

Integers are Python integers wrapped to their width after each operation, floats are NumPy scalars of
their own format, booleans are Python's. Functions such as `exp` are computed in f64 and rounded once.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from inlay.arith.dtype import DType, Kind
from inlay.loop.scalar import EXP_RAISED, BinaryOp, IntrinsicOp, UnaryOp


def wrap(value: int, dtype: DType) -> int:
    """Return an integer reduced to its format, as two's complement does."""
    mask = (1 << dtype.bits) - 1
    value &= mask
    return value - mask - 1 if dtype.is_signed and value >> (dtype.bits - 1) else value


def wrapper(dtype: DType) -> Callable[[int], int]:
    """Return `wrap` for one format, which most integers pass unchanged."""
    low = -(1 << (dtype.bits - 1)) if dtype.is_signed else 0
    high = low + (1 << dtype.bits) - 1
    return lambda value: value if low <= value <= high else wrap(value, dtype)


def _odd_single(value: Any) -> np.float32:
    """Return a number in f32, rounded to odd, so that rounding it again is as rounding once."""
    if isinstance(value, int):
        return np.float32(value)
    near, exact = np.float32(value), float(value)
    if float(near) == exact or not math.isfinite(near) or near.view(np.uint32) & 1:
        return near
    toward = math.inf if float(near) < exact else -math.inf
    return np.nextafter(near, np.float32(toward))


def convert(value: Any, dtype: DType) -> Any:
    """Return a value in another format; floats truncate toward zero on their way to integers."""
    if dtype.kind is Kind.BOOL:
        return bool(value != 0)
    if dtype.name == "bf16":
        # ml_dtypes goes through f32, rounding twice, and refuses large integers.
        return dtype.numpy.type(_odd_single(value))
    if dtype.is_float:
        return dtype.numpy.type(value)
    if isinstance(value, (int, bool)):
        return wrap(int(value), dtype)
    number = float(value)
    # Out of range is undefined; some value is given, so that unused lanes do no harm.
    return wrap(int(number), dtype) if math.isfinite(number) else 0


def _truncated(a: int, b: int) -> int:
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def _shift_right(a: int, b: int) -> int:
    return a >> min(b, 128)


_INTEGER: dict[BinaryOp, Callable[[int, int], int]] = {
    BinaryOp.ADD: lambda a, b: a + b,
    BinaryOp.SUB: lambda a, b: a - b,
    BinaryOp.MUL: lambda a, b: a * b,
    BinaryOp.DIV: _truncated,
    BinaryOp.REM: lambda a, b: a - b * _truncated(a, b),
    BinaryOp.FLOORDIV: lambda a, b: a // b,
    BinaryOp.FLOORMOD: lambda a, b: a % b,
    BinaryOp.MIN: min,
    BinaryOp.MAX: max,
    BinaryOp.MAX_NUMBER: max,
    BinaryOp.AND: lambda a, b: a & b,
    BinaryOp.OR: lambda a, b: a | b,
    BinaryOp.XOR: lambda a, b: a ^ b,
    BinaryOp.SHL: lambda a, b: a << min(b, 128),
    BinaryOp.SHR: _shift_right,
}
_FLOAT: dict[BinaryOp, Callable[[Any, Any], Any]] = {
    BinaryOp.ADD: lambda a, b: a + b,
    BinaryOp.SUB: lambda a, b: a - b,
    BinaryOp.MUL: lambda a, b: a * b,
    BinaryOp.DIV: lambda a, b: a / b,
    BinaryOp.REM: np.fmod,
    BinaryOp.FLOORDIV: lambda a, b: np.floor(a / b),
    BinaryOp.FLOORMOD: np.mod,
    BinaryOp.MIN: np.minimum,
    BinaryOp.MAX: np.maximum,
    BinaryOp.MAX_NUMBER: lambda a, b: b if a < b else a,
}
_COMPARE: dict[BinaryOp, Callable[[Any, Any], bool]] = {
    BinaryOp.EQ: lambda a, b: bool(a == b),
    BinaryOp.NE: lambda a, b: bool(a != b),
    BinaryOp.LT: lambda a, b: bool(a < b),
    BinaryOp.LE: lambda a, b: bool(a <= b),
}
_UNARY_FLOAT: dict[UnaryOp, Callable[[Any], Any]] = {
    UnaryOp.NEG: lambda a: -a,
    UnaryOp.ABS: abs,
    UnaryOp.SQRT: np.sqrt,
    UnaryOp.FLOOR: np.floor,
    UnaryOp.CEIL: np.ceil,
    UnaryOp.TRUNC: np.trunc,
    UnaryOp.ROUND_EVEN: np.rint,
}
_UNARY_INTEGER: dict[UnaryOp, Callable[[int], int]] = {
    UnaryOp.NEG: lambda a: -a,
    UnaryOp.ABS: abs,
    UnaryOp.BITNOT: lambda a: ~a,
}


def binary(op: BinaryOp, dtype: DType) -> Callable[[Any, Any], Any]:
    """Return an operation on two values of a format."""
    if op in _COMPARE:
        return _COMPARE[op]
    if dtype.is_float:
        return _FLOAT[op]
    function = _INTEGER[op]
    if dtype.kind is Kind.BOOL:
        return lambda a, b: bool(function(a, b))
    wrapped = wrapper(dtype)
    return lambda a, b: wrapped(function(a, b))


def unary(op: UnaryOp, dtype: DType) -> Callable[[Any], Any]:
    """Return an operation on one value of a format."""
    if op is UnaryOp.NOT:
        return lambda a: not a
    if dtype.is_float:
        return _UNARY_FLOAT[op]
    function = _UNARY_INTEGER[op]
    return lambda a: wrap(function(a), dtype)


def _sigmoid(x: float) -> float:
    return 1.0 / (1.0 + np.exp(-x)) if x >= 0 else np.exp(x) / (1.0 + np.exp(x))


def _exp_raised(x: Any) -> Any:
    return np.exp(x) * EXP_RAISED


def _rsqrt(x: Any) -> Any:
    return 1.0 / np.sqrt(x)


def _power(a: Any, b: Any) -> Any:
    """Return `a ** b`; of arrays, because NumPy takes sqrt(a) for a scalar 0.5: NaN for -inf."""
    return np.power(np.array([a]), np.array([b]))[0]


_IN_F64: dict[IntrinsicOp, Callable[..., Any]] = {
    IntrinsicOp.EXP: np.exp,
    IntrinsicOp.EXP_RAISED: _exp_raised,
    IntrinsicOp.LOG: np.log,
    IntrinsicOp.SIN: np.sin,
    IntrinsicOp.COS: np.cos,
    IntrinsicOp.TAN: np.tan,
    IntrinsicOp.ASIN: np.arcsin,
    IntrinsicOp.ACOS: np.arccos,
    IntrinsicOp.ATAN: np.arctan,
    IntrinsicOp.SINH: np.sinh,
    IntrinsicOp.COSH: np.cosh,
    IntrinsicOp.TANH: np.tanh,
    IntrinsicOp.ASINH: np.arcsinh,
    IntrinsicOp.ACOSH: np.arccosh,
    IntrinsicOp.ATANH: np.arctanh,
    IntrinsicOp.ERF: math.erf,
    IntrinsicOp.SIGMOID: _sigmoid,
    IntrinsicOp.RSQRT: _rsqrt,
    IntrinsicOp.POW: _power,
}


def intrinsic(op: IntrinsicOp, operand: DType, result: DType) -> Callable[..., Any]:
    """Return a function of scalars of one format."""
    match op:
        case IntrinsicOp.IS_NAN:
            return _is_nan
        case IntrinsicOp.IS_INF:
            return _is_inf
        case IntrinsicOp.MUL_HIGH:
            return functools.partial(_mul_high, operand)
        case IntrinsicOp.BITCAST:
            return functools.partial(_bitcast, operand, result)
        case IntrinsicOp.POW if operand.is_integer:
            return functools.partial(_integer_power, operand)
        case IntrinsicOp.FMA if operand.bits == 64:
            return _fused
        case IntrinsicOp.FMA:
            return functools.partial(_rounded, operand, _multiply_add)
        case _:
            return functools.partial(_rounded, operand, _IN_F64[op])


def _rounded(dtype: DType, function: Callable[..., Any], *args: Any) -> Any:
    """Compute in f64 and round once."""
    return dtype.numpy.type(function(*map(np.float64, args)))


def _multiply_add(a: Any, b: Any, c: Any) -> Any:
    return a * b + c


def _is_nan(a: Any) -> bool:
    return bool(np.isnan(a))


def _is_inf(a: Any) -> bool:
    return bool(np.isinf(a))


def _mul_high(dtype: DType, a: int, b: int) -> int:
    return wrap((a * b) >> dtype.bits, dtype)


def _integer_power(dtype: DType, a: int, b: int) -> int:
    if b >= 0:
        return wrap(pow(a, b, 1 << dtype.bits), dtype)
    return a if a == 1 or (a == -1 and b % 2) else int(a == -1)


def _bitcast(operand: DType, result: DType, value: Any) -> Any:
    seen = np.array([value], operand.numpy).view(result.numpy)[0]
    return int(seen) if result.is_integer else seen


def _fused(a: Any, b: Any, c: Any) -> Any:
    """Multiply and add in f64 with one rounding."""
    if not all(map(math.isfinite, (a, b, c))):
        return a * b + c
    return np.float64(float(Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))))
