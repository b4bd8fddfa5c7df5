"""A transposed convolution as plain convolutions, one for the outputs of each number of taps.

With stride s, output `u` (before cropping) reads input `q - j` with tap `r + j*s`, where
`u = q*s + r`. So outputs of one *phase* r are a plain convolution of x with every s-th tap, and a
phase has `ceil((k - r) / s)` taps: the first `k % s` phases one more than the others. Phases with the
same number of taps are channels of one convolution; what they compute is put side by side, and the
phases become positions by a transpose:

    let y0 = conv(x, taps of phases 0 .. k%s - 1);     [n, phases * oc, q]
    let y1 = conv(x, taps of phases k%s .. s - 1);
    let y = concat(y0, y1);                            [n, oc, s phases, q]
    slice(reshape(transpose(y), [n, oc, q*s]), crop)

No product is computed that the definition does not have: filling phases up with taps of zero would
be one convolution instead of 2 (4 in two dimensions), but zero times an infinity is no zero.

Source: sub-pixel convolution; W. Shi et al., "Is the deconvolution layer the same as a convolutional
layer?" (2016).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from inlay.arith.dtype import I64
from inlay.arith.expr import Int, floordiv, lit
from inlay.ir.builder import Builder
from inlay.ir.expr import Expr
from inlay.ir.make import const, shape_const
from inlay.ir.types import TensorType
from inlay.ops import slicing
from inlay.ops.indexing import GATHER, GatherAttrs
from inlay.ops.joining import CONCAT, AxisAttrs
from inlay.ops.layout import RESHAPE, TRANSPOSE, PermAttrs


@dataclass(frozen=True, slots=True)
class Axis:
    """What one spatial axis of a transposed convolution becomes.

    Attributes:
        stride: how many phases there are.
        classes: runs of phases with the same number of taps: (first phase, phases, taps).
        first: the first `q` that is needed.
        extra: how many more values of `q` are needed than there are inputs.
        crop: what is cut off in front of the interleaved phases.
    """

    stride: int
    classes: tuple[tuple[int, int, int], ...]
    first: int
    extra: int
    crop: int

    def pads(self, taps: int) -> tuple[int, int]:
        """Return the padding in front and behind for a class."""
        return taps - 1 - self.first, self.first + self.extra


def axis_of(kernel: int, stride: int, before: int, after: int, more: int) -> Axis | None:
    """Return how to split an axis; None where a phase has no taps or whole inputs are cut away."""
    if kernel < stride:
        return None
    long = kernel % stride
    taps = kernel // stride
    classes = ((0, long, taps + 1), (long, stride - long, taps))
    first, crop = divmod(before, stride)
    extra = -(-(crop + kernel - before - after + more) // stride) - 1
    found = Axis(stride, tuple(c for c in classes if c[1]), first, extra, crop)
    is_cut = any(min(found.pads(t)) < 0 for _, _, t in found.classes)
    return None if is_cut else found


def weights_of(b: Builder, w: Expr, groups: int, axes: Sequence[Axis], chosen: Sequence[int]) -> Expr:
    """Return the weights of the convolution for one class along every axis.

    `w` is `[c, oc/groups, *k]`; the result `[groups * phases * oc/groups, c/groups, *taps]`.
    """
    assert isinstance(w.type, TensorType), "weights are a tensor"
    c, per_group, rank = w.type.shape[0], w.type.shape[1], len(axes)
    counts: list[int] = []
    taps: list[int] = []
    for at, (axis, i) in enumerate(zip(axes, chosen, strict=True)):
        first, count, n = axis.classes[i]
        phase, tap = np.arange(first, first + count), np.arange(n)[::-1]
        of_axis = const(phase[:, None] + axis.stride * tap, I64)
        w = b.emit(GATHER, (w, of_axis), GatherAttrs(2 + 2 * at), name="taps")
        counts, taps = [*counts, count], [*taps, n]
    parts = [lit(n) for pair in zip(counts, taps, strict=True) for n in pair]
    shape = (lit(groups), floordiv(c, lit(groups)), per_group, *parts)
    w = b.emit(RESHAPE, (w, shape_const(shape)), name="taps")
    order = (0, *(3 + 2 * a for a in range(rank)), 2, 1, *(4 + 2 * a for a in range(rank)))
    w = b.emit(TRANSPOSE, (w,), PermAttrs(order), name="taps")
    outputs = lit(groups * prod(counts)) * per_group
    shape = (outputs, floordiv(c, lit(groups)), *(lit(n) for n in taps))
    return b.emit(RESHAPE, (w, shape_const(shape)), name="taps")


def interleaved(
    b: Builder, groups: int, axes: Sequence[Axis], result: TensorType, conv: Callable[[tuple[int, ...]], Expr]
) -> Expr:
    """Return the transposed convolution of the convolutions for each choice of classes.

    `conv` makes the one of a choice: `[n, groups * phases * oc/groups, *q]`.
    """
    n, channels, *sizes = result.shape
    per_group = channels // groups
    rank = len(axes)
    counts: list[Int] = []

    def phases(chosen: tuple[int, ...]) -> Expr:
        """Return `[n, groups, *phases, oc/groups, *q]` with all phases of the axes not chosen."""
        if len(chosen) < rank:
            at = len(chosen)
            parts = [phases((*chosen, i)) for i in range(len(axes[at].classes))]
            attrs = AxisAttrs(2 + at)
            return parts[0] if len(parts) == 1 else b.emit(CONCAT, parts, attrs, name="phases")
        y = conv(chosen)
        assert isinstance(y.type, TensorType), "a convolution gives a tensor"
        counts[:] = y.type.shape[2:]
        runs = [lit(a.classes[i][1]) for a, i in zip(axes, chosen, strict=True)]
        shape = shape_const((n, lit(groups), *runs, per_group, *counts))
        return b.emit(RESHAPE, (y, shape), name="phases")

    y = phases(())
    pairs = [i for a in range(rank) for i in (3 + rank + a, 2 + a)]
    y = b.emit(TRANSPOSE, (y,), PermAttrs((0, 1, 2 + rank, *pairs)), name="phases")
    whole = [q * a.stride for q, a in zip(counts, axes, strict=True)]
    y = b.emit(RESHAPE, (y, shape_const((n, channels, *whole))), name="phases")
    if all(a.crop == 0 and w == s for a, w, s in zip(axes, whole, sizes, strict=True)):
        return y
    begins = [lit(a.crop) for a in axes]
    ends = [s + a.crop for a, s in zip(axes, sizes, strict=True)]
    bounds = [shape_const(tuple(v)) for v in (begins, ends, [lit(1)] * rank)]
    spatial = slicing.AxesAttrs(tuple(range(2, 2 + rank)))
    return b.emit(slicing.SLICE, (y, *bounds), spatial, name="cropped")
