"""A quantize of a real tensor, in integers: requantize of sums; moves and comparisons of what is rounded.

To round is monotone and goes element by element, so it may be done before elements are moved, compared or
clamped: the result is the same. What rounds otherwise than floats do is a sum: once instead of twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from inlay.arith.dtype import F32, I32, DType
from inlay.ir.expr import Call, Expr, Var
from inlay.ir.types import TensorType
from inlay.ops.activations import ClipAttrs
from inlay.ops.padding import PadAttrs, PadMode
from inlay.ops.requantization import RequantizeAttrs
from inlay.transforms._integers.affine import Affine, affine
from inlay.transforms._integers.numbers import GREATEST, LEAST, Factor, StaysFloat, ends_of, one, type_of
from inlay.transforms._integers.scene import Scene
from inlay.transforms._integers.signs import moved_by, other
from inlay.transforms._integers.tables import tabulated
from inlay.transforms._integers.wholes import attributes, biased, moves, operator, widened
from inlay.transforms._rules.rule_match import attrs_of

_ROOM = 30
"""Bits of sums of several scales: what requantize clamps floats to."""
_FLOAT_ROOM = 24
"""Bits of sums that floats of 32 bits hold: kernels add them up there, which is faster."""
_FINE = 2.0**-6
"""Steps of the result by which sums of several scales may be off before they are rounded."""
_BIAS = 2.0**-4
"""Steps of the result by which a bias may be off that is rounded to a step of its accumulator."""
_NOWHERE = 2.0**-4
"""Steps of the result by which integers may be off that are taken as they are: surely less than a half."""
_NOTHING = 2.0**-20
"""Steps by which numbers are off that were meant to be whole."""


@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """What a real tensor is rounded to.

    Attributes:
        dtype: of the result.
        scale: one, or one for each channel.
        zero: added after rounding.
        low, high: ends of the result: those of its format, and of activations that clamp.
    """

    dtype: DType
    scale: Factor
    zero: int
    low: int
    high: int

    def of(self, values: np.ndarray) -> np.ndarray:
        """Return constants rounded to it."""
        whole = np.rint(values / self.scale.spread()) + self.zero
        return np.clip(whole, self.low, self.high)

    def turned(self) -> Target:
        """Return the same with bytes of the other format."""
        to = other(self.dtype)
        by = moved_by(to)
        return Target(to, self.scale, self.zero + by, self.low + by, self.high + by)

    def clamped(self, low: float, high: float) -> Target:
        """Return the target of what is clamped to these reals first."""
        if not self.scale.is_one:
            raise StaysFloat("several-scales", "a clamp before channels of different scales")
        ends = self.of(np.asarray([low, high]))
        return replace(self, low=int(ends[0]), high=int(ends[1]))


def rounded(scene: Scene, atom: Expr, target: Target) -> Expr:
    """Return a real tensor rounded to a target.

    Raises:
        StaysFloat: where a part of it cannot be computed in integers.
    """
    values = scene.reals(atom)
    if values is not None:
        return scene.number(target.of(values), target.dtype)
    found, inner = scene.call(atom), scene.deeper()
    if found is None or inner is None:
        raise StaysFloat("not-quantized", "an operand is not quantized", atom)
    name, call = found
    rule = _RULES.get(name)
    if rule is not None:
        made = rule(inner, call, target)
        if made is not None:
            return made
    if moves(call) and (target.scale.is_one or name == "max_pool"):
        return scene.bind(name, (rounded(inner, call.args[0], target), *call.args[1:]), attributes(call))
    before = len(scene.known.made)
    try:
        return _of_sum(scene, affine(scene, atom), target)
    except StaysFloat as refusal:
        del scene.known.made[before:]
        made = tabulated(scene, atom, target.dtype, target.scale, target.zero)
        if made is not None:
            return within(scene, made, target)
        last = _IN_FRONT.get(name)
        made = None if last is None else last(inner, call, target)
        if made is None:
            raise refusal from None
        return made


# --------------------------------------------------------------------------- what rounding commutes with


def _relu(scene: Scene, call: Call, target: Target) -> Expr:
    return rounded(scene, call.args[0], target.clamped(0.0, np.inf))


def _clip(scene: Scene, call: Call, target: Target) -> Expr:
    attrs = attrs_of(call, ClipAttrs)
    return rounded(scene, call.args[0], target.clamped(attrs.low, attrs.high))


def _extreme(scene: Scene, call: Call, target: Target) -> Expr | None:
    """The lesser or greater: of a number, which clamps; of two tensors, which are rounded first."""
    is_least = operator(call) is scene.op("minimum")
    for x, c in (call.args, call.args[::-1]):
        values = scene.reals(c)
        if values is not None and values.size == 1 and values.ndim <= len(type_of(x).shape):
            end = float(values.reshape(()))
            ends = (-np.inf, end) if is_least else (end, np.inf)
            return rounded(scene, x, target.clamped(*ends))
    if not target.scale.is_one:
        return None
    a, b = (rounded(scene, e, target) for e in call.args)
    return scene.bind("minimum" if is_least else "maximum", (a, b))


def _factor(scene: Scene, call: Call, target: Target) -> Expr | None:
    """A positive factor is one of the steps of the target."""
    is_quotient = operator(call).name == "div"
    for x, c in (call.args, call.args[::-1])[: 1 if is_quotient else 2]:
        number = _number(scene, call, x, c)
        if number is not None and number > 0 and np.isfinite(number):
            scale = target.scale.times(one(number if is_quotient else 1.0 / number))
            return rounded(scene, x, replace(target, scale=scale))
    return None


def _offset(scene: Scene, call: Call, target: Target) -> Expr | None:
    """Whole steps of the target are added behind rounding."""
    sign = -1 if operator(call).name == "sub" else 1
    for x, c in (call.args, call.args[::-1])[: 1 if sign < 0 else 2]:
        number = _number(scene, call, x, c)
        if number is None or not target.scale.is_one:
            continue
        steps = sign * number / float(target.scale.values)
        if abs(steps - np.rint(steps)) <= _NOTHING and abs(steps) < 1 << 16:
            return rounded(scene, x, replace(target, zero=target.zero + int(np.rint(steps))))
    return None


def _number(scene: Scene, call: Call, x: Expr, c: Expr) -> float | None:
    """Return the one number that an operator has beside a tensor of the shape of its result."""
    values = scene.reals(c)
    alone = values is not None and values.size == 1 and type_of(x).shape == type_of(call).shape
    return float(values.reshape(())) if values is not None and alone else None


def _concat(scene: Scene, call: Call, target: Target) -> Expr | None:
    if not target.scale.is_one:
        return None
    return scene.bind("concat", [rounded(scene, a, target) for a in call.args], attributes(call))


def _pad(scene: Scene, call: Call, target: Target) -> Expr | None:
    attrs = attrs_of(call, PadAttrs)
    if not target.scale.is_one:
        return None
    source, pads, *fill = call.args
    x = rounded(scene, source, target)
    if attrs.mode is not PadMode.CONSTANT:
        return scene.bind("pad", (x, pads), attrs)
    value = scene.reals(fill[0]) if fill else np.zeros(())
    if value is None:
        raise StaysFloat("float-operator", "pad with a computed value stays float")
    return scene.bind("pad", (x, pads, scene.number(target.of(value), target.dtype)), attrs)


def _select(scene: Scene, call: Call, target: Target) -> Expr | None:
    if not target.scale.is_one:
        return None
    condition, *parts = call.args
    return scene.bind("select", (condition, *(rounded(scene, e, target) for e in parts)))


_RULES: Mapping[str, Callable[[Scene, Call, Target], Expr | None]] = {
    "relu": _relu,
    "clip": _clip,
    "minimum": _extreme,
    "maximum": _extreme,
    "concat": _concat,
    "pad": _pad,
    "select": _select,
}


_IN_FRONT: Mapping[str, Callable[[Scene, Call, Target], Expr | None]] = {
    "mul": _factor,
    "div": _factor,
    "add": _offset,
    "sub": _offset,
}
"""Where what they apply to is no sum of integers: an offset behind rounding moves ties to even by a step."""

# --------------------------------------------------------------------------- sums


def _of_sum(scene: Scene, total: Affine, target: Target) -> Expr:
    if not total.terms:
        return scene.number(target.of(total.constant), target.dtype)
    if len(total.terms) == 1:
        made = _of_one(scene, total, target)
        if made is not None:
            return made
    return _of_several(scene, total, target)


def _of_one(scene: Scene, total: Affine, target: Target) -> Expr | None:
    """Requantize one term, its constant as a bias; None where the bias would be too coarse."""
    ((x, factor),) = total.terms
    unit = x.scale.times(factor)
    ratio = unit.over(target.scale)
    if total.constant.any():
        bias = total.constant / unit.spread()
        exact = np.rint(bias)
        error = np.abs((bias - exact) * ratio.spread()).max(initial=0.0)
        if error > _BIAS:
            return None
        least, most = x.ends()
        low, high = least + int(exact.min()), most + int(exact.max())
        if low < LEAST or high > GREATEST:
            raise StaysFloat(
                "range", f"sums with their bias can reach {low} to {high}, beyond 32 bits", x.atom
            )
        atom = scene.keep(biased(scene, widened(scene, x), exact), low, high)
        return _requantize(scene, atom, ratio, target)
    # A factor that near 1 leaves every integer as it is.
    is_one = ratio.is_one and abs(float(ratio.values) - 1.0) * x.reach() < _NOWHERE
    if is_one and x.zero.is_one and x.dtype is target.dtype and x.one_zero() == target.zero:
        return within(scene, x.atom, target)
    return _requantize(scene, widened(scene, x), ratio, target)


def _of_several(scene: Scene, total: Affine, target: Target) -> Expr:
    """Bring terms to one scale, steps of the result divided by a power of two, and requantize their sum."""
    ratios = [x.scale.times(f).over(target.scale) for x, f in total.terms]
    constant = total.constant / target.scale.spread()
    size = float(np.abs(constant).max(initial=0.0))
    for (x, _), ratio in zip(total.terms, ratios, strict=True):
        size += float(np.abs(ratio.values).max()) * x.reach()
    whole = int(np.ceil(np.log2(max(size, 2.0**-20))))
    bits, exact = _FLOAT_ROOM - whole, _are_fine(total, _FLOAT_ROOM - whole)
    rounding = 0.5 * sum(x.reach() + 1 for x, _ in total.terms)
    if not all(exact) or size * 2.0**bits + rounding > 2.0**_FLOAT_ROOM:
        bits, exact = _ROOM - 1 - whole, _are_fine(total, _ROOM - 1 - whole)
    if bits < 0 or 2.0**-bits > _FINE:
        raise StaysFloat(
            "range", f"a sum of {size:.0f} steps leaves no room for fractions", total.terms[0][0].atom
        )
    parts: list[Expr] = []
    for (x, _), ratio, fine in zip(total.terms, ratios, exact, strict=True):
        wide, scaled = widened(scene, x), ratio.times(one(2.0**bits))
        if fine:
            factor = scene.number(np.rint(scaled.spread()), I32)
            parts.append(scene.bind("mul", (wide, factor)))
        else:
            everything = Target(I32, scaled, 0, LEAST, GREATEST)
            parts.append(_requantize(scene, wide, scaled, everything))
    joined = parts[0]
    for part in parts[1:]:
        joined = scene.bind("add", (joined, part))
    if constant.any():
        joined = scene.bind("add", (joined, scene.number(np.rint(constant * 2.0**bits), I32)))
    most = int(size * 2.0**bits) + len(parts)
    scene.keep(joined, -most, most)
    return _requantize(scene, joined, one(2.0**-bits), target)


def _are_fine(total: Affine, bits: int) -> list[bool]:
    """Return of which terms the factors may be rounded to integers, in steps of so many bits.

    What a factor is off by is times the greatest number that it multiplies.
    """
    least = _FINE * 2.0**bits / (2 * len(total.terms))
    return [x.reach() * 0.5 <= least for x, _ in total.terms]


def _requantize(scene: Scene, atom: Expr, ratio: Factor, target: Target) -> Expr:
    values = ratio.values.astype(np.float32)
    if not np.all(np.isfinite(values)) or not np.all(values):
        raise StaysFloat("bad-scale", "a factor between two scales is no normal number", atom)
    low, high = ends_of(target.dtype)
    attrs = RequantizeAttrs(
        target.dtype,
        target.zero,
        target.low if target.low > low else None,
        target.high if target.high < high else None,
        axis=ratio.axis or -1,
    )
    if isinstance(atom, Var):
        scene.known.ends = scene.known.sums.get(atom, (LEAST, GREATEST))
    made = scene.bind("requantize", (atom, scene.number(values, F32)), attrs)
    return scene.keep(made, target.low, target.high)


def within(scene: Scene, atom: Expr, target: Target) -> Expr:
    """Clamp integers of the format of the target to its ends."""
    assert isinstance(atom.type, TensorType)
    low, high = ends_of(target.dtype)
    if target.low > low:
        atom = scene.bind("maximum", (atom, scene.number(target.low, target.dtype)))
    if target.high < high:
        atom = scene.bind("minimum", (atom, scene.number(target.high, target.dtype)))
    return scene.keep(atom, target.low, target.high) if (target.low, target.high) != (low, high) else atom
