"""Sliding windows over spatial axes: what convolutions and pools share.

`pads` holds the elements added in front of each spatial axis and then those added behind each:
`(top, left, bottom, right)`. `strides`, `dilations` and `pads` may be `()`: 1, 1 and 0 everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from inlay.arith.expr import Int, ceildiv, floordiv, lit, mod
from inlay.ir.op import TypeContext
from inlay.loop import te
from inlay.ops import _rules as rules
from inlay.ops._build import Array


@dataclass(frozen=True, slots=True)
class Meeting:
    """Which windows have an element of an image, along one axis.

    Attributes:
        axis: to reduce over: one iteration for each of them.
        tap: which element of the window it is.
        window: which window.
        inside: whether there is such a tap and such a window; None where that is sure.
    """

    axis: te.Axis
    tap: Int
    window: Int
    inside: te.ScalarValue | None


@dataclass(frozen=True, slots=True)
class Windows:
    """The resolved numbers of a sliding window, one per spatial axis.

    Attributes:
        kernel: extents of the window.
        strides: steps between windows.
        dilations: steps between elements of a window.
        before: padding in front.
        after: padding behind.
    """

    kernel: tuple[Int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]

    @property
    def count(self) -> int:
        """The number of spatial axes."""
        return len(self.kernel)

    def without_last(self) -> Windows:
        """Return the same along all axes but the last."""
        return Windows(
            self.kernel[:-1], self.strides[:-1], self.dilations[:-1], self.before[:-1], self.after[:-1]
        )

    def only_last(self) -> Windows:
        """Return the same along the last axis."""
        return Windows(
            self.kernel[-1:], self.strides[-1:], self.dilations[-1:], self.before[-1:], self.after[-1:]
        )

    def out(self, ctx: TypeContext, sizes: Sequence[Int], *, ceil: bool = False) -> tuple[Int, ...]:
        """Return how many windows there are along each axis."""
        return tuple(
            rules.window_dim(
                ctx,
                sizes[a],
                self.kernel[a],
                stride=self.strides[a],
                dilation=self.dilations[a],
                pad=(self.before[a], self.after[a]),
                ceil=ceil,
            )
            for a in range(self.count)
        )

    def span(self, out: Sequence[Int]) -> tuple[Int, ...]:
        """Return how many elements the windows of each axis cover from the first padding on."""
        return tuple(
            (out[a] - 1) * self.strides[a] + (self.kernel[a] - 1) * self.dilations[a] + 1
            for a in range(self.count)
        )

    def at(self, windows: Sequence[Int], inside: Sequence[Int]) -> tuple[Int, ...]:
        """Return the index into the padded axes of an element of a window."""
        return tuple(windows[a] * self.strides[a] + inside[a] * self.dilations[a] for a in range(self.count))

    def meeting(self, a: int, offset: Int, count: Int) -> Meeting:
        """Return which windows have an element of an axis.

        Tap `k` is at an offset where the stride divides `offset - k * dilation`: one in `step` of them is,
        and none where a common factor does not divide the offset.

        Args:
            a: the axis.
            offset: of the element, from the first padding on.
            count: windows along the axis.
        """
        size, stride, dilation = self.kernel[a], self.strides[a], self.dilations[a]
        common = math.gcd(stride, dilation)
        step = stride // common
        k = te.reduce_axis(f"k{a}", ceildiv(size, lit(step)))
        inverse = pow(dilation // common, -1, step)
        tap = mod(floordiv(offset, lit(common)) * inverse, lit(step)) + k * step
        window = floordiv(offset - tap * dilation, lit(stride))
        inside = None if common == 1 else te.index(mod(offset, lit(common))).equals(0)
        if size % step != 0:
            inside = te.all_of(inside, te.index(tap) < te.index(size))
        inside = te.all_of(inside, te.index(window) >= 0)
        return Meeting(k, tap, window, te.all_of(inside, te.index(window) < te.index(count)))

    def axes(self) -> list[te.Axis]:
        """Return reduction axes over the window."""
        return [te.reduce_axis(f"k{a}", self.kernel[a]) for a in range(self.count)]


def resolve(
    ctx: TypeContext,
    kernel: Sequence[Int],
    strides: tuple[int, ...],
    dilations: tuple[int, ...],
    pads: tuple[int, ...],
) -> Windows:
    """Check the numbers of a window and fill in what is left out."""
    n = len(kernel)
    whole = rules.per_axis(ctx, pads, 2 * n, 0, "pads", 0)
    return Windows(
        tuple(kernel),
        rules.per_axis(ctx, strides, n, 1, "strides", 1),
        rules.per_axis(ctx, dilations, n, 1, "dilations", 1),
        whole[:n],
        whole[n:],
    )


def accepted(
    kernel: Sequence[Int], strides: tuple[int, ...], dilations: tuple[int, ...], pads: tuple[int, ...]
) -> Windows:
    """Return the numbers of a window that a type rule has accepted."""
    n = len(kernel)
    whole = pads or (0,) * (2 * n)
    return Windows(tuple(kernel), strides or (1,) * n, dilations or (1,) * n, whole[:n], whole[n:])


def padded(
    x: te.Tensor,
    first: int,
    windows: Windows,
    out: Sequence[Int],
    fill: float,
    *,
    ceil: bool = False,
    stored: bool = False,
) -> te.Tensor:
    """Return `x` with its spatial axes, from `first` on, padded to what the windows cover.

    `x` itself when nothing is read outside it. The stage is tagged `pad`: a schedule may inline it,
    which puts its select into the loop that reads it. With `stored` it is a copy: where it is not with zeros,
    taps outside cannot be left out, and a copy costs less than a choice in each tap.
    """
    if not (ceil or any(windows.before) or any(windows.after)):
        return x
    shape = [*x.shape[:first], *windows.span(out), *x.shape[first + windows.count :]]

    def body(*i: Int) -> te.ScalarValue:
        at = list(i)
        inside: te.ScalarValue | None = None
        for a in range(windows.count):
            d = first + a
            at[d] = i[d] - windows.before[a]
            if windows.before[a]:
                inside = te.all_of(inside, te.index(at[d]) >= 0)
            if ceil or windows.after[a]:
                inside = te.all_of(inside, te.index(at[d]) < te.index(x.shape[d]))
        return te.guarded(inside, x[tuple(at)], te.const(fill, x.dtype))

    return te.compute(shape, body, name="padded", tag="pad", stored=stored)


def window_view(x: Array, first: int, windows: Windows, out: Sequence[int], fill: float) -> Array:
    """Return all windows of an array: spatial axes become output axes; window axes come last."""
    span = [int(s.value or 0) for s in windows.span([lit(o) for o in out])]
    kernel = [int(k.value or 0) for k in windows.kernel]
    grow = [(0, 0)] * x.ndim
    for a in range(windows.count):
        behind = span[a] - x.shape[first + a] - windows.before[a]
        grow[first + a] = (windows.before[a], max(behind, 0))
    whole = np.pad(x, grow, constant_values=fill)
    axes = tuple(range(first, first + windows.count))
    reach = tuple((k - 1) * d + 1 for k, d in zip(kernel, windows.dilations, strict=True))
    view = sliding_window_view(whole, reach, axes)
    pick = [slice(None)] * view.ndim
    for a in range(windows.count):
        pick[first + a] = slice(0, (out[a] - 1) * windows.strides[a] + 1, windows.strides[a])
        pick[x.ndim + a] = slice(None, None, windows.dilations[a])
    return view[tuple(pick)]
