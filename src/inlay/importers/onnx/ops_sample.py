"""Operators that read a tensor at real coordinates: GridSample, RoiAlign, DeformConv.

`x` is `[n, c, *spatial]`; the places are one term per spatial axis, each `[n, points]`, and what
comes back is `[n, points, c]`: all channels of a place are read at once. A sample is a weighted sum
over the elements around a place (taps): the product over the axes of one-dimensional taps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product as combinations

from inlay.arith import dtype as dt
from inlay.arith.expr import Int, floordiv, lit, product
from inlay.importers.onnx.node import Node, Rule
from inlay.importers.onnx.ops_nn import ints_attribute, kernel_of
from inlay.importers.onnx.term import Term, arange, concat, integers, term
from inlay.importers.onnx.values import OnnxValue


@dataclass(frozen=True, slots=True)
class _Tap:
    """An element near a place: its index along an axis (a whole number, f32) and its weight."""

    index: Term
    weight: Term


def _taps(mode: str, at: Term) -> list[_Tap]:
    if mode == "nearest":
        return [_Tap(at.op("round"), at * 0.0 + 1.0)]
    low = at.op("floor")
    part = at - low
    if mode == "linear":
        return [_Tap(low, -part + 1.0), _Tap(low + 1.0, part)]
    near, far = _cubic_near, _cubic_far
    weights = (far(part + 1.0), near(part), near(-part + 1.0), far(-part + 2.0))
    return [_Tap(low + float(k - 1), w) for k, w in enumerate(weights)]


_CUBIC = -0.75


def _cubic_near(t: Term) -> Term:
    return ((t * (_CUBIC + 2.0) - (_CUBIC + 3.0)) * t) * t + 1.0


def _cubic_far(t: Term) -> Term:
    return ((t * _CUBIC - 5.0 * _CUBIC) * t + 8.0 * _CUBIC) * t - 4.0 * _CUBIC


Inside = Callable[[Term, Int], tuple[Term, Term | None]]
"""From a whole coordinate and the size of its axis to one inside, and where it counts at all."""


def _zeros_outside(index: Term, size: Int) -> tuple[Term, Term | None]:
    last = _size(index.node, size) - 1.0
    return index.clamp(0.0, last), (index >= 0.0) & (index <= last)


def _edge_outside(index: Term, size: Int) -> tuple[Term, Term | None]:
    return index.clamp(0.0, _size(index.node, size) - 1.0), None


def _reflected(low: float, more: float) -> Inside:
    """Reflect at `low` and at `size + more`."""

    def inside(index: Term, size: Int) -> tuple[Term, Term | None]:
        high = _size(index.node, size) + more
        return _reflect(index, low, high).clamp(0.0, _size(index.node, size) - 1.0), None

    return inside


def _reflect(at: Term, low: float, high: Term) -> Term:
    span = high - low
    period = (span * 2.0).op("maximum", 1e-6)
    away = (at - low).op("abs").op("mod", period)
    return (away > span).where(period - away, away) + low


def _size(node: Node, size: Int) -> Term:
    return integers(node, (size,)).cast(dt.F32).reshape()


def sample(
    x: Term,
    places: Sequence[Term],
    mode: str,
    inside: Inside,
    combine: str = "add",
    *,
    images: Term | None = None,
) -> Term:
    """Read `x` at places: `[n, points, c]`; the weighted taps are combined by an operator.

    With `images`, `[n]`, places are in the image of that number, and there may be more or fewer than images.
    """
    spatial = x.shape[2:]
    channels_last = x.transpose(0, *range(2, x.rank), 1)
    n, points = places[0].shape
    of = None if images is None else images.reshape(n, 1, 1).broadcast((n, points, 1))
    whole = dt.I32 if images is None else images.dtype
    per_axis: list[list[tuple[Term, Term]]] = []
    for at, size in zip(places, spatial, strict=True):
        found: list[tuple[Term, Term]] = []
        for tap in _taps(mode, at):
            index, counts = inside(tap.index, size)
            weight = tap.weight if counts is None else counts.where(tap.weight, 0.0)
            found.append((index.cast(whole).reshape(n, points, 1), weight))
        per_axis.append(found)
    total: Term | None = None
    for choice in combinations(*per_axis):
        index = concat([*(() if of is None else (of,)), *(i for i, _ in choice)], 2)
        weight = choice[0][1]
        for _, w in choice[1:]:
            weight = weight * w
        values = channels_last.op("gather_nd", index, batch=1 if of is None else 0, clamp=True)
        part = values * weight.cast(x.dtype).reshape(n, points, 1)
        total = part if total is None else total.op(combine, part)
    assert total is not None, "there is at least one tap"
    return total


# --------------------------------------------------------------------------- grid sample

_MODES = {
    "bilinear": "linear",
    "bicubic": "cubic",
    "linear": "linear",
    "cubic": "cubic",
    "nearest": "nearest",
}


def _grid_sample(node: Node) -> OnnxValue:
    x, grid = term(node, 0), term(node, 1)
    mode = _MODES.get(node.string("mode", "linear"))
    padding = node.string("padding_mode", "zeros")
    if mode is None or padding not in ("zeros", "border", "reflection"):
        raise node.invalid(f"has mode '{node.string('mode', '')}' and padding '{padding}'")
    aligned = node.flag("align_corners")
    count = x.rank - 2
    dims = grid.shape[1:-1]
    flat = grid.cast(dt.F32).reshape(grid.shape[0], product(dims), count)
    low, more = (0.0, -1.0) if aligned else (-0.5, -0.5)
    places: list[Term] = []
    for d in range(count):  # the last number of a grid point is for the last axis
        size = _size(node, x.shape[2 + d])
        at = flat.at(2, count - 1 - d) + 1.0
        at = at * 0.5 * (size - 1.0) if aligned else (at * size - 1.0) * 0.5
        if padding == "border" and mode != "cubic":
            at = at.clamp(0.0, size - 1.0)
        if padding == "reflection" and mode != "cubic":
            at = _reflect(at, low, size + more).clamp(0.0, size - 1.0)
        places.append(at)
    inside: Inside = {"zeros": _zeros_outside, "border": _edge_outside, "reflection": _reflected(low, more)}[
        padding
    ]
    y = sample(x, places, mode, inside).transpose(0, 2, 1)
    return y.reshape(x.shape[0], x.shape[1], *dims).value


def _affine_grid(node: Node) -> OnnxValue:
    """Map the points of a regular grid on -1..1 by an affine matrix for each image."""
    theta = term(node, 0)
    size = node.shape(1)
    count = len(size) - 2
    if theta.rank != 3 or count not in (2, 3):
        raise node.invalid(f"has matrices of rank {theta.rank} and a size of {len(size)} dims")
    n, spatial = size[0], size[2:]
    axes: list[Term] = []
    for d in reversed(range(count)):  # x first
        at, total = arange(node, spatial[d], theta.dtype), _size(node, spatial[d])
        total = total.cast(theta.dtype)
        if node.flag("align_corners"):
            at = at * 2.0 / (total - 1.0).op("maximum", 1.0) - 1.0
        else:
            at = (at * 2.0 + 1.0) / total - 1.0
        axes.append(at.along(d, count).broadcast(spatial).reshape(product(spatial), 1))
    axes.append(axes[0] * 0.0 + 1.0)
    points = concat(axes, 1)
    y = points.op("matmul", theta.transpose(0, 2, 1))
    return y.reshape(n, *spatial, count).value


# --------------------------------------------------------------------------- regions


def _roi_align(node: Node) -> OnnxValue:
    """Average (or take the greatest of) samples on a grid in each bin of each region.

    A region may have fewer samples than the greatest region where their number is adaptive; those
    beyond its own count for nothing.
    """
    x, rois, batch = term(node, 0), term(node, 1).cast(dt.F32), term(node, 2).cast(dt.I64)
    mode = node.string("mode", "avg")
    half = (
        0.5
        if node.opset >= 16 and node.string("coordinate_transformation_mode", "half_pixel") == "half_pixel"
        else 0.0
    )
    out = (node.int("output_height", 1), node.int("output_width", 1))
    ratio, scale = node.int("sampling_ratio", 0), node.float("spatial_scale", 1.0)
    regions = rois.shape[0]
    coordinates: list[Term] = []
    counts: list[tuple[Term, Int]] = []
    for d in range(2):  # height, width; a region is x1, y1, x2, y2
        first = rois.at(1, 1 - d) * scale - half
        length = rois.at(1, 3 - d) * scale - half - first
        if not half:
            length = length.op("maximum", 1.0)
        size = length / float(out[d])
        number = size.op("ceil").clamp(1.0, 2.0**20) if not ratio else size * 0.0 + float(ratio)
        most = lit(ratio) if ratio else number.cast(dt.I64).over("max").op("maximum", 1).control()
        steps = arange(node, most, dt.F32).reshape(1, 1, most)
        bins = arange(node, out[d], dt.F32).reshape(1, out[d], 1)
        column = (regions, 1, 1)
        at = (bins + (steps + 0.5) / number.reshape(*column)) * size.reshape(*column)
        coordinates.append(at + first.reshape(*column))
        counts.append((number, most))
    images = arange(node, x.shape[0]).gather(batch)  # a number that is none is told of
    return _pooled(x, images, coordinates, counts, mode).value


def _pooled(
    x: Term, images: Term, coordinates: Sequence[Term], counts: Sequence[tuple[Term, Int]], mode: str
) -> Term:
    node, channels = x.node, x.shape[1]
    rows, columns = coordinates
    regions = rows.shape[0]
    (_, h, sh), (_, w, sw) = rows.shape, columns.shape
    shape = (regions, h, sh, w, sw)
    ys = rows.reshape(regions, h, sh, 1, 1).broadcast(shape)
    xs = columns.reshape(regions, 1, 1, w, sw).broadcast(shape)
    points = product(shape[1:])
    flat = [t.reshape(regions, points) for t in (ys, xs)]
    seen: Term | None = None
    for at, size in zip(flat, x.shape[2:], strict=True):
        near = (at >= -1.0) & (at <= _size(node, size))
        seen = near if seen is None else seen & near
    assert seen is not None, "there are two axes"
    flat = [t.clamp(0.0, _size(node, size) - 1.0) for t, size in zip(flat, x.shape[2:], strict=True)]
    # The greatest is taken over the weighted taps, as the specification's reference does.
    combine = "maximum" if mode == "max" else "add"
    values = sample(x, flat, "linear", _edge_outside, combine, images=images)
    values = seen.reshape(regions, points, 1).where(values, 0.0)
    values = values.reshape(*shape, channels)
    own: Term | None = None
    for (number, most), place in zip(counts, (2, 4), strict=True):
        spread = [1] * 6
        spread[place] = most  # type: ignore[call-overload]
        here = arange(node, most, dt.F32).reshape(*spread) < number.reshape(regions, *[1] * 5)
        own = here if own is None else own & here
    assert own is not None, "there are two axes"
    if mode == "max":
        return own.where(values, float("-inf")).over("max", 2, 4).transpose(0, 3, 1, 2)
    total = own.where(values, 0.0).over("sum", 2, 4)
    samples = counts[0][0] * counts[1][0]
    return (total / samples.reshape(regions, 1, 1, 1)).transpose(0, 3, 1, 2)


# --------------------------------------------------------------------------- deformable


def _deform_conv(node: Node) -> OnnxValue:
    """Sample the input where each weight of each window has moved to, then multiply."""
    x, w, offset = term(node, 0), term(node, 1), term(node, 2)
    if x.rank != 4:
        raise node.unsupported(f"has an input of rank {x.rank}; only images are done")
    kh, kw = kernel_of(node, node.type(1))
    strides = ints_attribute(node, "strides", 2, 1)
    dilations = ints_attribute(node, "dilations", 2, 1)
    pads = ints_attribute(node, "pads", 4, 0)
    groups, moved = node.int("group", 1), node.int("offset_group", 1)
    n, channels = x.shape[:2]
    out = offset.shape[2:]
    if min(pads) < 0:
        raise node.invalid(f"has pads = {list(pads)}, needed at least 0")
    for d, k in enumerate((kh, kw)):
        room = x.shape[2 + d] + (pads[d] + pads[2 + d]) - ((k - 1) * dilations[d] + 1)
        if (floordiv(room, lit(strides[d])) + 1 - out[d]).value not in (0, None):
            raise node.invalid(f"has offsets for {out[d]} windows along axis {2 + d}")
    taps, points = kh * kw, product(out)
    offsets = offset.cast(dt.F32).reshape(n * moved, taps, 2, *out)
    places: list[Term] = []
    for d in range(2):
        spread = [1, 1, 1, 1]
        spread[2 + d] = out[d]  # type: ignore[call-overload]
        base = arange(node, out[d], dt.F32).reshape(*spread) * float(strides[d]) - float(pads[d])
        k = arange(node, taps, dt.I64)
        k = (k / kw if d == 0 else k.op("rem", kw)).cast(dt.F32) * float(dilations[d])
        at = offsets.at(2, d) + base + k.reshape(1, taps, 1, 1)
        places.append(at.reshape(n * moved, points * taps))
    per = _exact(node, channels, moved)
    spatial = x.shape[2:]
    grouped = x.reshape(n * moved, per, *spatial)
    values = sample(grouped, places, "linear", _zeros_outside).transpose(0, 2, 1)
    values = values.reshape(n * moved, per, taps, points)
    if node.has(4):
        values = values * term(node, 4).reshape(n * moved, 1, taps, points)
    into = _exact(node, channels, groups) * taps
    outputs = _exact(node, w.shape[0], groups)
    left = w.reshape(1, groups, outputs, into)
    y = left.op("matmul", values.reshape(n, groups, into, points))
    y = y.reshape(n, w.shape[0], *out)
    if node.has(3):
        y = y + term(node, 3).reshape(w.shape[0], 1, 1)
    return y.value


def _exact(node: Node, count: Int, groups: int) -> int:
    if count.value is None or groups < 1 or count.value % groups:
        raise node.unsupported(f"splits {count} channels into {groups} groups")
    return count.value // groups


RULES: Mapping[str, Rule] = {
    "GridSample": _grid_sample,
    "AffineGrid": _affine_grid,
    "RoiAlign": _roi_align,
    "DeformConv": _deform_conv,
}
