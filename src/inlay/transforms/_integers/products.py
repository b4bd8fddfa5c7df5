"""Products in integers: sums without zero points, their bias, and a proof that they stay in 32 bits.

    sum (x - zx) (w - zw)  =  sum x (w - zw)  -  zx * sum (w - zw)

With constant weights `w - zw` is computed here where a byte holds it, and the last term is a bias; where a
convolution pads, it pads with zx. What sums can reach follows from the actual weights.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from inlay.arith.dtype import F32, DType
from inlay.ir import make
from inlay.ir.expr import Call, Expr
from inlay.ops.convolution import ConvAttrs
from inlay.ops.padding import PadAttrs
from inlay.ops.quantized import DequantizeAttrs
from inlay.transforms._integers.numbers import (
    BYTES,
    Factor,
    StaysFloat,
    Whole,
    check_range,
    one,
    smallest,
    type_of,
)
from inlay.transforms._integers.scene import Scene
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


# --------------------------------------------------------------------------- convolution


def _conv(scene: Scene, call: Call) -> Whole:
    attrs = attrs_of(call, ConvAttrs)
    x, w = (_narrow(whole(scene, a)) for a in call.args)
    weights = _weights(scene, w, rank_axis=-w.rank)
    zero, scale = x.one_zero(), x.one_scale()
    axes = tuple(range(1, w.rank))
    low, high = _reach(x, weights.numbers, axes, pads=any(attrs.pads))
    check_range(int(low.min(initial=0)), int(high.max(initial=0)), "sums of the convolution", call.args[0])
    source = x.atom
    if zero and any(attrs.pads):
        source = padded(scene, source, attrs.pads, scene.number(zero, x.dtype))
        attrs = replace(attrs, pads=())
    total = scene.bind("conv_integer", _operands(scene, source, x.dtype, weights), attrs)
    if zero:
        bias = -zero * weights.numbers.sum(axes, dtype=np.int64)
        total = biased(scene, total, bias.reshape(-1, *[1] * (w.rank - 2)))
    factor = Factor(w.scale.values * scale, 0 if w.scale.is_one else 1 - x.rank)
    return _sum(scene, total, factor, low, high)


def padded(scene: Scene, x: Expr, pads: tuple[int, ...], value: Expr) -> Expr:
    """Pad the spatial axes of a tensor, channels first."""
    half = len(pads) // 2
    whole_pads = (0, 0, *pads[:half], 0, 0, *pads[half:])
    return scene.bind("pad", (x, make.shape_const(whole_pads), value), PadAttrs())


# --------------------------------------------------------------------------- matrices


def _matmul(scene: Scene, call: Call) -> Whole:
    a, b = (_narrow(whole(scene, e)) for e in call.args)
    if scene.array(b.atom) is not None:
        return _by_constant(scene, call, a, b, on_right=True)
    if scene.array(a.atom) is not None and b.rank > 1:
        return _by_constant(scene, call, b, a, on_right=False)
    return _computed(scene, call, a, b)


def _by_constant(scene: Scene, call: Call, x: Whole, w: Whole, *, on_right: bool) -> Whole:
    outer, inner = (-1, -2) if on_right else (-2, -1)
    if w.rank == 1:
        outer, inner = 0, -1
    weights = _weights(scene, w, rank_axis=outer)
    zero, scale = x.one_zero(), x.one_scale()
    low, high = _reach(x, weights.numbers, (inner,), pads=False)
    check_range(int(low.min(initial=0)), int(high.max(initial=0)), "sums of the product", call.args[0])
    total = scene.bind("matmul_integer", _operands(scene, x.atom, x.dtype, weights, on_right=on_right))
    if zero:
        sums = weights.numbers.sum(
            inner, dtype=np.int64, keepdims=w.rank > 1 and (w.rank > 2 or not on_right)
        )
        total = biased(scene, total, -zero * sums)
    axis = 0 if w.scale.is_one else (-1 if on_right else -2)
    if axis == -2 and x.rank == 1:
        axis = -1
    if axis == -1 and on_right and w.rank == 1:
        axis = 0
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


def _narrow(x: Whole) -> Whole:
    if x.dtype not in BYTES:
        raise StaysFloat("format", f"an operand is {x.dtype}, and products take bytes", x.atom)
    return x


def _weights(scene: Scene, w: Whole, rank_axis: int) -> Weights:
    """Return weights less their zero points, if scales and zero points go along their outputs."""
    found = scene.array(w.atom)
    if found is None:
        raise StaysFloat("computed-weights", "its weights are computed", w.atom)
    for f in (w.scale, w.zero):
        if not f.is_one and f.axis + w.rank != rank_axis % w.rank:
            raise StaysFloat("axes-of-scales", "scales of weights go along an axis that is summed", w.atom)
    numbers = found.astype(np.int64) - w.zero.spread()
    dtype = w.dtype if not w.zero.values.any() else smallest(numbers, BYTES)
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
    return Whole(scene.keep(atom, *ends), scale, one(0), *ends)
