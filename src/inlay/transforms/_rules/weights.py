"""Constant factors and offsets move into weights, and meet each other.

A convolution or product with constant weights, times a constant per output channel, is one with
other weights; a batch normalization with constant statistics is such a factor and an offset. Sums
and products of floats are reassociated, so results change by rounding. Where they could change by
more nothing is done: large offsets (to add one and take it off again rounds on purpose), formats of
16 bits, products that leave the range of normal numbers.
"""

from __future__ import annotations

import numpy as np

from inlay.ir import make
from inlay.ir.expr import Call, Expr, OpRef
from inlay.ir.types import TensorType
from inlay.ops.normalization import BatchNormAttrs
from inlay.transforms._rules.rule_match import Rule, RuleMatch, array, rank

_SMALL = 1024.0
"""Offsets up to this lose at most 2**-14 of an f32 that they are added to."""

_CHANNEL_AXIS = {"conv": 1, "conv_nhwc": -1, "depthwise_conv_nhwc": -1, "matmul": -1}
"""Axis of the output channels in the result of operators whose second operand are weights."""

_WEIGHT_AXIS = {"conv": 0, "conv_nhwc": -1, "depthwise_conv_nhwc": -1, "matmul": -1}
"""Axis of the output channels in the weights."""


def _batch_norm(matched: RuleMatch) -> Expr | None:
    """A factor and an offset per channel, when the statistics are constant."""
    x, *parameters = matched.args
    values = [array(p) for p in parameters]
    if matched.type is None or not matched.type.dtype.is_float or any(v is None for v in values):
        return None
    attrs = matched.attrs(BatchNormAttrs)
    wide = [np.asarray(v, np.float64) for v in values]
    with np.errstate(all="ignore"):
        factor = wide[0] / np.sqrt(wide[3] + attrs.epsilon)
        offset = wide[1] - wide[2] * factor
    if not (np.isfinite(factor).all() and np.isfinite(offset).all()):
        return None
    behind = rank(x) - 1 - attrs.axis % rank(x)
    dtype = matched.type.dtype
    shape = (-1, *(1,) * behind)
    constants = [
        make.const(v.reshape(shape), dtype, matched.call.span, matched.call.place) for v in (factor, offset)
    ]
    product = matched.bind("mul", (x, constants[0]))
    return matched.make("add", (product, constants[1]))


def _weighted(matched: RuleMatch, atom: Expr, *, alone: bool = True) -> Call | None:
    """Return the contraction with constant float weights that an atom is bound to."""
    for name in _CHANNEL_AXIS:
        found = matched.only_producer(atom, name) if alone else matched.producer(atom, name)
        if found is not None and array(found.args[1]) is not None:
            weights = found.args[1].type
            assert isinstance(weights, TensorType), "weights are a tensor"
            is_matrix = name != "matmul" or len(weights.shape) == 2
            return found if weights.dtype.is_float and is_matrix else None
    return None


def _per_channel(factor: Expr, result: TensorType, axis: int) -> np.ndarray | None:
    """Return a constant as one number per channel, or one in all; None if it varies elsewhere."""
    value = array(factor)
    if value is None or value.ndim > len(result.shape):
        return None
    shape = (1,) * (len(result.shape) - value.ndim) + value.shape
    channel = axis % len(result.shape)
    if any(d != 1 for i, d in enumerate(shape) if i != channel):
        return None
    return value.reshape(-1)


def _scaled_weights(matched: RuleMatch) -> Expr | None:
    """(x conv W) * c = x conv (W * c)."""
    for y, factor in (matched.args, matched.args[::-1]):
        contraction = _weighted(matched, y)
        if contraction is None or y.type != matched.call.type or matched.type is None:
            continue
        assert isinstance(contraction.callee, OpRef), "a contraction is an operator"
        name = contraction.callee.op.name
        numbers = _per_channel(factor, matched.type, _CHANNEL_AXIS[name])
        if numbers is None:
            continue
        x, weights = contraction.args
        shape = [1] * rank(weights)
        shape[_WEIGHT_AXIS[name]] = numbers.size
        scale = make.const(numbers.reshape(shape), span=matched.call.span, place=matched.call.place)
        scaled = matched.bind("mul", (weights, scale))
        if not _is_sound(scaled, weights, scale):
            continue
        return matched.make(name, (x, scaled), contraction.callee.attrs)
    return None


def _scaled_bias(matched: RuleMatch) -> Expr | None:
    """(x conv W + b) * c = x conv (W * c) + b * c."""
    for y, factor in (matched.args, matched.args[::-1]):
        total = matched.only_producer(y, "add")
        if total is None or array(factor) is None or y.type != matched.call.type:
            continue
        for inner, bias in (total.args, total.args[::-1]):
            contraction = _weighted(matched, inner)
            if array(bias) is None or inner.type != y.type or contraction is None:
                continue
            assert isinstance(contraction.callee, OpRef), "a contraction is an operator"
            axis = _CHANNEL_AXIS[contraction.callee.op.name]
            if matched.type is None or _per_channel(factor, matched.type, axis) is None:
                continue
            product = matched.bind("mul", (inner, factor))
            return matched.make("add", (product, matched.bind("mul", (bias, factor))))
    return None


def _merged(name: str) -> Rule:
    """(x + a) + b = x + (a + b) for constants; the same for products."""

    def rule(matched: RuleMatch) -> Expr | None:
        for y, outer in (matched.args, matched.args[::-1]):
            inner = matched.only_producer(y, name)
            if inner is None or array(outer) is None or y.type != matched.call.type:
                continue
            for x, constant in (inner.args, inner.args[::-1]):
                if array(constant) is None or array(x) is not None or x.type != y.type:
                    continue
                if name == "add" and not (_is_small(constant) and _is_small(outer)):
                    continue
                merged = matched.bind(name, (constant, outer))
                if name == "mul" and not _is_sound(merged, constant, outer):
                    continue
                return matched.make(name, (x, merged))
        return None

    return rule


def _is_small(offset: Expr) -> bool:
    """Whether another order of adding this constant changes results by rounding errors only."""
    value = array(offset)
    if value is None or value.dtype.kind in "iub":
        return value is not None
    return value.dtype.itemsize >= 4 and bool((np.abs(value) <= _SMALL).all())


def _is_sound(product: Expr, *factors: Expr) -> bool:
    """Whether a product of constants is zero only where a factor is, and normal everywhere else.

    A product that is not computed yet, for want of an evaluator, is not known to be.
    """
    value = array(product)
    arrays = [array(f) for f in factors]
    if value is None or value.dtype.kind in "iub":
        return value is not None
    if value.dtype.itemsize < 4:
        return False
    zero = np.zeros(value.shape, bool)
    for f in arrays:
        assert f is not None, "the factors are constants"
        zero = zero | (f == 0)
    magnitude = np.abs(value)
    limits = np.finfo(value.dtype)
    return bool((zero | ((magnitude >= limits.tiny) & (magnitude <= limits.max))).all())


def _subtracted(matched: RuleMatch) -> Expr | None:
    """X - c = x + (-c): so that it meets other offsets."""
    x, y = matched.args
    if array(y) is None or matched.type is None or not matched.type.dtype.is_signed:
        return None
    return matched.make("add", (x, matched.bind("neg", (y,))))


RULES: dict[str, tuple[Rule, ...]] = {
    "batch_norm": (_batch_norm,),
    "mul": (_merged("mul"), _scaled_weights, _scaled_bias),
    "add": (_merged("add"),),
    "sub": (_subtracted,),
}
