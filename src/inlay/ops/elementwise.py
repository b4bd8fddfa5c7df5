"""Element-wise operators: arithmetic, logic, comparison, activations, select, cast.

All of several operands broadcast (NumPy rules, aligned at the last dims; see `_rules.broadcast`).
Operands of one call have one element type. `minimum`, `maximum` and `clip` propagate NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

import numpy as np

from inlay.arith.dtype import ALL, BF16, BOOL, F16, F32, F64, I64, U8, DType, from_numpy
from inlay.arith.expr import Int
from inlay.ir.op import NoAttrs, TypeContext
from inlay.ir.types import TensorType
from inlay.loop import te
from inlay.loop.scalar import BinaryOp, IntrinsicOp, UnaryOp
from inlay.loop.te import Value
from inlay.ops import _rules as rules
from inlay.ops._build import call, element, pointwise, saturate, saturate_array, widen
from inlay.ops._define import OpDef, Pattern, Sample, define
from inlay.ops._rules import BOOLS, ELEMENTS, FLOATS, INTEGERS, NUMBERS, Types
from inlay.ops._samples import edges, noise, pairs

Array = np.ndarray
Domain = tuple[DType, ...]
A = TypeVar("A")


# --------------------------------------------------------------------------- families


def _unary(
    name: str,
    doc: str,
    scalar: Callable[[Value], Value],
    numpy: Callable[[Array], Array],
    *,
    domain: Domain = FLOATS,
    to_bool: bool = False,
) -> OpDef:
    """Make an operator of one tensor without attributes; see `_mapped`."""
    return _mapped(
        name,
        doc,
        NoAttrs,
        lambda _, x: scalar(x),
        lambda _, x: numpy(x),
        (NoAttrs(),),
        domain=domain,
        to_bool=to_bool,
    )


def _mapped(
    name: str,
    doc: str,
    attrs: type[A],
    scalar: Callable[[A, Value], Value],
    numpy: Callable[[A, Array], Array],
    settings: Sequence[A],
    *,
    domain: Domain = FLOATS,
    to_bool: bool = False,
) -> OpDef:
    """Make an operator of one tensor.

    Args:
        name: of the operator.
        doc: its meaning in a line.
        attrs: record of attributes.
        scalar: the element of the result, from the attributes and an element.
        numpy: the same on arrays.
        settings: attribute records to sample with.
        domain: element types it takes.
        to_bool: whether the result is bool.
    """

    def rule(ctx: TypeContext, a: A, args: Types) -> TensorType:
        x = rules.tensor(ctx, args, 0, domain)
        return TensorType(x.shape, BOOL) if to_bool else x

    def reference(a: A, x: Array) -> Array:
        return np.asarray(numpy(a, widen(x))).astype(np.bool_ if to_bool else x.dtype)

    def compute(a: A, operands: Sequence[te.Tensor], result: TensorType) -> te.Tensor:
        def body(x: Value) -> Value:
            return scalar(a, x).cast(result.dtype)

        return pointwise(result.shape, operands, body, name)

    def samples() -> list[Sample]:
        made: list[Sample] = []
        x = noise((2, 3, 5), F32 if F32 in domain else domain[0], low=-3, high=3, seed=name)
        for setting in settings:
            made += [Sample(f"edges {d}", setting, (edges(d),), (("n",),)) for d in domain]
            made.append(Sample("rank 3", setting, (x,), (("a", 3, "b"),)))
        made.append(Sample("rank 0", settings[0], (x[0, 0, 0:1].reshape(()),)))
        made.append(Sample("empty", settings[0], (x[:0],), (("a", 3, 5),)))
        return made

    return define(
        name,
        attrs,
        rule,
        1,
        Pattern.ELEMENTWISE,
        doc,
        reference=reference,
        compute=compute,
        samples=samples,
        in_place=() if to_bool else (0,),
    )


def _binary(
    name: str,
    doc: str,
    scalar: Callable[[Value, Value], Value],
    numpy: Callable[[Array, Array], Array],
    *,
    domain: Domain = NUMBERS,
    commutative: bool = False,
    to_bool: bool = False,
) -> OpDef:
    """Make an operator of two tensors; the arguments are as for `_unary`."""

    def rule(ctx: TypeContext, a: object, args: Types) -> TensorType:
        x, y = rules.tensors(ctx, args, domain)
        return TensorType(rules.broadcast(ctx, (x.shape, y.shape)), BOOL if to_bool else x.dtype)

    def reference(a: object, x: Array, y: Array) -> Array:
        return np.asarray(numpy(widen(x), widen(y))).astype(np.bool_ if to_bool else x.dtype)

    def compute(a: object, operands: Sequence[te.Tensor], result: TensorType) -> te.Tensor:
        def body(x: Value, y: Value) -> Value:
            return scalar(x, y).cast(result.dtype)

        return pointwise(result.shape, operands, body, name)

    def samples() -> list[Sample]:
        none = NoAttrs()
        made = [Sample(f"edges {d}", none, pairs(d), (("m", 1), (1, "n"))) for d in domain]
        d = F32 if F32 in domain else domain[0]
        x, y = noise((2, 3, 4), d, seed=name), noise((3, 1), d, seed=name + "y")
        whole = noise((2, 3, 4), d, seed=name + "z")
        return [
            *made,
            Sample("same shape", none, (x, whole), (("a", "b", 4), ("a", "b", 4))),
            Sample("broadcast", none, (x, y), (("a", "b", "c"), ("b", 1))),
            Sample("scalar", none, (np.asarray(y[0, 0]), x), ((), ("a", 3, "c"))),
            Sample("rank 0", none, (np.asarray(x[0, 0, 0]), np.asarray(y[0, 0]))),
            Sample("empty", none, (x[:0], y), (("a", 3, 4), (3, 1))),
        ]

    return define(
        name, NoAttrs, rule, 2, Pattern.BROADCAST, doc, reference=reference, compute=compute,
        samples=samples, commutative=commutative, in_place=() if to_bool else (0, 1),
    )  # fmt: skip


def _op(op: BinaryOp) -> Callable[[Value, Value], Value]:
    return lambda x, y: te.binary(op, x, y)


def _is(op: IntrinsicOp) -> Callable[[Value], Value]:
    return lambda x: te.intrinsic(op, x, dtype=BOOL)


# --------------------------------------------------------------------------- division


def _total(
    divide: Callable[[Value, Value], Value], by_minus_one: Callable[[Value], Value]
) -> Callable[[Value, Value], Value]:
    """Make integer division total: 0 by a divisor of 0, and no overflow at the least integer."""

    def scalar(x: Value, y: Value) -> Value:
        zero = y.equals(0)
        if not x.dtype.is_signed:
            return te.select(zero, 0, divide(x, te.select(zero, 1, y)))
        minus = y.equals(-1)
        safe = te.select(zero | minus, 1, y)
        return te.select(zero, 0, te.select(minus, by_minus_one(x), divide(x, safe)))

    return scalar


def _zero(x: Value) -> Value:
    return te.const(0, x.dtype)


def _div(x: Value, y: Value) -> Value:
    return x / y if x.dtype.is_float else _total(te.trunc_div, lambda v: -v)(x, y)


def _floor_div(x: Value, y: Value) -> Value:
    if x.dtype.is_float:
        return te.unary(UnaryOp.FLOOR, x / y)
    return _total(lambda a, b: a // b, lambda v: -v)(x, y)


def _rem(x: Value, y: Value) -> Value:
    return te.trunc_rem(x, y) if x.dtype.is_float else _total(te.trunc_rem, _zero)(x, y)


def _mod(x: Value, y: Value) -> Value:
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


# --------------------------------------------------------------------------- activations


@dataclass(frozen=True, slots=True)
class AlphaAttrs:
    """`alpha`: slope or scale of the negative side."""

    alpha: float = 1.0


@dataclass(frozen=True, slots=True)
class AlphaBetaAttrs:
    """`alpha`: slope; `beta`: offset."""

    alpha: float = 0.2
    beta: float = 0.5


@dataclass(frozen=True, slots=True)
class SeluAttrs:
    """`alpha`: scale of the negative side; `gamma`: scale of both."""

    alpha: float = 1.6732632423543772
    gamma: float = 1.0507009873554805


@dataclass(frozen=True, slots=True)
class ClipAttrs:
    """`low`, `high`: ends of the range; infinite where there is none."""

    low: float = -math.inf
    high: float = math.inf


class GeluForm(StrEnum):
    """Exact (error function), or the usual approximation by tanh."""

    ERF = "erf"
    TANH = "tanh"


@dataclass(frozen=True, slots=True)
class GeluAttrs:
    """`form`: exact or approximate."""

    form: GeluForm = GeluForm.ERF


@dataclass(frozen=True, slots=True)
class CastAttrs:
    """`dtype`: element type of the result."""

    dtype: DType


_exp = call(IntrinsicOp.EXP)
_tanh = call(IntrinsicOp.TANH)
_sigmoid = call(IntrinsicOp.SIGMOID)


def _expm1(x: Value) -> Value:
    """Return `exp(x) - 1` for x <= 0 without cancellation near 0, through tanh."""
    # exp(x) - 1 = 2 t / (1 - t) with t = tanh(x/2); -inf gives -1 through t = -1.
    t = _tanh(x * 0.5)
    return (t * 2.0) / (1.0 - t)


def _log1p(x: Value) -> Value:
    """Return `log(1 + x)` for x >= 0 accurately near 0 (Kahan): errors of 1 + x cancel."""
    w = x + 1.0
    whole = w.equals(1.0) | w.equals(math.inf)
    log = te.intrinsic(IntrinsicOp.LOG, te.select(whole, 1.0, w))
    return te.select(whole, x, log * x / (te.select(whole, 2.0, w) - 1.0))


def _softplus(x: Value) -> Value:
    return te.maximum(x, 0.0) + _log1p(_exp(-te.unary(UnaryOp.ABS, x)))


def _np_softplus(x: Array) -> Array:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def _gelu(a: GeluAttrs, x: Value) -> Value:
    if a.form is GeluForm.ERF:
        return x * 0.5 * (te.intrinsic(IntrinsicOp.ERF, x * math.sqrt(0.5)) + 1.0)
    inner = (x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)
    return x * 0.5 * (_tanh(inner) + 1.0)


def _np_erf(x: Array) -> Array:
    return np.vectorize(math.erf, otypes=[np.float64])(x).astype(x.dtype)


def _np_gelu(a: GeluAttrs, x: Array) -> Array:
    if a.form is GeluForm.ERF:
        return x * (0.5 * (1 + _np_erf(x.astype(np.float64) * math.sqrt(0.5))))
    return x * 0.5 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))


def _np_sigmoid(x: Array) -> Array:
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + small), small / (1 + small))


def _np_selu(a: SeluAttrs, x: Array) -> Array:
    negative = np.multiply(np.expm1(x), x.dtype.type(a.alpha))
    return np.multiply(np.where(x < 0, negative, x), x.dtype.type(a.gamma))


def _clip(a: ClipAttrs, x: Value) -> Value:
    if x.dtype.is_float:
        return te.minimum(te.maximum(x, a.low), a.high)
    low, high = _whole_bounds(a, x.dtype)
    return te.minimum(te.maximum(x, low), high)


def _np_clip(a: ClipAttrs, x: Array) -> Array:
    if x.dtype.kind == "f":
        return np.minimum(np.maximum(x, x.dtype.type(a.low)), x.dtype.type(a.high))
    low, high = _whole_bounds(a, from_numpy(x.dtype))
    return np.minimum(np.maximum(x, x.dtype.type(low)), x.dtype.type(high))


def _whole_bounds(a: ClipAttrs, dtype: DType) -> tuple[int, int]:
    info = np.iinfo(dtype.numpy)
    low = info.min if a.low <= info.min else min(math.ceil(a.low), int(info.max))
    high = info.max if a.high >= info.max else max(math.floor(a.high), int(info.min))
    return int(low), int(high)


def _sign(x: Value) -> Value:
    if not x.dtype.is_signed:
        return te.select(x.equals(0), 0, te.const(1, x.dtype))
    return te.select(x > 0, 1, te.select(x < 0, -1, x))


def _abs(x: Value) -> Value:
    return te.unary(UnaryOp.ABS, x) if x.dtype.is_signed else x


# --------------------------------------------------------------------------- shifts


def _shift(name: str, doc: str, op: BinaryOp, numpy: Callable[[Array, Array], Array]) -> OpDef:
    def wide(x: Array, y: Array) -> Array:
        width = x.dtype.itemsize * 8
        out = np.asarray(numpy(x, np.where((y >= 0) & (y < width), y, 0).astype(x.dtype)))
        gone = np.where(x < 0, -1, 0).astype(x.dtype) if op is BinaryOp.SHR else x.dtype.type(0)
        return np.where((y >= 0) & (y < width), out, gone)

    def scalar(x: Value, y: Value) -> Value:
        if not y.dtype.is_signed:
            return te.binary(op, x, y)
        width = y.dtype.bits
        return te.binary(op, x, te.select(y < 0, te.const(width, y.dtype), y))

    return _binary(name, doc, scalar, wide, domain=INTEGERS)


# --------------------------------------------------------------------------- select, cast


def _select_rule(ctx: TypeContext, attrs: NoAttrs, args: Types) -> TensorType:
    condition = rules.tensor(ctx, args, 0, BOOLS)
    x, y = rules.tensors(ctx, args[1:])
    return TensorType(rules.broadcast(ctx, (condition.shape, x.shape, y.shape)), x.dtype)


def _select_reference(a: NoAttrs, c: Array, x: Array, y: Array) -> Array:
    return np.where(c, x, y).astype(x.dtype)


def _select_compute(a: NoAttrs, operands: Sequence[te.Tensor], result: TensorType) -> te.Tensor:
    def body(*i: Int) -> Value:
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
        *(Sample(f"{d}", none, (c, edges(d), edges(d)[::-1].copy()), exact=True)
          for d in (F16, BF16, U8)),
        Sample("empty", none, (c, x[:0], y), (("n", 1), ("b", 1, 4), ("n", 4))),
    ]  # fmt: skip


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
    def body(x: Value) -> Value:
        return saturate(x, a.dtype) if x.dtype.is_float and a.dtype.is_integer else x.cast(a.dtype)

    return pointwise(result.shape, operands, body, "cast")


_SEEN = (F32, F64, *INTEGERS)
"""Formats that are computed with as they are stored; narrow floats are widened when they are read."""


def _bitcast_rule(ctx: TypeContext, attrs: CastAttrs, args: Types) -> TensorType:
    x = rules.tensor(ctx, args, 0, _SEEN)
    if attrs.dtype not in _SEEN or attrs.dtype.bits != x.dtype.bits:
        raise ctx.fail(f"cannot see {x.dtype} as {attrs.dtype}", id="type.dtype-mismatch")
    return TensorType(x.shape, attrs.dtype)


def _bitcast_compute(a: CastAttrs, operands: Sequence[te.Tensor], result: TensorType) -> te.Tensor:
    def body(x: Value) -> Value:
        if x.dtype == a.dtype:
            return x
        return te.intrinsic(IntrinsicOp.BITCAST, x, dtype=a.dtype)

    return pointwise(result.shape, operands, body, "bitcast")


def _bitcast_samples() -> list[Sample]:
    pairs = [(s, t) for s in _SEEN for t in _SEEN if s.bits == t.bits]
    return [
        Sample(f"{s} as {t}", CastAttrs(t), (edges(s),), (("n",),), exact=True) for s, t in pairs
    ]


def _cast_samples() -> list[Sample]:
    return [
        Sample(f"{s} to {t}", CastAttrs(t), (edges(s),), (("n",),))
        for s in ELEMENTS
        for t in ELEMENTS
    ]


# --------------------------------------------------------------------------- the table

DEFINITIONS: tuple[OpDef, ...] = (
    # Arithmetic
    _binary("add", "x + y; integers wrap", _op(BinaryOp.ADD), np.add, commutative=True),
    _binary("sub", "x - y; integers wrap", _op(BinaryOp.SUB), np.subtract),
    _binary("mul", "x * y; integers wrap", _op(BinaryOp.MUL), np.multiply, commutative=True),
    _binary("div", "x / y; integers truncate, and give 0 where y is 0", _div, _np_div),
    _binary("floor_div", "x / y rounded down; integers give 0 where y is 0",
            _floor_div, _np_floor_div),
    _binary("rem", "x - y * trunc(x / y), with the sign of x (C fmod); integers 0 where y is 0",
            _rem, np.fmod),
    _binary("mod", "x - y * floor(x / y), with the sign of y; integers 0 where y is 0",
            _mod, _np_mod),
    _binary("pow", "x to the power y; integers wrap, and give 0 where it is a fraction",
            lambda x, y: te.intrinsic(IntrinsicOp.POW, x, y), _np_pow),
    _binary("minimum", "the lesser; NaN if either is", te.minimum, np.minimum, commutative=True),
    _binary("maximum", "the greater; NaN if either is", te.maximum, np.maximum, commutative=True),
    _unary("neg", "-x; integers wrap", lambda x: -x, np.negative, domain=NUMBERS),
    _unary("abs", "magnitude; the least integer wraps", _abs, np.abs, domain=NUMBERS),
    _unary("sign", "-1, 0 or 1; NaN for NaN", _sign, np.sign, domain=NUMBERS),
    _unary("reciprocal", "1 / x", lambda x: 1.0 / x, lambda x: x.dtype.type(1) / x),
    _unary("sqrt", "square root", lambda x: te.unary(UnaryOp.SQRT, x), np.sqrt),
    _unary("rsqrt", "1 / sqrt(x)", call(IntrinsicOp.RSQRT), lambda x: 1 / np.sqrt(x)),
    _unary("floor", "rounded down", lambda x: te.unary(UnaryOp.FLOOR, x), np.floor),
    _unary("ceil", "rounded up", lambda x: te.unary(UnaryOp.CEIL, x), np.ceil),
    _unary("trunc", "rounded toward zero", lambda x: te.unary(UnaryOp.TRUNC, x), np.trunc),
    _unary("round", "rounded to nearest, ties to even",
           lambda x: te.unary(UnaryOp.ROUND_EVEN, x), np.rint),
    # Transcendental functions
    _unary("exp", "e to the power x", _exp, np.exp),
    _unary("log", "natural logarithm", call(IntrinsicOp.LOG), np.log),
    _unary("sin", "sine", call(IntrinsicOp.SIN), np.sin),
    _unary("cos", "cosine", call(IntrinsicOp.COS), np.cos),
    _unary("tan", "tangent", call(IntrinsicOp.TAN), np.tan),
    _unary("asin", "arc sine", call(IntrinsicOp.ASIN), np.arcsin),
    _unary("acos", "arc cosine", call(IntrinsicOp.ACOS), np.arccos),
    _unary("atan", "arc tangent", call(IntrinsicOp.ATAN), np.arctan),
    _unary("sinh", "hyperbolic sine", call(IntrinsicOp.SINH), np.sinh),
    _unary("cosh", "hyperbolic cosine", call(IntrinsicOp.COSH), np.cosh),
    _unary("tanh", "hyperbolic tangent", _tanh, np.tanh),
    _unary("asinh", "inverse hyperbolic sine", call(IntrinsicOp.ASINH), np.arcsinh),
    _unary("acosh", "inverse hyperbolic cosine", call(IntrinsicOp.ACOSH), np.arccosh),
    _unary("atanh", "inverse hyperbolic tangent", call(IntrinsicOp.ATANH), np.arctanh),
    _unary("erf", "error function", call(IntrinsicOp.ERF), _np_erf),
    # Activations
    _unary("sigmoid", "1 / (1 + exp(-x))", _sigmoid, _np_sigmoid),
    _unary("relu", "max(x, 0)", lambda x: te.maximum(x, 0), lambda x: np.maximum(x, 0),
           domain=NUMBERS),
    _mapped("leaky_relu", "x, or alpha * x where x < 0", AlphaAttrs,
           lambda a, x: te.select(x < 0, x * a.alpha, x),
           lambda a, x: np.where(x < 0, x * x.dtype.type(a.alpha), x),
           (AlphaAttrs(0.01),)),
    _mapped("thresholded_relu", "x where x > alpha, else 0", AlphaAttrs,
           lambda a, x: te.select(x > a.alpha, x, 0.0),
           lambda a, x: np.where(x > x.dtype.type(a.alpha), x, 0),
           (AlphaAttrs(1.0),)),
    _mapped("elu", "x, or alpha * (exp(x) - 1) where x < 0", AlphaAttrs,
           lambda a, x: te.select(x < 0, _expm1(te.minimum(x, 0.0)) * a.alpha, x),
           lambda a, x: np.where(x < 0, np.expm1(x) * x.dtype.type(a.alpha), x),
           (AlphaAttrs(1.0), AlphaAttrs(0.5))),
    _mapped("celu", "max(x, 0) + min(0, alpha * (exp(x / alpha) - 1))", AlphaAttrs,
           lambda a, x: te.select(
               x < 0, _expm1(te.minimum(x, 0.0) / a.alpha) * a.alpha, x),
           lambda a, x: np.where(
               x < 0, np.expm1(x / x.dtype.type(a.alpha)) * x.dtype.type(a.alpha), x),
           (AlphaAttrs(2.0),)),
    _mapped("selu", "gamma * x, or gamma * alpha * (exp(x) - 1) where x < 0", SeluAttrs,
           lambda a, x: te.select(
               x < 0, _expm1(te.minimum(x, 0.0)) * (a.alpha * a.gamma), x * a.gamma),
           _np_selu,
           (SeluAttrs(),)),
    _mapped("gelu", "x times the normal distribution function of x", GeluAttrs, _gelu, _np_gelu,
           (GeluAttrs(), GeluAttrs(GeluForm.TANH))),
    _unary("silu", "x * sigmoid(x)", lambda x: x * _sigmoid(x), lambda x: x * _np_sigmoid(x)),
    _unary("mish", "x * tanh(softplus(x))", lambda x: x * _tanh(_softplus(x)),
           lambda x: x * np.tanh(_np_softplus(x))),
    _unary("softplus", "log(1 + exp(x))", _softplus, _np_softplus),
    _unary("softsign", "x / (1 + |x|)", lambda x: x / (te.unary(UnaryOp.ABS, x) + 1.0),
           lambda x: x / (1 + np.abs(x))),
    _mapped("hard_sigmoid", "alpha * x + beta, clamped to 0..1", AlphaBetaAttrs,
           lambda a, x: te.minimum(te.maximum(x * a.alpha + a.beta, 0.0), 1.0),
           lambda a, x: np.clip(x * x.dtype.type(a.alpha) + x.dtype.type(a.beta), 0, 1),
           (AlphaBetaAttrs(), AlphaBetaAttrs(1 / 6, 0.5))),
    _unary("hard_swish", "x * clamp(x / 6 + 1/2, 0, 1)",
           lambda x: x * te.minimum(te.maximum(x * (1 / 6) + 0.5, 0.0), 1.0),
           lambda x: x * np.clip(x * x.dtype.type(1 / 6) + x.dtype.type(0.5), 0, 1)),
    _mapped("clip", "clamped to low..high; NaN stays", ClipAttrs, _clip, _np_clip,
           (ClipAttrs(-1.5, 2.0), ClipAttrs(high=6.0), ClipAttrs(0.0)), domain=NUMBERS),
    # Predicates, logic, bits
    _unary("is_nan", "whether x is NaN", _is(IntrinsicOp.IS_NAN), np.isnan, to_bool=True),
    _unary("is_inf", "whether x is infinite", _is(IntrinsicOp.IS_INF), np.isinf, to_bool=True),
    _unary("logical_not", "the other truth value", lambda x: ~x, np.logical_not, domain=BOOLS),
    _binary("logical_and", "both", lambda x, y: x & y, np.logical_and, domain=BOOLS,
            commutative=True),
    _binary("logical_or", "either", lambda x, y: x | y, np.logical_or, domain=BOOLS,
            commutative=True),
    _binary("logical_xor", "one and not the other", lambda x, y: x ^ y, np.logical_xor,
            domain=BOOLS, commutative=True),
    _unary("bitwise_not", "every bit inverted", lambda x: ~x, np.invert, domain=INTEGERS),
    _binary("bitwise_and", "bits set in both", lambda x, y: x & y, np.bitwise_and,
            domain=INTEGERS, commutative=True),
    _binary("bitwise_or", "bits set in either", lambda x, y: x | y, np.bitwise_or,
            domain=INTEGERS, commutative=True),
    _binary("bitwise_xor", "bits set in one only", lambda x, y: x ^ y, np.bitwise_xor,
            domain=INTEGERS, commutative=True),
    _shift("shift_left", "x * 2**y; 0 where y is outside the width", BinaryOp.SHL, np.left_shift),
    _shift("shift_right", "x / 2**y rounded down; 0 or the sign where y is outside the width",
           BinaryOp.SHR, np.right_shift),
    # Comparison
    _binary("equal", "x == y", lambda x, y: x.equals(y), np.equal, domain=ALL,
            commutative=True, to_bool=True),
    _binary("not_equal", "x != y", lambda x, y: x.differs(y), np.not_equal, domain=ALL,
            commutative=True, to_bool=True),
    _binary("less", "x < y", lambda x, y: x < y, np.less, to_bool=True),
    _binary("less_equal", "x <= y", lambda x, y: x <= y, np.less_equal, to_bool=True),
    _binary("greater", "x > y", lambda x, y: x > y, np.greater, to_bool=True),
    _binary("greater_equal", "x >= y", lambda x, y: x >= y, np.greater_equal, to_bool=True),
    # Choice and conversion
    define("select", NoAttrs, _select_rule, 3, Pattern.BROADCAST,
           "x where the condition holds, else y",
           reference=_select_reference,
           compute=_select_compute, samples=_select_samples, in_place=(1, 2)),
    define("bitcast", CastAttrs, _bitcast_rule, 1, Pattern.ELEMENTWISE,
           "The bits of x as elements of `dtype`, which has as many.",
           reference=lambda a, x: x.view(a.dtype.numpy), compute=_bitcast_compute,
           samples=_bitcast_samples),
    define("cast", CastAttrs, _cast_rule, 1, Pattern.ELEMENTWISE,
           "value converted to dtype: floats to integers truncate and saturate, NaN gives 0; "
           "integers to integers wrap; to bool compares with 0",
           reference=_cast_reference, compute=_cast_compute, samples=_cast_samples,
           in_place=(0,)),
)  # fmt: skip
