"""Activations: element-wise functions that networks put between layers.

Like the operators in `elementwise`, with parameters as attributes. Formulas are those of ONNX.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from inlay.arith.dtype import DType, from_numpy
from inlay.loop import te
from inlay.loop.scalar import IntrinsicOp, UnaryOp
from inlay.loop.te import ScalarValue
from inlay.ops._build import Array, call
from inlay.ops._define import Cost, OpDef
from inlay.ops._pointwise import mapped, np_erf, unary
from inlay.ops._rules import NUMBERS


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


_exp = call(IntrinsicOp.EXP)
_tanh = call(IntrinsicOp.TANH)
_sigmoid = call(IntrinsicOp.SIGMOID)


def _expm1(x: ScalarValue) -> ScalarValue:
    """Return `exp(x) - 1` for x <= 0 without cancellation near 0, through tanh."""
    # exp(x) - 1 = 2 t / (1 - t) with t = tanh(x/2); -inf gives -1 through t = -1.
    t = _tanh(x * 0.5)
    return (t * 2.0) / (1.0 - t)


def _log1p(x: ScalarValue) -> ScalarValue:
    """Return `log(1 + x)` for x >= 0 accurately near 0 (Kahan): errors of 1 + x cancel."""
    w = x + 1.0
    whole = w.equals(1.0) | w.equals(math.inf)
    log = te.intrinsic(IntrinsicOp.LOG, te.select(whole, 1.0, w))
    return te.select(whole, x, log * x / (te.select(whole, 2.0, w) - 1.0))


def _softplus(x: ScalarValue) -> ScalarValue:
    return te.maximum(x, 0.0) + _log1p(_exp(-te.unary(UnaryOp.ABS, x)))


def _np_softplus(x: Array) -> Array:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def _np_sigmoid(x: Array) -> Array:
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + small), small / (1 + small))


def _gelu(a: GeluAttrs, x: ScalarValue) -> ScalarValue:
    if a.form is GeluForm.ERF:
        return x * 0.5 * (te.intrinsic(IntrinsicOp.ERF, x * math.sqrt(0.5)) + 1.0)
    inner = (x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)
    return x * 0.5 * (_tanh(inner) + 1.0)


def _np_gelu(a: GeluAttrs, x: Array) -> Array:
    if a.form is GeluForm.ERF:
        return x * (0.5 * (1 + np_erf(x.astype(np.float64) * math.sqrt(0.5))))
    return x * 0.5 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))


def _np_selu(a: SeluAttrs, x: Array) -> Array:
    negative = np.multiply(np.expm1(x), x.dtype.type(a.alpha))
    return np.multiply(np.where(x < 0, negative, x), x.dtype.type(a.gamma))


def _clip(a: ClipAttrs, x: ScalarValue) -> ScalarValue:
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


DEFINITIONS: tuple[OpDef, ...] = (
    unary("sigmoid", "1 / (1 + exp(-x))", _sigmoid, _np_sigmoid, cost=Cost.FUNCTION),
    unary("relu", "max(x, 0)", lambda x: te.maximum(x, 0), lambda x: np.maximum(x, 0), domain=NUMBERS),
    mapped(
        "leaky_relu",
        "x, or alpha * x where x < 0",
        AlphaAttrs,
        lambda a, x: te.select(x < 0, x * a.alpha, x),
        lambda a, x: np.where(x < 0, x * x.dtype.type(a.alpha), x),
        (AlphaAttrs(0.01),),
    ),
    mapped(
        "thresholded_relu",
        "x where x > alpha, else 0",
        AlphaAttrs,
        lambda a, x: te.select(x > a.alpha, x, 0.0),
        lambda a, x: np.where(x > x.dtype.type(a.alpha), x, 0),
        (AlphaAttrs(1.0),),
    ),
    mapped(
        "elu",
        "x, or alpha * (exp(x) - 1) where x < 0",
        AlphaAttrs,
        lambda a, x: te.select(x < 0, _expm1(te.minimum(x, 0.0)) * a.alpha, x),
        lambda a, x: np.where(x < 0, np.expm1(x) * x.dtype.type(a.alpha), x),
        (AlphaAttrs(1.0), AlphaAttrs(0.5)),
        cost=Cost.FUNCTION,
    ),
    mapped(
        "celu",
        "max(x, 0) + min(0, alpha * (exp(x / alpha) - 1))",
        AlphaAttrs,
        lambda a, x: te.select(x < 0, _expm1(te.minimum(x, 0.0) / a.alpha) * a.alpha, x),
        lambda a, x: np.where(x < 0, np.expm1(x / x.dtype.type(a.alpha)) * x.dtype.type(a.alpha), x),
        (AlphaAttrs(2.0),),
        cost=Cost.FUNCTION,
    ),
    mapped(
        "selu",
        "gamma * x, or gamma * alpha * (exp(x) - 1) where x < 0",
        SeluAttrs,
        lambda a, x: te.select(x < 0, _expm1(te.minimum(x, 0.0)) * (a.alpha * a.gamma), x * a.gamma),
        _np_selu,
        (SeluAttrs(),),
        cost=Cost.FUNCTION,
    ),
    mapped(
        "gelu",
        "x times the normal distribution function of x",
        GeluAttrs,
        _gelu,
        _np_gelu,
        (GeluAttrs(), GeluAttrs(GeluForm.TANH)),
        cost=Cost.FUNCTION,
    ),
    unary(
        "silu", "x * sigmoid(x)", lambda x: x * _sigmoid(x), lambda x: x * _np_sigmoid(x), cost=Cost.FUNCTION
    ),
    unary(
        "mish",
        "x * tanh(softplus(x))",
        lambda x: x * _tanh(_softplus(x)),
        lambda x: x * np.tanh(_np_softplus(x)),
        cost=Cost.FUNCTION,
    ),
    unary("softplus", "log(1 + exp(x))", _softplus, _np_softplus, cost=Cost.FUNCTION),
    unary(
        "softsign",
        "x / (1 + |x|)",
        lambda x: x / (te.unary(UnaryOp.ABS, x) + 1.0),
        lambda x: x / (1 + np.abs(x)),
    ),
    mapped(
        "hard_sigmoid",
        "alpha * x + beta, clamped to 0..1",
        AlphaBetaAttrs,
        lambda a, x: te.minimum(te.maximum(x * a.alpha + a.beta, 0.0), 1.0),
        lambda a, x: np.clip(x * x.dtype.type(a.alpha) + x.dtype.type(a.beta), 0, 1),
        (AlphaBetaAttrs(), AlphaBetaAttrs(1 / 6, 0.5)),
    ),
    unary(
        "hard_swish",
        "x * clamp(x / 6 + 1/2, 0, 1)",
        lambda x: x * te.minimum(te.maximum(x * (1 / 6) + 0.5, 0.0), 1.0),
        lambda x: x * np.clip(x * x.dtype.type(1 / 6) + x.dtype.type(0.5), 0, 1),
    ),
    mapped(
        "clip",
        "clamped to low..high; NaN stays",
        ClipAttrs,
        _clip,
        _np_clip,
        (ClipAttrs(-1.5, 2.0), ClipAttrs(high=6.0), ClipAttrs(0.0)),
        domain=NUMBERS,
    ),
)
