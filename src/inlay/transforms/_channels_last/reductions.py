"""Reductions over images, and the normalizations that are made of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod

import numpy as np

from inlay.arith.dtype import F32
from inlay.arith.expr import floordiv, lit
from inlay.ir import make
from inlay.ir.expr import Expr
from inlay.ir.types import TensorType
from inlay.ops.layout import PermAttrs
from inlay.ops.normalization import GroupNormAttrs
from inlay.ops.reduction import OVER_AXES, ReduceAttrs
from inlay.transforms._channels_last.layout_match import LayoutMatch, Rule, moved_axis, to_last


def _reduce(matched: LayoutMatch) -> Expr | None:
    twin = matched.twin(matched.call.args[0])
    if twin is None:
        return None
    rank = matched.rank
    axes = {a % rank for a in matched.attrs.axes}
    moved = replace(matched.attrs, axes=tuple(sorted(moved_axis(a, rank) for a in axes)))
    if 1 not in axes:
        twin, moved = _reduce_lines(matched, matched.definition.name, twin, moved)
    if matched.attrs.keepdims:
        return matched.instead((twin,), moved)
    kept = [a for a in to_last(rank) if a not in axes]
    if kept == sorted(kept):
        return matched.block.make(matched.definition.op, (twin,), moved)
    # What is left of the axes is turned: that is less than all of them.
    made = matched.op(matched.definition.name, (twin,), moved)
    perm = PermAttrs(tuple(kept.index(a) for a in sorted(kept)))
    return matched.block.make(matched.operators.definition("transpose").op, (made,), perm)


def _reduce_lines(
    matched: LayoutMatch, name: str, twin: Expr, attrs: ReduceAttrs
) -> tuple[Expr, ReduceAttrs]:
    """Return what is left to reduce when each line is, and how; all of it where lines are not first."""
    if len(attrs.axes) < 2 or not _is_by_line(name, twin):
        return twin, attrs
    lines = matched.op(name, (twin,), replace(attrs, axes=attrs.axes[1:], keepdims=True))
    return lines, replace(attrs, axes=attrs.axes[:1]) if attrs.keepdims else attrs


def _is_by_line(name: str, twin: Expr) -> bool:
    """Whether a reduction over an image is one of each line, and one of those.

    Threads share lines, as the kernels around do; so what a thread has written it reads, and owns when it
    is written again. One thread that reads all of it takes 63 us for 112 x 112 x 32, and two threads that
    scale it then 105; 11 and 14 by lines.
    """
    assert isinstance(twin.type, TensorType), "operands of tensor operators are tensors"
    numbers = [d.value for d in twin.type.shape[1:]]
    is_exact = twin.type.dtype.is_float and twin.type.dtype.itemsize >= F32.itemsize
    known = [n for n in numbers if n is not None]
    return name in _BY_LINES and is_exact and len(known) == len(numbers) and prod(known) >= _LARGE


def _instance_norm(matched: LayoutMatch) -> Expr | None:
    """Two means for each channel, of which vectors hold neighbors, and what is left is by element."""
    return _normalized(matched, lambda mean: mean)


def _group_norm(matched: LayoutMatch) -> Expr | None:
    """As for each channel; then the mean of a group is that of its channels."""
    assert isinstance(matched.attrs, GroupNormAttrs)
    groups = lit(matched.attrs.groups)

    def of_groups(mean: Expr) -> Expr:
        assert isinstance(mean.type, TensorType), "a mean is a tensor"
        shape = mean.type.shape
        cut = (*shape[:-1], groups, floordiv(shape[-1], groups))
        one = matched.op("reshape", (mean, make.shape_const(cut)), None)
        one = matched.op("reduce_mean", (one,), ReduceAttrs((-1,), keepdims=True))
        each = matched.op("broadcast_to", (one, make.shape_const(cut)), None)
        return matched.op("reshape", (each, make.shape_const(shape)), None)

    return _normalized(matched, of_groups)


def _normalized(matched: LayoutMatch, of_groups: Callable[[Expr], Expr]) -> Expr | None:
    """Return `(x - mean) / sqrt(variance + epsilon) * scale + bias`.

    Args:
        matched: a normalization of `[n, c, *s]`.
        of_groups: gives for means `[n, ..., c]` of channels those of the groups of each.
    """
    x, *weights = matched.call.args
    assert isinstance(x.type, TensorType), "what is normalized is a tensor"
    twin, dtype = matched.twin(x), x.type.dtype
    if twin is None or dtype.itemsize < F32.itemsize:
        return None
    centered = matched.op("sub", (twin, of_groups(_mean(matched, twin))), None)
    variance = of_groups(_mean(matched, matched.op("mul", (centered, centered), None)))
    epsilon = make.const(np.asarray(matched.attrs.epsilon, dtype.numpy))
    scale = matched.op("rsqrt", (matched.op("add", (variance, epsilon), None),), None)
    if weights:
        scale = matched.op("mul", (scale, weights[0]), None)
    y = matched.op("mul", (centered, scale), None)
    return matched.back(y if len(weights) < 2 else matched.op("add", (y, weights[1]), None))


def _mean(matched: LayoutMatch, twin: Expr) -> Expr:
    """Return the mean of each channel of an image."""
    attrs = ReduceAttrs(tuple(range(1, matched.rank - 1)), keepdims=True)
    twin, attrs = _reduce_lines(matched, "reduce_mean", twin, attrs)
    return matched.op("reduce_mean", (twin,), attrs)


_BY_LINES = ("reduce_sum", "reduce_mean", "reduce_max", "reduce_min")
_LARGE = 1 << 14
"""Elements of an image that threads share when it is reduced."""

RULES: dict[str, Rule] = {
    **dict.fromkeys(OVER_AXES, _reduce),
    "instance_norm": _instance_norm,
    "group_norm": _group_norm,
}
