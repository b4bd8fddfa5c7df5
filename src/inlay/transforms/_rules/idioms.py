"""Operators that exporters spell out: normalizations, activations, softmax.

Each rule starts at the last operator of the spelled-out form and looks at what is behind it. The
result is the same up to rounding: sums are taken in another order, and an approximation of a function
is replaced by the same approximation.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from inlay.arith.expr import lit, product
from inlay.ir import make
from inlay.ir.expr import Call, Const, Expr
from inlay.ir.types import TensorType
from inlay.ops.activations import AlphaBetaAttrs, ClipAttrs, GeluAttrs, GeluForm
from inlay.ops.normalization import AxisAttrs, GroupNormAttrs, InstanceNormAttrs, LayerNormAttrs
from inlay.ops.reduction import ReduceAttrs
from inlay.transforms._rules.rule_match import (
    Rule,
    RuleMatch,
    attrs_of,
    is_about,
    is_exactly,
    rank,
    scalar,
    shape_of,
)


def _swapped(call: Call) -> Iterator[tuple[Expr, Expr]]:
    """Yield the operands of a commutative operator in both orders."""
    x, y = call.args
    yield x, y
    if x is not y:
        yield y, x


def _trailing(call: Call, x: Expr) -> int | None:
    """Return the first axis of a reduction over all trailing axes that keeps them, else None."""
    attrs = attrs_of(call, ReduceAttrs)
    axes = sorted(a % rank(x) for a in attrs.axes)
    first = rank(x) - len(axes)
    return first if attrs.keepdims and axes and axes == list(range(first, rank(x))) else None


# --------------------------------------------------------------------------- layer norm


def _square_of(matched: RuleMatch, atom: Expr) -> Expr | None:
    """Return x of x * x or pow(x, 2)."""
    product = matched.producer(atom, "mul")
    if product is not None and product.args[0] is product.args[1]:
        return product.args[0]
    power = matched.producer(atom, "pow")
    if power is not None and is_exactly(power.args[1], 2.0):
        return power.args[0]
    return None


def _root_of_mean_square(matched: RuleMatch, atom: Expr) -> tuple[Expr, int, float] | None:
    """Return x, the axis and epsilon of sqrt(mean(x * x) + epsilon)."""
    root = matched.producer(atom, "sqrt")
    total = None if root is None else matched.producer(root.args[0], "add")
    if total is None:
        return None
    for mean_atom, epsilon_atom in _swapped(total):
        epsilon = scalar(epsilon_atom)
        mean = matched.producer(mean_atom, "reduce_mean")
        if epsilon is None or mean is None:
            continue
        x = _square_of(matched, mean.args[0])
        axis = None if x is None else _trailing(mean, x)
        if x is not None and axis is not None:
            return x, axis, epsilon
    return None


def _normalized(matched: RuleMatch) -> tuple[Expr, int, float] | None:
    """Return x, axis and epsilon of x / rms(x), or of x * (1 / rms(x))."""
    pairs: list[tuple[Expr, Expr]] = []
    if matched.name == "div":
        pairs.append((matched.args[0], matched.args[1]))
    for x, y in _swapped(matched.call) if matched.name == "mul" else ():
        inverse = matched.producer(y, "reciprocal")
        if inverse is not None:
            pairs.append((x, inverse.args[0]))
    for x, root in pairs:
        found = _root_of_mean_square(matched, root)
        if found is not None and found[0] is x and x.type == matched.call.type:
            return found
    return None


def _norm(matched: RuleMatch) -> Expr | None:
    """(x - mean) / sqrt(mean of squares + epsilon) is layer_norm; without the mean, rms_norm."""
    found = _normalized(matched)
    if found is None:
        return None
    centered_atom, axis, epsilon = found
    attrs = LayerNormAttrs(axis - rank(centered_atom), epsilon)
    x = _centered(matched, centered_atom, axis)
    if x is not None:
        return matched.make("layer_norm", (x,), attrs)
    return matched.make("rms_norm", (centered_atom,), attrs)


def _centered(matched: RuleMatch, atom: Expr, axis: int) -> Expr | None:
    """Return x of x - mean(x) over the trailing axes from `axis`."""
    difference = matched.producer(atom, "sub")
    if difference is None:
        return None
    x, mean_atom = difference.args
    mean = matched.producer(mean_atom, "reduce_mean")
    if mean is None or mean.args[0] is not x or _trailing(mean, x) != axis:
        return None
    return x


def _scaled_norm(matched: RuleMatch) -> Expr | None:
    """layer_norm(x) * scale, where scale has the shape of the normalized axes."""
    for y, scale in _swapped(matched.call):
        for name in ("layer_norm", "rms_norm"):
            inner = matched.only_producer(y, name)
            if inner is None or len(inner.args) != 1 or y.type != matched.call.type:
                continue
            attrs = attrs_of(inner, LayerNormAttrs)
            if _fits(scale, y, attrs.axis):
                return matched.make(name, (inner.args[0], scale), attrs)
    return None


def _biased_norm(matched: RuleMatch) -> Expr | None:
    """layer_norm(x, scale) + bias."""
    for y, bias in _swapped(matched.call):
        inner = matched.only_producer(y, "layer_norm")
        if inner is None or len(inner.args) != 2 or y.type != matched.call.type:
            continue
        attrs = attrs_of(inner, LayerNormAttrs)
        if _fits(bias, y, attrs.axis):
            return matched.make("layer_norm", (*inner.args, bias), attrs)
    return None


def _fits(parameter: Expr, x: Expr, axis: int) -> bool:
    """Whether a parameter has exactly the shape of the trailing axes of x."""
    if not isinstance(parameter.type, TensorType):
        return False
    return shape_of(parameter) == shape_of(x)[axis % rank(x) :]


# --------------------------------------------------------------------------- group norm


def _grouped_norm(matched: RuleMatch) -> Expr | None:
    """instance_norm of `[n, g, r]`, whose rows are channels of an image in g groups, is group_norm of it."""
    norm = matched.only_producer(matched.args[0], "instance_norm")
    grouped = None if norm is None else matched.producer(norm.args[0], "reshape")
    if norm is None or grouped is None:
        return None
    x, rows = grouped.args[0], norm.args[0].type
    assert isinstance(x.type, TensorType), "a reshape of a tensor"
    assert isinstance(rows, TensorType), "what is normalized is a tensor"
    if x.type != matched.call.type or rank(x) < 3 or len(rows.shape) != 3:
        return None
    n, c, *image = x.type.shape
    groups, channels = rows.shape[1].value, c.value
    if groups is None or channels is None or groups == 0 or channels % groups:
        return None
    each = channels // groups
    weights = [w.value for w in norm.args[1:] if isinstance(w, Const) and isinstance(w.value, np.ndarray)]
    if rows.shape != (n, lit(groups), product((each, *image))) or len(weights) < len(norm.args) - 1:
        return None
    wide = [make.const(np.repeat(w, each)) for w in weights]
    attrs = GroupNormAttrs(groups, attrs_of(norm, InstanceNormAttrs).epsilon)
    return matched.make("group_norm", (x, *wide), attrs)


# --------------------------------------------------------------------------- activations


def _factors(matched: RuleMatch, atom: Expr | Call, depth: int = 3) -> list[Expr]:
    """Return the factors of a product of up to four, halvings and doublings included."""
    call = atom if isinstance(atom, Call) else matched.producer(atom, "mul")
    if call is None or depth == 0:
        assert not isinstance(atom, Call), "a call is a product to begin with"
        return [atom]
    return [f for x in call.args for f in _factors(matched, x, depth - 1)]


def _gelu(matched: RuleMatch) -> Expr | None:
    """X * 0.5 * (1 + erf(x / sqrt 2)), and the form with tanh, in any order of the factors."""
    factors = _factors(matched, matched.call)
    if len(factors) != 3:
        return None
    for i, half in enumerate(factors):
        if not is_exactly(half, 0.5):
            continue
        rest = [f for j, f in enumerate(factors) if j != i]
        for x, gate in (rest, rest[::-1]):
            form = _gelu_gate(matched, gate, x)
            if form is not None and x.type == matched.call.type:
                return matched.make("gelu", (x,), GeluAttrs(form))
    return None


def _gelu_gate(matched: RuleMatch, gate: Expr, x: Expr) -> GeluForm | None:
    """Return which gelu `1 + f(...x...)` belongs to."""
    total = matched.producer(gate, "add")
    for one, inner in _swapped(total) if total is not None else ():
        if not is_exactly(one, 1.0):
            continue
        erf = matched.producer(inner, "erf")
        if erf is not None and _is_scaled(matched, erf.args[0], x, math.sqrt(0.5)):
            return GeluForm.ERF
        tanh = matched.producer(inner, "tanh")
        if tanh is not None and _is_tanh_argument(matched, tanh.args[0], x):
            return GeluForm.TANH
    return None


def _is_scaled(matched: RuleMatch, atom: Expr, x: Expr, factor: float) -> bool:
    """Whether an atom is x times a factor."""
    quotient = matched.producer(atom, "div")
    if quotient is not None:
        return quotient.args[0] is x and is_about(quotient.args[1], 1 / factor)
    product = matched.producer(atom, "mul")
    if product is None:
        return False
    return any(a is x and is_about(b, factor) for a, b in _swapped(product))


def _is_tanh_argument(matched: RuleMatch, atom: Expr, x: Expr) -> bool:
    """Whether an atom is sqrt(2/pi) * (x + 0.044715 * x**3)."""
    product = matched.producer(atom, "mul")
    for factor, inner in _swapped(product) if product is not None else ():
        total = matched.producer(inner, "add")
        if total is None or not is_about(factor, math.sqrt(2 / math.pi)):
            continue
        for a, b in _swapped(total):
            if a is x and _is_cube_term(matched, b, x):
                return True
    return False


def _is_cube_term(matched: RuleMatch, atom: Expr, x: Expr) -> bool:
    """Whether an atom is 0.044715 * x**3."""
    product = matched.producer(atom, "mul")
    if product is None:
        return False
    for factor, cube in _swapped(product):
        if is_about(factor, 0.044715):
            power = matched.producer(cube, "pow")
            if power is not None and power.args[0] is x and is_exactly(power.args[1], 3.0):
                return True
    factors = _factors(matched, product)
    return (
        len(factors) == 4
        and sum(f is x for f in factors) == 3
        and sum(is_about(f, 0.044715) for f in factors) == 1
    )


def _gated(gate: str, activation: str) -> Rule:
    """X * gate(x) is an activation of its own."""

    def rule(matched: RuleMatch) -> Expr | None:
        for x, y in _swapped(matched.call):
            inner = matched.producer(y, gate)
            if inner is not None and inner.args[0] is x:
                return matched.make(activation, (x,))
        return None

    return rule


def _hard_swish(matched: RuleMatch) -> Expr | None:
    """X * hard_sigmoid(x) with slope 1/6 and offset 1/2."""
    for x, y in _swapped(matched.call):
        inner = matched.producer(y, "hard_sigmoid")
        if inner is not None and inner.args[0] is x:
            attrs = attrs_of(inner, AlphaBetaAttrs)
            if abs(attrs.alpha * 6 - 1) < 1e-6 and attrs.beta == 0.5:
                return matched.make("hard_swish", (x,))
    return None


def _clip_gate(matched: RuleMatch) -> Expr | None:
    """clip(x + 3, 0, 6) / 6 is a hard sigmoid; also as a product with 1/6."""
    for clipped, factor in _swapped(matched.call):
        is_quotient = matched.name == "div"
        if is_quotient and clipped is not matched.args[0]:
            continue
        if not is_about(factor, 6.0 if is_quotient else 1 / 6):
            continue
        bounds = matched.producer(clipped, "clip")
        total = None if bounds is None else matched.producer(bounds.args[0], "add")
        if bounds is None or total is None or attrs_of(bounds, ClipAttrs) != ClipAttrs(0.0, 6.0):
            continue
        for x, three in _swapped(total):
            if is_exactly(three, 3.0) and x.type == matched.call.type:
                return matched.make("hard_sigmoid", (x,), AlphaBetaAttrs(1 / 6, 0.5))
    return None


def _late_hard_swish(matched: RuleMatch) -> Expr | None:
    """(x * clip(x + 3, 0, 6)) / 6."""
    product = matched.only_producer(matched.args[0], "mul")
    if product is None or not is_about(matched.args[1], 6.0):
        return None
    for x, clipped in _swapped(product):
        bounds = matched.producer(clipped, "clip")
        total = None if bounds is None else matched.producer(bounds.args[0], "add")
        if bounds is None or total is None or attrs_of(bounds, ClipAttrs) != ClipAttrs(0.0, 6.0):
            continue
        if any(a is x and is_exactly(b, 3.0) for a, b in _swapped(total)):
            return matched.make("hard_swish", (x,))
    return None


def _sigmoid(matched: RuleMatch) -> Expr | None:
    """1 / (1 + exp(-x))."""
    total = matched.producer(matched.args[0], "add")
    for one, e in _swapped(total) if total is not None else ():
        exponential = matched.producer(e, "exp") if is_exactly(one, 1.0) else None
        negated = None if exponential is None else matched.producer(exponential.args[0], "neg")
        if negated is not None and negated.args[0].type == matched.call.type:
            return matched.make("sigmoid", negated.args)
    return None


# --------------------------------------------------------------------------- softmax


def _softmax(matched: RuleMatch) -> Expr | None:
    """exp(x - max(x)) / sum(exp(x - max(x))) along one axis."""
    numerator, total_atom = matched.args
    total = matched.producer(total_atom, "reduce_sum")
    exponential = matched.producer(numerator, "exp")
    if total is None or exponential is None or total.args[0] is not numerator:
        return None
    attrs = attrs_of(total, ReduceAttrs)
    difference = matched.producer(exponential.args[0], "sub")
    if difference is None or not attrs.keepdims or len(attrs.axes) != 1:
        return None
    x, top_atom = difference.args
    top = matched.producer(top_atom, "reduce_max")
    axis = attrs.axes[0] % rank(numerator)
    if top is None or top.args[0] is not x or x.type != matched.call.type:
        return None
    found = attrs_of(top, ReduceAttrs)
    if not found.keepdims or [a % rank(x) for a in found.axes] != [axis]:
        return None
    return matched.make("softmax", (x,), AxisAttrs(axis))


def _log_softmax(matched: RuleMatch) -> Expr | None:
    inner = matched.only_producer(matched.args[0], "softmax")
    if inner is None:
        return None
    return matched.make("log_softmax", inner.args, attrs_of(inner, AxisAttrs))


RULES: dict[str, tuple[Rule, ...]] = {
    "div": (_norm, _softmax, _late_hard_swish, _clip_gate),
    "mul": (_norm, _gelu, _gated("sigmoid", "silu"), _hard_swish, _clip_gate, _scaled_norm),
    "add": (_biased_norm,),
    "reciprocal": (_sigmoid,),
    "log": (_log_softmax,),
    "reshape": (_grouped_norm,),
}
