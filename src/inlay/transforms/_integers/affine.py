"""Sums of scaled integers and constants: what a real tensor is before it is rounded."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from inlay.arith.dtype import I8, I32
from inlay.arith.expr import lit, product
from inlay.ir.expr import Call, Expr
from inlay.ops.convolution import ConvAttrs
from inlay.ops.normalization import BatchNormAttrs
from inlay.ops.pooling import AveragePoolAttrs
from inlay.ops.reduction import ReduceAttrs
from inlay.transforms._integers.numbers import Factor, StaysFloat, Whole, check_range, factor_of, one, type_of
from inlay.transforms._integers.products import narrow, padded
from inlay.transforms._integers.scene import Scene
from inlay.transforms._integers.wholes import whole, widened
from inlay.transforms._rules.rule_match import attrs_of


@dataclass(frozen=True, slots=True, eq=False)
class Affine:
    """A real tensor: integers, each less its zero point and times its scale and a factor, and constants.

    Attributes:
        terms: integers and factors.
        constant: in f64, of a shape that broadcasts to the tensor.
    """

    terms: tuple[tuple[Whole, Factor], ...]
    constant: np.ndarray

    def scaled(self, factor: Factor) -> Affine:
        """Return it times a factor."""
        spread = factor.spread()
        return Affine(tuple([(w, f.times(factor)) for w, f in self.terms]), self.constant * spread)


_ZERO = np.zeros((), np.float64)


def affine(scene: Scene, atom: Expr) -> Affine:
    """Return a real tensor as a sum.

    Raises:
        StaysFloat: where it is none.
    """
    found, inner = scene.call(atom), scene.deeper()
    values = scene.reals(atom)
    if values is not None:
        return Affine((), values)
    rule = None if found is None or inner is None else _RULES.get(found[0])
    if found is None or inner is None or rule is None:
        return Affine(((whole(scene, atom), one(1.0)),), _ZERO)
    try:
        return rule(inner, found[1])
    except StaysFloat as why:
        why.at = why.at or atom
        raise


def _add(scene: Scene, call: Call) -> Affine:
    a, b = (affine(scene, e) for e in call.args)
    return Affine(a.terms + b.terms, np.asarray(a.constant + b.constant))


def _sub(scene: Scene, call: Call) -> Affine:
    a, b = (affine(scene, e) for e in call.args)
    minus = b.scaled(one(-1.0))
    return Affine(a.terms + minus.terms, np.asarray(a.constant + minus.constant))


def _neg(scene: Scene, call: Call) -> Affine:
    return affine(scene, call.args[0]).scaled(one(-1.0))


def _mul(scene: Scene, call: Call) -> Affine:
    for x, c in (call.args, call.args[::-1]):
        values = scene.reals(c)
        if values is not None:
            return _times(scene, x, values)
    return Affine(((_product(scene, call), one(1.0)),), _ZERO)


def _div(scene: Scene, call: Call) -> Affine:
    values = scene.reals(call.args[1])
    if values is None or not np.all(values != 0):
        raise StaysFloat("float-operator", "div by what is computed stays float")
    return _times(scene, call.args[0], 1.0 / values)


def _times(scene: Scene, x: Expr, values: np.ndarray) -> Affine:
    factor = factor_of(values, len(type_of(x).shape))
    if factor is None or (not factor.is_one and type_of(x).shape[factor.axis] != lit(factor.values.size)):
        raise StaysFloat("axes-of-scales", "it is multiplied by a constant for each element")
    return affine(scene, x).scaled(factor)


def _product(scene: Scene, call: Call) -> Whole:
    a, b = (whole(scene, e) for e in call.args)
    ends = [p * q for p in a.ends() for q in b.ends()]
    check_range(min(ends), max(ends), "products of elements")
    scale = a.scale.times(b.scale)
    atom = scene.bind("mul", (widened(scene, a), widened(scene, b)))
    return Whole(scene.keep(atom, min(ends), max(ends)), scale, one(0), min(ends), max(ends))


def _batch_norm(scene: Scene, call: Call) -> Affine:
    attrs = attrs_of(call, BatchNormAttrs)
    x, rank = call.args[0], len(type_of(call.args[0]).shape)
    found = [scene.reals(p) for p in call.args[1:]]
    scale, bias, mean, variance = (np.zeros(0) if v is None else v for v in found)
    if any(v is None for v in found):
        raise StaysFloat("float-operator", "batch_norm with computed statistics stays float")
    factor = scale / np.sqrt(variance + attrs.epsilon)
    axis = attrs.axis % rank - rank
    scaled = affine(scene, x).scaled(Factor(factor, axis))
    offset = Factor(bias - mean * factor, axis).spread()
    return Affine(scaled.terms, np.asarray(scaled.constant + offset))


def _mean(scene: Scene, call: Call) -> Affine:
    """A mean is a sum and a factor."""
    attrs = attrs_of(call, ReduceAttrs)
    x = whole(scene, call.args[0])
    shape = type_of(call.args[0]).shape
    terms = product([shape[a] for a in attrs.axes]).value
    if not terms:
        raise StaysFloat("range", "the number of elements of a mean is not known")
    total = _reduced(scene, x, attrs, terms)
    return Affine(((total, one(1.0 / terms)),), _ZERO)


def _sum(scene: Scene, call: Call) -> Affine:
    attrs = attrs_of(call, ReduceAttrs)
    x = whole(scene, call.args[0])
    shape = type_of(call.args[0]).shape
    terms = product([shape[a] for a in attrs.axes]).value
    if terms is None:
        raise StaysFloat("range", "the number of elements of a sum is not known")
    return Affine(((_reduced(scene, x, attrs, terms), one(1.0)),), _ZERO)


def _average_pool(scene: Scene, call: Call) -> Affine:
    """A mean of windows is a convolution of each channel with ones, and a factor."""
    attrs = attrs_of(call, AveragePoolAttrs)
    x, t = narrow(scene, call.args[0]), type_of(call.args[0])
    channels = t.shape[1].value
    if attrs.channels_last or channels is None:
        raise StaysFloat("format", "its channels are last, or their number is not known")
    if attrs.ceil_mode or (any(attrs.pads) and not attrs.count_include_pad):
        raise StaysFloat("windows", "the mean of a window at the edge is over fewer elements")
    terms = math.prod(attrs.kernel)
    zero, source = x.one_zero(), x.atom
    if zero and any(attrs.pads):
        source = padded(scene, source, attrs.pads, scene.number(zero, x.dtype))
    conv = ConvAttrs(attrs.strides, () if source is not x.atom else attrs.pads, attrs.dilations, channels)
    ones = scene.number(np.ones((channels, 1, *attrs.kernel)), I8)
    low, high = min(x.low, zero, 0) * terms, max(x.high, zero, 0) * terms
    check_range(low, high, "sums of elements")
    total = scene.keep(scene.bind("conv_integer", (source, ones), conv), low, high)
    x.one_scale()
    summed = Whole(total, x.scale, one(zero * terms), low, high)
    return Affine(((summed, one(1.0 / terms)),), _ZERO)


def _reduced(scene: Scene, x: Whole, attrs: ReduceAttrs, terms: int) -> Whole:
    """Sum raw integers; the zero point is taken off once behind."""
    low, high = x.low * terms, x.high * terms
    check_range(min(low, 0), max(high, 0), "sums of elements")
    x.one_scale()
    cast = scene.op("cast").attrs_type(dtype=I32)
    wide = x.atom if x.dtype is I32 else scene.bind("cast", (x.atom,), cast)
    total = scene.keep(scene.bind("reduce_sum", (wide,), attrs), low, high)
    return Whole(total, x.scale, one(x.one_zero() * terms), low, high)


_RULES: Mapping[str, Callable[[Scene, Call], Affine]] = {
    "add": _add,
    "sub": _sub,
    "neg": _neg,
    "mul": _mul,
    "div": _div,
    "average_pool": _average_pool,
    "batch_norm": _batch_norm,
    "reduce_mean": _mean,
    "reduce_sum": _sum,
}
