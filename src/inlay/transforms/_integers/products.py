"""Products in integers: sums without zero points, their bias, and a proof that they stay in 32 bits.

    sum (x - zx) (w - zw)  =  sum x (w - zw)  -  zx * sum (w - zw)

With constant weights `w - zw` is computed here where a byte holds it, and the last term is a bias; where a
convolution pads, it pads with zx. What sums can reach follows from the actual weights.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from inlay.arith.dtype import F32, I16, I32, U16, DType
from inlay.ir import make
from inlay.ir.expr import Call, Expr
from inlay.ops.convolution import ConvAttrs
from inlay.ops.padding import PadAttrs
from inlay.ops.quantized import FACTORS, DequantizeAttrs
from inlay.transforms._integers.numbers import (
    Factor,
    StaysFloat,
    Whole,
    check_range,
    ends_of,
    one,
    smallest,
    type_of,
)
from inlay.transforms._integers.scene import Scene
from inlay.transforms._integers.signs import is_turned, moved_by, other, turned
from inlay.transforms._integers.wholes import biased, whole
from inlay.transforms._rules.rule_match import attrs_of


@dataclass(frozen=True, slots=True, eq=False)
class Weights:
    """Constant integers that something is multiplied by.

    Attributes:
        numbers: less their zero points.
        atom: the operand.
        zero: its zero points, where they could not be taken off; else None.
    """

    numbers: np.ndarray
    atom: Expr
    zero: Expr | None


def real_product(scene: Scene, name: str, call: Call) -> Expr:
    """Return a product of reals as one of integers, scaled once.

    Raises:
        StaysFloat: where operands are no integers up to a factor, or sums might leave 32 bits.
    """
    total = _conv(scene, call) if name == "conv" else _matmul(scene, call)
    return as_reals(scene, total, type_of(call).dtype)


def as_reals(scene: Scene, x: Whole, dtype: DType) -> Expr:
    """Return the reals that integers without a zero point stand for."""
    scale = scene.number(x.scale.values, F32)
    real = scene.block.make(scene.op("dequantize"), (x.atom, scale), DequantizeAttrs(x.scale.axis or -1))
    if dtype is F32:
        return real
    return scene.block.make(
        scene.op("cast"), (scene.block.bind(real),), scene.op("cast").attrs_type(dtype=dtype)
    )


# --------------------------------------------------------------------------- integer products


def integer_product(scene: Scene, name: str, call: Call) -> Expr | None:
    """Return an integer product without zero points, as far as its weights are constant; the same in 32 bits.

    Raises:
        StaysFloat: where it stays as it is: nothing is multiplied by constants, or zero points go by rows.
    """
    x, w, *zeros = call.args
    on_right = scene.array(w) is not None or name == "conv_integer"
    turns = is_turned(scene, type_of(x if on_right else w).dtype)
    if not zeros and not turns:
        return None
    zero_x, zero_w = (*zeros, *(scene.number(0, type_of(e).dtype) for e in (x, w)[len(zeros) :]))
    if not on_right:
        x, w, zero_x, zero_w = w, x, zero_w, zero_x
    x, zero_x = _taken(scene, x, zero_x)
    outer = 0 if name == "conv_integer" else (-1 if on_right else -2)
    weights = _weights(scene, _less(scene, w, zero_w, outer), outer)
    zero_x = _one_number(scene, zero_x)
    if weights.zero is not None and _is_zero(scene, zero_x):
        return None  # nothing can be taken off
    if name == "conv_integer":
        return conv_sum(scene, x, zero_x, weights, attrs_of(call, ConvAttrs))
    return matmul_sum(scene, x, zero_x, weights, on_right=on_right)


def _taken(scene: Scene, x: Expr, zero: Expr) -> tuple[Expr, Expr]:
    """Return an operand and its zero point in the format of bytes that devices take."""
    value = scene.array(zero)
    if value is None or not is_turned(scene, type_of(x).dtype) or scene.array(x) is not None:
        return x, zero
    to = other(type_of(x).dtype)
    return turned(scene, x), scene.number(value.astype(np.int64) + moved_by(to), to)


def _less(scene: Scene, w: Expr, zero: Expr, axis: int) -> Whole:
    """Return weights and their zero points."""
    points = scene.array(zero)
    if points is None:
        raise StaysFloat("computed-weights", "the zero points of its weights are computed", zero)
    t = type_of(w)
    along = axis % len(t.shape) - len(t.shape)
    factor = Factor(points.astype(np.int64), along if points.ndim else 0)
    return Whole(w, one(1.0), factor, *ends_of(t.dtype))


def conv_sum(scene: Scene, x: Expr, zero: Expr, weights: Weights, attrs: ConvAttrs) -> Expr:
    """Return the sums of a convolution of `x - zero`: the zero point is in what pads it and in a bias."""
    dtype, rank = type_of(x).dtype, weights.numbers.ndim
    if any(attrs.pads) and not _is_zero(scene, zero):
        x = padded(scene, x, attrs.pads, _one_number(scene, zero))
        attrs = replace(attrs, pads=())
    total = scene.bind("conv_integer", _operands(scene, x, dtype, weights), attrs)
    sums = weights.numbers.sum(tuple(range(1, rank)), dtype=np.int64)
    return _corrected(scene, total, zero, sums.reshape(-1, *[1] * (rank - 2)))


def matmul_sum(scene: Scene, x: Expr, zero: Expr, weights: Weights, *, on_right: bool) -> Expr:
    """Return the sums of a product of `x - zero` and constants, the zero point in a bias."""
    rank = weights.numbers.ndim
    inner = -1 if rank == 1 or not on_right else -2
    total = scene.bind("matmul_integer", _operands(scene, x, type_of(x).dtype, weights, on_right=on_right))
    keeps = rank > 1 and (rank > 2 or not on_right) and len(type_of(x).shape) > 1
    return _corrected(scene, total, zero, weights.numbers.sum(inner, dtype=np.int64, keepdims=keeps))


def _corrected(scene: Scene, total: Expr, zero: Expr, sums: np.ndarray) -> Expr:
    """Take a zero point times sums of weights off the sums of products."""
    value = scene.array(zero)
    if value is not None:
        return biased(scene, total, -int(value.reshape(())) * sums)
    wide = scene.bind("cast", (_one_number(scene, zero),), scene.op("cast").attrs_type(dtype=I32))
    return scene.bind("sub", (total, scene.bind("mul", (wide, scene.number(sums, I32)))))


def _is_zero(scene: Scene, zero: Expr) -> bool:
    value = scene.array(zero)
    return value is not None and not value.any()


def _one_number(scene: Scene, zero: Expr) -> Expr:
    """Return a zero point without axes.

    Raises:
        StaysFloat: where there are several.
    """
    shape = type_of(zero).shape
    if any(d != 1 for d in shape):
        raise StaysFloat("several-zero-points", "an operand has several zero points", zero)
    return scene.bind("reshape", (zero, make.shape_const(()))) if shape else zero


# --------------------------------------------------------------------------- products of reals


def _conv(scene: Scene, call: Call) -> Whole:
    attrs = attrs_of(call, ConvAttrs)
    x, w = (narrow(scene, a) for a in call.args)
    weights = _weights(scene, w, -w.rank)
    zero, scale = x.one_zero(), x.one_scale()
    low, high = _reach(x, weights.numbers, tuple(range(1, w.rank)), pads=any(attrs.pads))
    check_range(int(low.min(initial=0)), int(high.max(initial=0)), "sums of the convolution", call.args[0])
    total = conv_sum(scene, x.atom, scene.number(zero, x.dtype), weights, attrs)
    factor = Factor(w.scale.values * scale, 0 if w.scale.is_one else 1 - x.rank)
    return _sum(scene, total, factor, low, high)


def padded(scene: Scene, x: Expr, pads: tuple[int, ...], value: Expr) -> Expr:
    """Pad the spatial axes of a tensor, channels first."""
    half = len(pads) // 2
    whole_pads = (0, 0, *pads[:half], 0, 0, *pads[half:])
    return scene.bind("pad", (x, make.shape_const(whole_pads), value), PadAttrs())


def _matmul(scene: Scene, call: Call) -> Whole:
    a, b = (narrow(scene, e) for e in call.args)
    if scene.array(b.atom) is not None:
        return _by_constant(scene, call, a, b, on_right=True)
    if scene.array(a.atom) is not None and b.rank > 1:
        return _by_constant(scene, call, b, a, on_right=False)
    return _computed(scene, call, a, b)


def _by_constant(scene: Scene, call: Call, x: Whole, w: Whole, *, on_right: bool) -> Whole:
    outer, inner = (-1, -2) if on_right else (-2, -1)
    if w.rank == 1:
        outer, inner = 0, -1
        w.one_scale()
    weights = _weights(scene, w, outer)
    zero, scale = x.one_zero(), x.one_scale()
    low, high = _reach(x, weights.numbers, (inner,), pads=False)
    check_range(int(low.min(initial=0)), int(high.max(initial=0)), "sums of the product", call.args[0])
    total = matmul_sum(scene, x.atom, scene.number(zero, x.dtype), weights, on_right=on_right)
    axis = 0 if w.scale.is_one else (-1 if on_right else -2)
    return _sum(scene, total, Factor(w.scale.values * scale, axis), low, high)


def _computed(scene: Scene, call: Call, a: Whole, b: Whole) -> Whole:
    """Multiply two operands that are both computed: their zero points stay operands."""
    terms = a.rank and type_of(a.atom).shape[-1].value
    if not terms:
        raise StaysFloat("range", "the number of products in a sum is not known", call.args[0])
    most = terms * a.reach() * b.reach()
    check_range(-most, most, "sums of the product", call.args[0])
    zeros = [scene.number(x.one_zero(), x.dtype) for x in (a, b)]
    more = zeros if a.one_zero() or b.one_zero() else []
    total = scene.bind("matmul_integer", (a.atom, b.atom, *more))
    ends = np.asarray([most])
    return _sum(scene, total, one(a.one_scale() * b.one_scale()), -ends, ends)


# --------------------------------------------------------------------------- what both have


def narrow(scene: Scene, atom: Expr) -> Whole:
    """Return an operand in a format that products take: 16 bits without a sign move by half."""
    x = whole(scene, atom)
    if x.dtype is U16:
        half = 1 << 15
        cast = scene.op("cast")
        wide = biased(scene, scene.bind("cast", (x.atom,), cast.attrs_type(dtype=I32)), np.asarray(-half))
        low, high = x.low - half, x.high - half
        shifted = scene.keep(scene.bind("cast", (wide,), cast.attrs_type(dtype=I16)), low, high)
        return Whole(shifted, x.scale, Factor(x.zero.values - half, x.zero.axis), low, high)
    if x.dtype not in FACTORS:
        raise StaysFloat("format", f"an operand is {x.dtype}, and products take 8 or 16 bits", x.atom)
    return x


def _weights(scene: Scene, w: Whole, axis: int) -> Weights:
    """Return weights less their zero points, if scales and zero points go along their outputs."""
    found = scene.array(w.atom)
    if found is None:
        raise StaysFloat("computed-weights", "its weights are computed", w.atom)
    for f in (w.scale, w.zero):
        if not f.is_one and f.axis + w.rank != axis % w.rank:
            raise StaysFloat("axes-of-scales", "scales of weights go along an axis that is summed", w.atom)
    numbers = found.astype(np.int64) - w.zero.spread()
    dtype = w.dtype if not w.zero.values.any() else smallest(numbers, FACTORS)
    if dtype is not None:
        return Weights(numbers, scene.number(numbers, dtype), None)
    return Weights(numbers, scene.number(found, w.dtype), scene.number(w.zero.values, w.dtype))


def _operands(
    scene: Scene, x: Expr, dtype: DType, weights: Weights, *, on_right: bool = True
) -> tuple[Expr, ...]:
    """Return operands of an integer product: zero points only where weights keep theirs."""
    if weights.zero is None:
        return (x, weights.atom) if on_right else (weights.atom, x)
    none = scene.number(0, dtype)
    if on_right:
        return x, weights.atom, none, weights.zero
    return weights.atom, x, weights.zero, none


def _reach(
    x: Whole, numbers: np.ndarray, axes: tuple[int, ...], *, pads: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return the ends of sums of `numbers` times integers less their zero point, for each output."""
    low, high = x.ends()
    if pads:
        low, high = min(low, 0), max(high, 0)
    up = np.maximum(numbers, 0).sum(axes, dtype=np.int64)
    down = np.minimum(numbers, 0).sum(axes, dtype=np.int64)
    return up * low + down * high, up * high + down * low


def _sum(scene: Scene, atom: Expr, scale: Factor, low: np.ndarray, high: np.ndarray) -> Whole:
    ends = int(low.min(initial=0)), int(high.max(initial=0))
    scene.known.ends = ends
    return Whole(scene.keep(atom, *ends), scale, one(0), *ends)
