"""The integers that stand for a real tensor, where it is one of integers up to a factor: exactly.

A dequantize says it. What moves elements, or takes the greatest of some, does the same on the integers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from inlay.arith.dtype import I8, I16, I32, U8
from inlay.ir.expr import Call, Expr, OpRef
from inlay.ir.op import Op
from inlay.ops.layout import PermAttrs
from inlay.ops.quantized import DequantizeAttrs
from inlay.ops.resize import Mode, ResizeAttrs
from inlay.transforms._integers.numbers import Factor, StaysFloat, Whole, factor_of, one, smallest, type_of
from inlay.transforms._integers.scene import Scene
from inlay.transforms._integers.signs import taken
from inlay.transforms._rules.rule_match import attrs_of

MOVES = frozenset(
    (
        *(
            "reshape",
            "transpose",
            "slice",
            "flip",
            "tile",
            "broadcast_to",
            "depth_to_space",
            "space_to_depth",
        ),
        *("gather", "gather_elements", "gather_nd", "max_pool", "reduce_max"),
    )
)


def moves(call: Call) -> bool:
    """Whether the results of an operator are elements of its first operand, whatever numbers these are."""
    if operator(call).name == "resize":
        return attrs_of(call, ResizeAttrs).mode is Mode.NEAREST
    return operator(call).name in MOVES


def whole(scene: Scene, atom: Expr) -> Whole:
    """Return the integers that stand for a real tensor.

    Raises:
        StaysFloat: where it is not integers up to a factor.
    """
    found, inner = scene.call(atom), scene.deeper()
    if found is None or inner is None:
        if scene.array(atom) is not None:
            return _integral(scene, atom)
        raise StaysFloat("not-quantized", "an operand is not quantized", atom)
    name, call = found
    if name == "dequantize":
        return _dequantized(scene, call)
    if name == "cast" and type_of(call).dtype.is_float:
        return _cast_to_reals(inner, call.args[0])
    if moves(call):
        return _moved(scene, name, call, whole(inner, call.args[0]))
    rule = _RULES.get(name)
    if rule is None:
        raise StaysFloat("float-operator", f"{name} has no integer form", atom)
    return rule(inner, call)


def operator(call: Call) -> Op:
    """Return the operator that is called."""
    assert isinstance(call.callee, OpRef), "calls of operators"
    return call.callee.op


def attributes(call: Call) -> object:
    """Return the attributes of a call of an operator."""
    assert isinstance(call.callee, OpRef), "calls of operators"
    return call.callee.attrs


def _cast_to_reals(scene: Scene, x: Expr) -> Whole:
    """Return integers that become floats of the same numbers."""
    dtype = type_of(x).dtype
    if scene.is_tensor(x):
        return whole(scene, x)
    if dtype not in (I8, U8, I16):
        raise StaysFloat("not-quantized", f"an operand is a cast of {dtype}", x)
    return taken(scene, Whole(x, one(1.0), one(0), *scene.ends(x)))


def _dequantized(scene: Scene, call: Call) -> Whole:
    q, scale_atom, *zero_atom = call.args
    attrs = attrs_of(call, DequantizeAttrs)
    scale = scene.array(scale_atom)
    zero = scene.array(zero_atom[0]) if zero_atom else np.zeros((), np.int64)
    if scale is None or zero is None:
        raise StaysFloat("computed-scale", "a scale or zero point is computed", q)
    if not np.all(scale > 0) or not np.all(np.isfinite(scale)):
        raise StaysFloat("bad-scale", "a scale is not a positive number", q)
    t = type_of(q)
    axis = attrs.axis % len(t.shape) - len(t.shape) if t.shape else 0
    factors = [Factor(p, axis if p.ndim else 0) for p in (scale.astype(np.float64), zero.astype(np.int64))]
    return taken(scene, Whole(q, factors[0], factors[1], *scene.ends(q)))


def _integral(scene: Scene, atom: Expr) -> Whole:
    """Return a constant of integers that are written as floats."""
    values = scene.reals(atom)
    if values is not None and np.all(np.isfinite(values)) and np.array_equal(values, np.rint(values)):
        dtype = smallest(values, (I8, U8, I16))
        if dtype is not None:
            ends = int(values.min(initial=0)), int(values.max(initial=0))
            return Whole(scene.number(values, dtype), one(1.0), one(0), *ends)
    raise StaysFloat("not-quantized", "an operand is a constant that is not quantized", atom)


# --------------------------------------------------------------------------- constants in front


def _times(scene: Scene, call: Call) -> Whole:
    """A positive factor, one or one for each index of an axis, is one of the scale."""
    for x, c in ((call.args[1], call.args[0]), call.args):
        values = scene.reals(c)
        if values is None or not np.all(values > 0) or type_of(x).shape != type_of(call).shape:
            continue
        factor = factor_of(values, len(type_of(x).shape))
        if factor is not None:
            found = whole(scene, x)
            return replace(found, scale=found.scale.times(factor))
    raise StaysFloat("float-operator", "mul of two tensors has no integer form here")


def _offset(scene: Scene, call: Call) -> Whole:
    """A multiple of the scale is one of the zero point."""
    sign = -1 if operator(call).name == "sub" else 1
    for x, c in (call.args, call.args[::-1])[: 1 if sign < 0 else 2]:
        values = scene.reals(c)
        if values is not None and values.size == 1:
            found = whole(scene, x)
            steps = sign * float(values.reshape(())) / found.one_scale()
            if abs(steps - round(steps)) <= 2.0**-20 and abs(steps) < 1 << 15:
                return replace(found, zero=Factor(found.zero.values - round(steps), found.zero.axis))
    raise StaysFloat("float-operator", f"{operator(call).name} has no integer form here")


# --------------------------------------------------------------------------- what moves elements


def _moved(scene: Scene, name: str, call: Call, x: Whole) -> Whole:
    axis = 0
    if not (x.scale.is_one and x.zero.is_one):
        axis = _axis_behind(name, call, x.scale.axis or x.zero.axis)
    atom = scene.bind(name, (x.atom, *call.args[1:]), attributes(call))
    return Whole(
        scene.keep(atom, x.low, x.high), _turned(x.scale, axis), _turned(x.zero, axis), x.low, x.high
    )


def _turned(f: Factor, axis: int) -> Factor:
    return f if f.is_one else Factor(f.values, axis)


def _axis_behind(name: str, call: Call, axis: int) -> int:
    """Return where an axis is in the result of an operator that moves elements."""
    rank = len(type_of(call.args[0]).shape)
    at = axis + rank
    match attributes(call):
        case PermAttrs(perm=perm) if name == "transpose":
            return perm.index(at) - rank
        case _ if name == "reshape":
            found = _axis_of_reshape(call, at)
            if found is not None:
                return found
        case _:
            pass
    raise StaysFloat("axes-of-scales", f"{name} mixes channels of different scales", call.args[0])


def _axis_of_reshape(call: Call, at: int) -> int | None:
    """Return where an axis is behind a reshape that keeps it; None where it merges or cuts it."""
    old, new = type_of(call.args[0]).shape, type_of(call).shape
    behind = _sizes(old[at + 1 :])
    for axis, d in enumerate(new):
        if d == old[at] and _sizes(new[axis + 1 :]) == behind and behind is not None:
            return axis - len(new)
    return None


def _sizes(dims: Sequence[object]) -> int | None:
    total = 1
    for d in dims:
        size = getattr(d, "value", None)
        if size is None:
            return None
        total *= size
    return total


# --------------------------------------------------------------------------- what compares


def _relu(scene: Scene, call: Call) -> Whole:
    x = whole(scene, call.args[0])
    zero = x.one_zero()
    low, high = max(x.low, zero), max(x.high, zero)
    atom = scene.bind("maximum", (x.atom, scene.number(zero, x.dtype)))
    return Whole(scene.keep(atom, low, high), x.scale, x.zero, low, high)


def _concat(scene: Scene, call: Call) -> Whole:
    parts = [whole(scene, a) for a in call.args]
    first = parts[0]
    for p in parts:
        p.one_scale()
        p.one_zero()
        if not (p.scale.equals(first.scale) and p.zero.equals(first.zero) and p.dtype is first.dtype):
            raise StaysFloat("different-scales", "concat joins tensors of different scales", call.args[0])
    atom = scene.bind("concat", [p.atom for p in parts], attributes(call))
    low, high = min(p.low for p in parts), max(p.high for p in parts)
    return Whole(scene.keep(atom, low, high), first.scale, first.zero, low, high)


def widened(scene: Scene, x: Whole) -> Expr:
    """Return integers less their zero point, in i32."""
    atom = x.atom if x.dtype is I32 else scene.bind("cast", (x.atom,), _cast(scene))
    return scene.keep(biased(scene, atom, -x.zero.spread()), *x.ends())


def biased(scene: Scene, atom: Expr, bias: np.ndarray) -> Expr:
    """Add constant integers to integers of 32 bits; sums wrap, and so may the constants."""
    if not bias.any():
        return atom
    found = scene.call(atom)
    if found is not None and found[0] == "add":
        before = scene.array(found[1].args[1])
        if before is not None:
            atom, bias = found[1].args[0], bias + before.astype(np.int64)
    if not bias.any():
        return atom
    wrapped = bias.astype(np.int64).astype(np.uint64).astype(np.uint32).view(np.int32)
    return scene.bind("add", (atom, scene.number(wrapped, I32)))


def _cast(scene: Scene) -> object:
    return scene.op("cast").attrs_type(dtype=I32)


_RULES: Mapping[str, Callable[[Scene, Call], Whole]] = {
    "relu": _relu,
    "concat": _concat,
    "mul": _times,
    "add": _offset,
    "sub": _offset,
}
