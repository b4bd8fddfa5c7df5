"""Normalizations: softmax and its kin, and scaling to mean 0 and variance 1.

Each is several stages, in the widened format of narrow floats: reductions that keep their axes as 1,
then a map over the whole tensor. Variance is the mean of squared distances from the mean (two
passes), not a difference of large numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from inlay.arith.dtype import F16, F32, F64
from inlay.arith.expr import Int, floordiv, lit, mod, product
from inlay.ir.op import TypeContext
from inlay.ir.types import TensorType
from inlay.loop import te
from inlay.loop.scalar import EXP_RAISED, IntrinsicOp, ReduceOp, UnaryOp
from inlay.ops import _rules as rules
from inlay.ops._build import Array, wide_element, widen, widened
from inlay.ops._define import Cost, FusionPattern, OpDef, Sample, define
from inlay.ops._rules import FLOATS, Types
from inlay.ops._samples import noise
from inlay.ops.reduction import mean_stage, reduce, then


@dataclass(frozen=True, slots=True)
class AxisAttrs:
    """`axis`: normalized along."""

    axis: int = -1


@dataclass(frozen=True, slots=True)
class LayerNormAttrs:
    """`axis`: the first of the trailing axes that are normalized; `epsilon`: added to the variance."""

    axis: int = -1
    epsilon: float = 1e-5


@dataclass(frozen=True, slots=True)
class BatchNormAttrs:
    """`axis`: channels; `epsilon`: added to the variance."""

    axis: int = 1
    epsilon: float = 1e-5


@dataclass(frozen=True, slots=True)
class InstanceNormAttrs:
    """`epsilon`: added to the variance."""

    epsilon: float = 1e-5


@dataclass(frozen=True, slots=True)
class GroupNormAttrs:
    """`groups` of channels; `epsilon`: added to the variance."""

    groups: int
    epsilon: float = 1e-5


@dataclass(frozen=True, slots=True)
class LpNormAttrs:
    """`axis`: normalized along; `p`: 1 or 2."""

    axis: int = -1
    p: int = 2


def _one(i: Sequence[Int], axes: Sequence[int]) -> tuple[Int, ...]:
    """Return the index into a tensor whose `axes` were reduced to 1."""
    return tuple(lit(0) if d in axes else v for d, v in enumerate(i))


# --------------------------------------------------------------------------- softmax


def _axis_rule(ctx: TypeContext, a: AxisAttrs | LpNormAttrs, args: Types) -> TensorType:
    x = rules.tensor(ctx, args, 0, FLOATS)
    rules.axis_of(ctx, a.axis, len(x.shape))
    return x


def _softmax_reference(a: AxisAttrs, x: Array) -> Array:
    y = widen(x)
    e = np.exp(y - y.max(a.axis, keepdims=True, initial=-np.inf))
    return (e / e.sum(a.axis, keepdims=True)).astype(x.dtype)


def _log_softmax_reference(a: AxisAttrs, x: Array) -> Array:
    y = widen(x)
    shifted = y - y.max(a.axis, keepdims=True, initial=-np.inf)
    return (shifted - np.log(np.exp(shifted).sum(a.axis, keepdims=True))).astype(x.dtype)


def _exp_stages(x: te.Tensor, axis: int) -> tuple[te.Tensor, te.Tensor, te.Tensor]:
    """Return the maximum, `EXP_RAISED` times the exponentials of what is below it, and their sum."""
    wide = widened(x.dtype)
    # A NaN in a row is one in its exponentials, whatever is subtracted.
    top = reduce(x, (axis,), ReduceOp.MAX_NUMBER, lambda v: v.cast(wide), keepdims=True, name="top")

    def body(*i: Int) -> te.ScalarValue:
        return te.intrinsic(IntrinsicOp.EXP_RAISED, x[i].cast(wide) - top[_one(i, (axis,))])

    e = te.compute(x.shape, body, name="exponentials")
    total = reduce(e, (axis,), ReduceOp.SUM, keepdims=True, name="exp_sum")
    return top, e, total


def _softmax_compute(a: AxisAttrs, operands: Sequence[te.Tensor], result: TensorType) -> te.Tensor:
    (x,) = operands
    axis = a.axis % x.ndim
    _, e, total = _exp_stages(x, axis)
    # One division for each row: multiplying is several times as fast, and rounds once more.
    share = then(total, lambda v: te.const(1, v.dtype) / v, "exp_share")

    def body(*i: Int) -> te.ScalarValue:
        return (e[i] * share[_one(i, (axis,))]).cast(x.dtype)

    return te.compute(result.shape, body, name="softmax", tag="softmax")


def _log_softmax_compute(a: AxisAttrs, operands: Sequence[te.Tensor], result: TensorType) -> te.Tensor:
    (x,) = operands
    axis, wide = a.axis % x.ndim, widened(x.dtype)
    top, _, total = _exp_stages(x, axis)
    log = then(total, lambda v: te.intrinsic(IntrinsicOp.LOG, v * (1 / EXP_RAISED)), "log_sum")

    def body(*i: Int) -> te.ScalarValue:
        one = _one(i, (axis,))
        return (x[i].cast(wide) - top[one] - log[one]).cast(x.dtype)

    return te.compute(result.shape, body, name="log_softmax", tag="softmax")


def _softmax_samples() -> list[Sample]:
    x = noise((2, 5, 7), F32, low=-8, high=8, seed="softmax")
    masked = x[0].copy()
    masked[1, 2:] = -np.inf
    masked[2] = -np.inf
    masked[3, 3] = np.inf
    masked[4, 0] = np.nan
    spoiled = noise((4, 80), F32, seed="spoiled")
    spoiled[0, 37], spoiled[1, 79], spoiled[2] = np.nan, -np.nan, np.nan
    return [
        Sample("last", AxisAttrs(), (x,), (("a", "b", "c"),)),
        Sample("middle", AxisAttrs(1), (x,), (("a", "b", "c"),)),
        Sample("first", AxisAttrs(0), (x,), (("a", 5, "c"),)),
        Sample("large", AxisAttrs(), (x * 1e4,)),
        Sample("masked", AxisAttrs(), (masked,), (("a", "b"),)),
        Sample("f16", AxisAttrs(), (x.astype(np.float16),), (("a", "b", "c"),)),
        Sample("f64", AxisAttrs(), (x.astype(np.float64),)),
        Sample("NaNs", AxisAttrs(), (spoiled,), (("a", "b"),)),
        Sample("one", AxisAttrs(), (x[..., :1],), (("a", "b", 1),)),
        Sample("no rows", AxisAttrs(), (x[:, :0],), (("a", "b", 7),)),
        Sample("empty", AxisAttrs(), (x[..., :0],), (("a", "b", "c"),)),
    ]


def _lp_reference(a: LpNormAttrs, x: Array) -> Array:
    y = widen(x)
    size = np.abs(y) if a.p == 1 else y * y
    norm = size.sum(a.axis, keepdims=True)
    norm = norm if a.p == 1 else np.sqrt(norm)
    return np.where(norm == 0, 0, y / np.where(norm == 0, 1, norm)).astype(x.dtype)


def _lp_rule(ctx: TypeContext, a: LpNormAttrs, args: Types) -> TensorType:
    if a.p not in (1, 2):
        raise ctx.fail(f"found p = {a.p}, needed 1 or 2")
    return _axis_rule(ctx, a, args)


def _lp_compute(a: LpNormAttrs, operands: Sequence[te.Tensor], result: TensorType) -> te.Tensor:
    (x,) = operands
    axis, wide = a.axis % x.ndim, widened(x.dtype)

    def size(v: te.ScalarValue) -> te.ScalarValue:
        v = v.cast(wide)
        return te.unary(UnaryOp.ABS, v) if a.p == 1 else v * v

    norm = reduce(x, (axis,), ReduceOp.SUM, size, keepdims=True, name="norm")
    if a.p == 2:
        norm = then(norm, lambda v: te.unary(UnaryOp.SQRT, v), "norm")

    def body(*i: Int) -> te.ScalarValue:
        n = norm[_one(i, (axis,))]
        none = n.equals(0)
        return te.select(none, 0, x[i].cast(wide) / te.select(none, 1, n)).cast(x.dtype)

    return te.compute(result.shape, body, name="lp_normalize")


def _lp_samples() -> list[Sample]:
    x = noise((2, 3, 4), F32, seed="lp")
    x[0, 1] = 0
    return [
        Sample("l2", LpNormAttrs(), (x,), (("a", "b", "c"),)),
        Sample("l1", LpNormAttrs(1, 1), (x,), (("a", "b", "c"),)),
        Sample("f16", LpNormAttrs(), (x.astype(np.float16),)),
    ]


# --------------------------------------------------------------------------- mean and variance


def _standardized(x: te.Tensor, axes: Sequence[int], epsilon: float) -> tuple[te.Tensor, te.Tensor]:
    """Return mean and reciprocal standard deviation over axes, which stay as 1."""
    wide = widened(x.dtype)
    mean = mean_stage(x, axes, keepdims=True, name="mean")
    count = product(x.shape[a] for a in axes)

    def body(*i: Int) -> te.ScalarValue:
        over = {a: te.reduce_axis(f"r{a}", x.shape[a]) for a in axes}
        d = x[tuple(over.get(d, v) for d, v in enumerate(i))].cast(wide) - mean[i]
        return te.sum_over(list(over.values()), d * d)

    squares = te.compute(mean.shape, body, name="squares")
    return mean, then(squares, lambda v: _rsqrt(v / te.index(count, wide) + epsilon), "scale")


def _rsqrt(v: te.ScalarValue) -> te.ScalarValue:
    return te.intrinsic(IntrinsicOp.RSQRT, v)


def _standardize(x: Array, axes: tuple[int, ...], epsilon: float) -> Array:
    y = widen(x)
    centered = y - y.mean(axes, keepdims=True)
    return centered / np.sqrt((centered * centered).mean(axes, keepdims=True) + y.dtype.type(epsilon))


def _trailing(ctx: TypeContext, x: TensorType, axis: int) -> tuple[Int, ...]:
    return x.shape[rules.axis_of(ctx, axis, len(x.shape)) :]


def _layer_rule(ctx: TypeContext, a: LayerNormAttrs, args: Types) -> TensorType:
    x, *weights = rules.tensors(ctx, args, FLOATS)
    tail = _trailing(ctx, x, a.axis)
    for w in weights:
        if len(w.shape) > len(tail):
            raise ctx.fail(
                f"found weights of rank {len(w.shape)} for {len(tail)} normalized axes",
                id="type.rank-mismatch",
            )
        for d in range(-len(w.shape), 0):
            if w.shape[d] != 1:
                ctx.equal(w.shape[d], tail[d], "weights and normalized axes")
    return x


def _layer_reference(a: LayerNormAttrs, x: Array, *weights: Array) -> Array:
    y = _standardize(x, tuple(range(a.axis % x.ndim, x.ndim)), a.epsilon)
    if weights:
        y = y * widen(weights[0])
    if len(weights) > 1:
        y = y + widen(weights[1])
    return y.astype(x.dtype)


def _layer_compute(a: LayerNormAttrs, operands: Sequence[te.Tensor], result: TensorType) -> te.Tensor:
    x, *weights = operands
    axes, wide = tuple(range(a.axis % x.ndim, x.ndim)), widened(x.dtype)
    mean, scale = _standardized(x, axes, a.epsilon)

    def body(*i: Int) -> te.ScalarValue:
        one = _one(i, axes)
        y = (x[i].cast(wide) - mean[one]) * scale[one]
        if weights:
            y = y * wide_element(weights[0], i)
        if len(weights) > 1:
            y = y + wide_element(weights[1], i)
        return y.cast(x.dtype)

    return te.compute(result.shape, body, name="layer_norm", tag="layer_norm")


def _rms_reference(a: LayerNormAttrs, x: Array, *weights: Array) -> Array:
    y, axes = widen(x), tuple(range(a.axis % x.ndim, x.ndim))
    y = y / np.sqrt((y * y).mean(axes, keepdims=True) + y.dtype.type(a.epsilon))
    return (y * widen(weights[0]) if weights else y).astype(x.dtype)


def _rms_compute(a: LayerNormAttrs, operands: Sequence[te.Tensor], result: TensorType) -> te.Tensor:
    x, *weights = operands
    axes, wide = tuple(range(a.axis % x.ndim, x.ndim)), widened(x.dtype)
    mean = mean_stage(x, axes, lambda v: v * v, keepdims=True, name="mean_square")
    scale = then(mean, lambda v: _rsqrt(v + a.epsilon), "scale")

    def body(*i: Int) -> te.ScalarValue:
        y = x[i].cast(wide) * scale[_one(i, axes)]
        return (y * wide_element(weights[0], i) if weights else y).cast(x.dtype)

    return te.compute(result.shape, body, name="rms_norm", tag="layer_norm")


def _layer_samples(most: int) -> list[Sample]:
    x = noise((2, 3, 8), F32, low=-1, high=3, seed="ln")
    w, b = noise((8,), F32, seed="scale"), noise((8,), F32, seed="bias")
    extra, names = (w, b)[:most], (("c",), ("c",))[:most]
    whole = tuple(noise((3, 8), F32, seed=s) for s in ("w2", "b2"))[:most]
    half = tuple(v.astype(np.float16) for v in (x, *extra))
    a = LayerNormAttrs()
    return [
        Sample("weights", a, (x, *extra), (("a", "b", "c"), *names)),
        Sample("plain", a, (x,), (("a", "b", "c"),)),
        Sample("scale", a, (x, w), (("a", "b", "c"), ("c",))),
        Sample("two axes", LayerNormAttrs(1, 1e-3), (x, *whole), (("a", "b", "c"), *((("b", "c"),) * most))),
        Sample("broadcast scale", LayerNormAttrs(1), (x, w), (("a", "b", "c"), ("c",))),
        Sample("f16", a, half, (("a", "b", "c"), *names)),
        Sample("far from 0", a, (x + 30, *extra)),
        Sample("no rows", a, (x[:0], *extra), (("a", 3, "c"), *names)),
    ]


def _batch_rule(ctx: TypeContext, a: BatchNormAttrs, args: Types) -> TensorType:
    x, *weights = rules.tensors(ctx, args, FLOATS)
    c = x.shape[rules.axis_of(ctx, a.axis, len(x.shape))]
    for w, what in zip(weights, ("scale", "bias", "mean", "variance"), strict=True):
        rules.same_shape(ctx, w, (c,), what)
    return x


def _along(w: Array, axis: int, rank: int) -> Array:
    return widen(w).reshape(-1, *[1] * (rank - 1 - axis))


def _batch_reference(
    a: BatchNormAttrs, x: Array, scale: Array, bias: Array, mean: Array, variance: Array
) -> Array:
    axis = a.axis % x.ndim
    s, b, m, v = (_along(w, axis, x.ndim) for w in (scale, bias, mean, variance))
    return ((widen(x) - m) * (s / np.sqrt(v + v.dtype.type(a.epsilon))) + b).astype(x.dtype)


def _batch_compute(a: BatchNormAttrs, operands: Sequence[te.Tensor], result: TensorType) -> te.Tensor:
    x, scale, bias, mean, variance = operands
    axis, wide = a.axis % x.ndim, widened(x.dtype)

    def body(*i: Int) -> te.ScalarValue:
        s, b, m, v = (w[i[axis]].cast(wide) for w in (scale, bias, mean, variance))
        return ((x[i].cast(wide) - m) * (s * _rsqrt(v + a.epsilon)) + b).cast(x.dtype)

    return te.compute(result.shape, body, name="batch_norm")


def _batch_samples() -> list[Sample]:
    made: list[Sample] = []
    for d in (F32, F64, F16):
        x = noise((2, 4, 3, 5), d, seed="bn")
        w = [noise((4,), d, seed=str(i)) for i in range(3)]
        v = noise((4,), d, low=0.1, high=2, seed="var")
        names = (("n", "c", "h", "w"), ("c",), ("c",), ("c",), ("c",))
        made.append(Sample(f"{d}", BatchNormAttrs(), (x, *w, v), names))
        last = np.ascontiguousarray(np.moveaxis(x, 1, -1))
        names = (("n", "h", "w", "c"), ("c",), ("c",), ("c",), ("c",))
        made.append(Sample(f"last {d}", BatchNormAttrs(-1, 1e-3), (last, *w, v), names))
    return made


# --------------------------------------------------------------------------- groups


def _group_rule(ctx: TypeContext, a: GroupNormAttrs | InstanceNormAttrs, args: Types) -> TensorType:
    x, *weights = rules.tensors(ctx, args, FLOATS)
    rules.least_rank(ctx, x, 3, "the input")
    for w, what in zip(weights, ("scale", "bias"), strict=False):
        rules.same_shape(ctx, w, (x.shape[1],), what)
    if isinstance(a, GroupNormAttrs):
        if a.groups < 1:
            raise ctx.fail(f"found {a.groups} groups, needed at least 1")
        ctx.equal(mod(x.shape[1], lit(a.groups)), lit(0), "channels divide into groups")
    return x


def _group_reference(a: GroupNormAttrs | InstanceNormAttrs, x: Array, *weights: Array) -> Array:
    groups = a.groups if isinstance(a, GroupNormAttrs) else x.shape[1]
    grouped = x.reshape(x.shape[0], groups, -1, *x.shape[2:])
    y = _standardize(grouped, tuple(range(2, grouped.ndim)), a.epsilon).reshape(x.shape)
    for w, f in zip(weights, (np.multiply, np.add), strict=False):
        y = f(y, _along(w, 1, x.ndim))
    return y.astype(x.dtype)


def _instance_compute(a: InstanceNormAttrs, operands: Sequence[te.Tensor], result: TensorType) -> te.Tensor:
    x, *weights = operands
    axes, wide = tuple(range(2, x.ndim)), widened(x.dtype)
    mean, scale = _standardized(x, axes, a.epsilon)

    def body(*i: Int) -> te.ScalarValue:
        one = _one(i, axes)
        y = (x[i].cast(wide) - mean[one]) * scale[one]
        return _channel_weights(y, weights, i[1]).cast(x.dtype)

    return te.compute(result.shape, body, name="instance_norm")


def _channel_weights(y: te.ScalarValue, weights: Sequence[te.Tensor], channel: Int) -> te.ScalarValue:
    for k, w in enumerate(weights):
        value = w[channel].cast(y.dtype)
        y = y * value if k == 0 else y + value
    return y


def _group_compute(a: GroupNormAttrs, operands: Sequence[te.Tensor], result: TensorType) -> te.Tensor:
    x, *weights = operands
    wide, each = widened(x.dtype), floordiv(x.shape[1], lit(a.groups))
    count = product((each, *x.shape[2:]))

    def over_group(element: Callable[[te.ScalarValue, Int, Int], te.ScalarValue], name: str) -> te.Tensor:
        def body(n: Int, g: Int) -> te.ScalarValue:
            c = te.reduce_axis("c", each)
            rest = [te.reduce_axis(f"r{d}", x.shape[d]) for d in range(2, x.ndim)]
            value = x[(n, g * each + c, *rest)].cast(wide)
            return te.sum_over([c, *rest], element(value, n, g))

        return te.compute((x.shape[0], lit(a.groups)), body, name=name)

    def mean_of(total: te.Tensor, name: str) -> te.Tensor:
        return then(total, lambda v: v / te.index(count, wide), name)

    mean = mean_of(over_group(lambda v, n, g: v, "sums"), "mean")
    distance = over_group(lambda v, n, g: (v - mean[n, g]) * (v - mean[n, g]), "squares")
    scale = then(mean_of(distance, "variance"), lambda v: _rsqrt(v + a.epsilon), "scale")

    def body(*i: Int) -> te.ScalarValue:
        g = floordiv(i[1], each)
        y = (x[i].cast(wide) - mean[i[0], g]) * scale[i[0], g]
        return _channel_weights(y, weights, i[1]).cast(x.dtype)

    return te.compute(result.shape, body, name="group_norm")


def _group_samples(attrs: object) -> list[Sample]:
    x = noise((2, 6, 3, 5), F32, seed="gn")
    w, b = noise((6,), F32, seed="s"), noise((6,), F32, seed="b")
    names = (("n", 6, "h", "w"), (6,), (6,))
    half = tuple(v.astype(np.float16) for v in (x, w, b))
    return [
        Sample("weights", attrs, (x, w, b), names),
        Sample("plain", attrs, (x,), names[:1]),
        Sample("one axis", attrs, (x[:, :, 0].copy(), w, b), (("n", 6, "w"), (6,), (6,))),
        Sample("f16", attrs, half, names),
    ]


# --------------------------------------------------------------------------- the table

DEFINITIONS: tuple[OpDef, ...] = (
    define(
        "softmax",
        AxisAttrs,
        _axis_rule,
        1,
        FusionPattern.REDUCTION,
        "exp(x) divided by its sum along an axis, shifted by the maximum",
        reference=_softmax_reference,
        compute=_softmax_compute,
        samples=_softmax_samples,
        in_place=(0,),
        cost=Cost.FUNCTION,
    ),
    define(
        "log_softmax",
        AxisAttrs,
        _axis_rule,
        1,
        FusionPattern.REDUCTION,
        "logarithm of softmax, without computing it",
        reference=_log_softmax_reference,
        compute=_log_softmax_compute,
        samples=_softmax_samples,
        in_place=(0,),
        cost=Cost.FUNCTION,
    ),
    define(
        "lp_normalize",
        LpNormAttrs,
        _lp_rule,
        1,
        FusionPattern.REDUCTION,
        "x divided by its p-norm along an axis; 0 where the norm is 0",
        reference=_lp_reference,
        compute=_lp_compute,
        samples=_lp_samples,
    ),
    define(
        "layer_norm",
        LayerNormAttrs,
        _layer_rule,
        (1, 3),
        FusionPattern.REDUCTION,
        "x scaled to mean 0 and variance 1 over trailing axes, times a scale, plus a bias",
        reference=_layer_reference,
        compute=_layer_compute,
        samples=lambda: _layer_samples(2),
        cost=Cost.FUNCTION,
    ),
    define(
        "rms_norm",
        LayerNormAttrs,
        _layer_rule,
        (1, 2),
        FusionPattern.REDUCTION,
        "x divided by its root mean square over trailing axes, times a scale",
        reference=_rms_reference,
        compute=_rms_compute,
        samples=lambda: _layer_samples(1),
    ),
    define(
        "batch_norm",
        BatchNormAttrs,
        _batch_rule,
        5,
        FusionPattern.BROADCAST,
        "(x - mean) / sqrt(variance + epsilon) * scale + bias, per channel",
        reference=_batch_reference,
        compute=_batch_compute,
        samples=_batch_samples,
        in_place=(0,),
    ),
    define(
        "instance_norm",
        InstanceNormAttrs,
        _group_rule,
        (1, 3),
        FusionPattern.REDUCTION,
        "x [n, c, *s] scaled to mean 0 and variance 1 over s, times scale [c], plus bias [c]",
        reference=_group_reference,
        compute=_instance_compute,
        samples=lambda: _group_samples(InstanceNormAttrs(1e-3)),
    ),
    define(
        "group_norm",
        GroupNormAttrs,
        _group_rule,
        (1, 3),
        FusionPattern.REDUCTION,
        "as instance_norm, over groups of channels",
        reference=_group_reference,
        compute=_group_compute,
        samples=lambda: _group_samples(GroupNormAttrs(3)),
    ),
)
