"""Operators that do nothing, undo each other, or are a cheaper one in disguise.

The values are the same to the bit, except that adding zero to minus zero gives zero, and that powers are
rounded otherwise.
"""

from __future__ import annotations

import math

import numpy as np

from inlay.ir import make
from inlay.ir.expr import Expr
from inlay.ir.types import TensorType
from inlay.ops.activations import ClipAttrs
from inlay.ops.elementwise import CastAttrs
from inlay.transforms._rules.rule_match import Rule, RuleMatch, array, attrs_of, is_exactly, scalar


def _all_equal(atom: Expr, number: float) -> bool:
    """Whether an atom is a constant tensor with this number in every element."""
    value = array(atom)
    return value is not None and value.dtype != object and bool((value == number).all())


def _right_identity(number: float) -> Rule:
    def rule(matched: RuleMatch) -> Expr | None:
        x, y = matched.args
        return x if x.type == matched.call.type and _all_equal(y, number) else None

    return rule


def _left_identity(number: float) -> Rule:
    def rule(matched: RuleMatch) -> Expr | None:
        x, y = matched.args
        return y if y.type == matched.call.type and _all_equal(x, number) else None

    return rule


def _involution(name: str) -> Rule:
    """f(f(x)) = x."""

    def rule(matched: RuleMatch) -> Expr | None:
        inner = matched.producer(matched.args[0], name)
        return None if inner is None else inner.args[0]

    return rule


def _idempotent(name: str) -> Rule:
    """f(f(x)) = f(x)."""

    def rule(matched: RuleMatch) -> Expr | None:
        return None if matched.producer(matched.args[0], name) is None else matched.args[0]

    return rule


def _power(matched: RuleMatch) -> Expr | None:
    """Small whole powers are products, and the power of a half is a root."""
    x, y = matched.args
    if matched.type is None or not matched.type.dtype.is_float or x.type != matched.type:
        return None
    match scalar(y):
        case 1.0:
            return x
        case 2.0:
            return matched.make("mul", (x, x))
        case 3.0:
            return matched.make("mul", (matched.bind("mul", (x, x)), x))
        case -1.0:
            return matched.make("reciprocal", (x,))
        case 0.5:
            # Minus zero has the power zero, and minus infinity infinity; neither has such a root.
            root = matched.bind("abs", (matched.bind("sqrt", (x,)),))
            low, high = (
                make.const(np.asarray(n), matched.type.dtype, place=y.place) for n in (-np.inf, np.inf)
            )
            return matched.make("select", (matched.bind("equal", (x, low)), high, root))
        case _:
            return None


def _division(matched: RuleMatch) -> Expr | None:
    """Dividing by a power of two is multiplying by its inverse, exactly."""
    x, y = matched.args
    number = scalar(y)
    if number is None or number == 0 or matched.type is None or not matched.type.dtype.is_float:
        return None
    fraction, exponent = np.frexp(number)
    if abs(fraction) != 0.5 or abs(int(exponent)) > 10:
        return None
    value = array(y)
    assert value is not None, "a constant with a number has an array"
    inverse = (1 / value.astype(np.float64)).reshape(value.shape)
    constant = make.const(inverse, matched.type.dtype, span=y.span, place=y.place)
    return matched.make("mul", (x, constant))


def _reciprocal_division(matched: RuleMatch) -> Expr | None:
    """X / sqrt(y) stays; 1 / x is a reciprocal."""
    x, y = matched.args
    if is_exactly(x, 1.0) and y.type == matched.call.type and matched.type is not None:
        return matched.make("reciprocal", (y,)) if matched.type.dtype.is_float else None
    return None


def _cast(matched: RuleMatch) -> Expr | None:
    """A cast to the same format, or over a format that held every value."""
    x = matched.args[0]
    if x.type == matched.call.type:
        return x
    inner = matched.producer(x, "cast")
    if inner is None:
        return None
    source = inner.args[0].type
    assert isinstance(source, TensorType), "a cast of a tensor"
    assert isinstance(x.type, TensorType), "a cast of a tensor"
    if not x.type.dtype.holds(source.dtype):
        return None
    if source == matched.call.type:
        return inner.args[0]
    return matched.make("cast", (inner.args[0],), matched.attrs(CastAttrs))


def _relu_of_clip(matched: RuleMatch) -> Expr | None:
    """max(clip(x), 0) is a clip with another lower end."""
    inner = matched.only_producer(matched.args[0], "clip")
    if inner is None:
        return None
    bounds = attrs_of(inner, ClipAttrs)
    if bounds.low >= 0:
        return matched.args[0]
    return matched.make("clip", inner.args, ClipAttrs(0.0, max(bounds.high, 0.0)))


def _clip_of_clip(matched: RuleMatch) -> Expr | None:
    bounds = matched.attrs(ClipAttrs)
    inner = matched.only_producer(matched.args[0], "clip")
    if inner is None:
        return None
    before = attrs_of(inner, ClipAttrs)
    low = min(max(before.low, bounds.low), bounds.high)
    high = min(max(before.high, bounds.low), bounds.high)
    return matched.make("clip", inner.args, ClipAttrs(low, high))


def _clip_as_relu(matched: RuleMatch) -> Expr | None:
    if matched.attrs(ClipAttrs) == ClipAttrs(0.0):
        return matched.make("relu", matched.args)
    return None


def _bound(matched: RuleMatch) -> Expr | None:
    """maximum(x, 0) is relu."""
    for x, y in (matched.args, matched.args[::-1]):
        if _all_equal(y, 0.0) and x.type == matched.call.type and matched.type is not None:
            return matched.make("relu", (x,)) if matched.type.dtype.is_float else None
    return None


RULES: dict[str, tuple[Rule, ...]] = {
    "add": (_right_identity(0.0), _left_identity(0.0)),
    "sub": (_right_identity(0.0),),
    "mul": (_right_identity(1.0), _left_identity(1.0)),
    "div": (_right_identity(1.0), _division, _reciprocal_division),
    "pow": (_power,),
    "neg": (_involution("neg"),),
    "logical_not": (_involution("logical_not"),),
    "bitwise_not": (_involution("bitwise_not"),),
    "relu": (_idempotent("relu"), _relu_of_clip),
    "abs": (_idempotent("abs"),),
    "floor": (_idempotent("floor"),),
    "ceil": (_idempotent("ceil"),),
    "round": (_idempotent("round"),),
    "cast": (_cast,),
    "clip": (_clip_as_relu, _clip_of_clip),
    "maximum": (_right_identity(-math.inf), _left_identity(-math.inf), _bound),
    "minimum": (_right_identity(math.inf), _left_identity(math.inf)),
}
