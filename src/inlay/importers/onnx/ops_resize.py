"""Resize and Upsample.

Where the new sizes are known, plain resampling is one operator. All else (scales that are computed,
antialiasing, cropping, aspect ratios) is composed here, axis by axis: the coordinates of the new
elements along an axis are a vector, the elements around them are gathered and weighted. A filter of
radius r over a shrunken axis reaches `r / scale` elements far, so the number of weights may be a dim
that the program finds out.

Where corners are aligned and a size times a scale is no whole number, the text of the specification
(the length of the result counts) and its reference implementation and tests (the product before
rounding does) disagree. That is refused: whichever is taken, half of all models get wrong values.

Source: the Resize operator of ONNX and its reference implementation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from inlay.arith import dtype as dt
from inlay.arith.expr import Int, floordiv, lit
from inlay.importers.onnx.node import Node, Rule
from inlay.importers.onnx.term import Term, arange, constant, integers, term
from inlay.importers.onnx.values import OnnxValue
from inlay.ir import make
from inlay.ops.resize import Coordinates, Mode, Nearest

_RADIUS = {"linear": 1, "cubic": 2}


@dataclass(frozen=True, slots=True)
class _Spec:
    """The attributes of a node.

    Attributes:
        mode: nearest, linear or cubic.
        coordinates: where a new element lies.
        nearest: which neighbor is nearest.
        axes: which axes are resampled, counted from the front.
        antialias: whether the filter grows where the axis shrinks.
        outside: whether elements outside weigh nothing.
        cubic: coefficient of the cubic filter.
        policy: how sizes are adjusted to the aspect ratio.
        roi: first and last coordinate along each of `axes`, for cropping.
        fill: what stands for elements outside when cropping.
    """

    mode: str
    coordinates: str
    nearest: str
    axes: tuple[int, ...]
    antialias: bool = False
    outside: bool = False
    cubic: float = -0.75
    policy: str = "stretch"
    roi: Term | None = None
    fill: float = 0.0


@dataclass(frozen=True, slots=True)
class _Axis:
    """One axis to resample: its old and new size, and new over old size as a number (f32)."""

    axis: int
    old: Int
    new: Int
    scale: Term


def _spec(node: Node) -> _Spec:
    rank = node.rank(0)
    axes = tuple(node.axis(a, rank) for a in node.int_list("axes") or range(rank))
    if len(set(axes)) < len(axes):
        raise node.invalid(f"has axes = {list(axes)}, of which some are one")
    mode = node.string("mode", "nearest")
    if mode not in tuple(Mode):
        raise node.invalid(f"has mode '{mode}'")
    if node.opset < 11:
        return _Spec(mode, "asymmetric", "floor", axes)
    coordinates = node.string("coordinate_transformation_mode", "half_pixel")
    crops = coordinates == "tf_crop_and_resize"
    if not crops and coordinates not in (*Coordinates, "tf_half_pixel_for_nn"):
        raise node.invalid(f"has coordinate_transformation_mode '{coordinates}'")
    nearest = node.string("nearest_mode", "round_prefer_floor")
    if nearest not in tuple(Nearest):
        raise node.invalid(f"has nearest_mode '{nearest}'")
    return _Spec(
        mode,
        coordinates,
        nearest,
        axes,
        node.flag("antialias") and mode != "nearest",
        node.flag("exclude_outside"),
        node.float("cubic_coeff_a", -0.75),
        node.choice("keep_aspect_ratio_policy", "stretch", "not_larger", "not_smaller"),
        term(node, 1) if crops and node.has(1) else None,
        node.float("extrapolation_value", 0.0),
    )


def _resize(node: Node) -> OnnxValue:
    scales = 1 if node.opset < 11 else 2
    sizes = 3
    spec = _spec(node)
    if node.has(sizes) and not _is_empty(node, sizes):
        return _to_sizes(node, spec, sizes)
    if not node.has(scales) or _is_empty(node, scales):
        raise node.invalid("needs scales or sizes")
    content = node.array(scales)
    if content is not None:
        return _by_scales(node, spec, tuple(float(s) for s in content.reshape(-1)))
    return _composed(node, spec, _axes_of_scales(spec, term(node, 0), term(node, scales)))


def _upsample(node: Node) -> OnnxValue:
    if node.opset < 9:
        given = node.float_list("scales")
        if given is None:
            raise node.invalid("needs scales")
        return _by_scales(node, _spec(node), given)
    return _resize(node)


def _is_empty(node: Node, i: int) -> bool:
    return node.type(i).shape == (lit(0),)


# --------------------------------------------------------------------------- sizes


def _to_sizes(node: Node, spec: _Spec, i: int) -> OnnxValue:
    x = term(node, 0)
    if spec.policy == "stretch":
        wanted = node.shape(i)
        if len(wanted) != len(spec.axes):
            raise node.invalid(f"has {len(wanted)} sizes for {len(spec.axes)} axes")
        dims = list(x.shape)
        for axis, n in zip(spec.axes, wanted, strict=True):
            dims[axis] = n
        if _is_plain(spec, x, dims):
            return _plain(node, spec, tuple(dims), ())
        axes = [_Axis(a, x.shape[a], dims[a], _ratio(x, a, dims[a])) for a in spec.axes]
        return _composed(node, spec, axes)
    old = integers(node, [x.shape[a] for a in spec.axes]).cast(dt.F32)
    ratios = term(node, i).cast(dt.F32) / old
    scale = ratios.over("min" if spec.policy == "not_larger" else "max")
    new = (old * scale + 0.5).op("floor").controls()
    return _composed(
        node, spec, [_Axis(a, x.shape[a], n, scale) for a, n in zip(spec.axes, new, strict=True)]
    )


def _ratio(x: Term, axis: int, new: Int) -> Term:
    old, size = integers(x.node, (x.shape[axis],)), integers(x.node, (new,))
    return (size.cast(dt.F32) / old.cast(dt.F32)).reshape()


def _by_scales(node: Node, spec: _Spec, scales: tuple[float, ...]) -> OnnxValue:
    x = term(node, 0)
    if len(scales) != len(spec.axes):
        raise node.invalid(f"has {len(scales)} scales for {len(spec.axes)} axes")
    if any(not (s > 0 and math.isfinite(s)) for s in scales):
        raise node.invalid(f"has scales {list(scales)}")
    if spec.coordinates == "align_corners":
        for axis, s in zip(spec.axes, scales, strict=True):
            size = x.shape[axis].value
            if s != int(s) and (size is None or size * s != int(size * s)):
                raise node.unsupported(_FRACTION, hint="export the model with sizes")
    if any(_scaled(x.shape[a], s) is None for a, s in zip(spec.axes, scales, strict=True)):
        return _composed(node, spec, _axes_of_scales(spec, x, constant(node, scales, dt.F32)))
    dims, every = list(x.shape), [1.0] * x.rank
    for axis, s in zip(spec.axes, scales, strict=True):
        dims[axis], every[axis] = _scaled(x.shape[axis], s) or lit(0), s
    if _is_plain(spec, x, dims):
        return _plain(node, spec, tuple(dims), tuple(every))
    axes = [_Axis(a, x.shape[a], dims[a], constant(node, every[a], dt.F32)) for a in spec.axes]
    return _composed(node, spec, axes)


_FRACTION = "aligns corners where a size times a scale is no whole number"
"""What the text of the specification and its reference implementation disagree about."""


def _scaled(size: Int, scale: float) -> Int | None:
    """Return the new size of an axis: its product with a scale in f32, rounded down.

    None where only the running program can round as f32 does.
    """
    if size.value is not None:
        return lit(math.floor(np.float32(size.value) * np.float32(scale)))
    ratio = Fraction(scale).limit_denominator(1024)
    if np.float32(float(ratio)) != np.float32(scale):
        return None
    return floordiv(size * ratio.numerator, lit(ratio.denominator))


def _axes_of_scales(spec: _Spec, x: Term, scales: Term) -> list[_Axis]:
    sizes = integers(x.node, [x.shape[a] for a in spec.axes]).cast(dt.F32) * scales
    if spec.coordinates == "align_corners":
        fractions = (sizes - sizes.op("floor")).op("sign").cast(dt.I64).over("max")
        sizes = sizes.checked_zero(fractions, _FRACTION)
    new = sizes.op("floor").controls()
    return [
        _Axis(a, x.shape[a], n, scales.at(0, i)) for i, (a, n) in enumerate(zip(spec.axes, new, strict=True))
    ]


# --------------------------------------------------------------------------- one operator


MAX_TAPS = 16
"""The operator sums over the product of the taps of all axes; beyond this, axis by axis is less."""


def _is_plain(spec: _Spec, x: Term, dims: Sequence[Int]) -> bool:
    """Whether the operator of ours can do it, at a cost that does not explode."""
    resampled = sum(old != new for old, new in zip(x.shape, dims, strict=True))
    return (
        (2 * _RADIUS.get(spec.mode, 0)) ** resampled <= MAX_TAPS
        and spec.coordinates in tuple(Coordinates)
        and not spec.antialias
        and not (spec.outside and spec.mode != "cubic")
        and (spec.mode == "nearest" or x.dtype.is_float)
    )


def _plain(node: Node, spec: _Spec, shape: tuple[Int, ...], scales: tuple[float, ...]) -> OnnxValue:
    return node.result(
        "resize",
        node.tensor(0),
        make.shape_const(shape),
        mode=Mode(spec.mode),
        coordinates=Coordinates(spec.coordinates),
        nearest=Nearest(spec.nearest),
        scales=scales,
        cubic_a=spec.cubic,
        exclude_outside=spec.outside,
    )


# --------------------------------------------------------------------------- composed


def _composed(node: Node, spec: _Spec, axes: list[_Axis]) -> OnnxValue:
    x = term(node, 0)
    dtype = x.dtype
    if spec.mode != "nearest":
        x = x.cast(dt.F64 if dtype is dt.F64 else dt.F32)
    crop: Term | None = None
    for i, a in enumerate(axes):
        if a.old == a.new and a.scale.node.is_one(a.scale.expr) and spec.roi is None:
            continue
        at = _coordinates(spec, a, i)
        x = _nearest(spec, x, a, at) if spec.mode == "nearest" else _weighted(spec, x, a, at)
        if spec.coordinates == "tf_crop_and_resize":
            last = integers(node, (a.old - 1,)).cast(dt.F32)
            outside = ((at < 0.0) | (at > last)).along(a.axis, x.rank)
            crop = outside if crop is None else crop | outside
    if crop is not None:
        x = crop.where(spec.fill, x)
    return x.cast(dtype).value


def _coordinates(spec: _Spec, a: _Axis, i: int) -> Term:
    """Return where the new elements of an axis lie among the old ones (f32)."""
    node = a.scale.node
    at, scale = arange(node, a.new, dt.F32), a.scale.cast(dt.F32)
    size, count = (integers(node, (n,)).cast(dt.F32).reshape() for n in (a.old, a.new))
    several = count > 1.0
    match spec.coordinates:
        case "half_pixel":
            return (at + 0.5) / scale - 0.5
        case "pytorch_half_pixel":
            return several.where((at + 0.5) / scale - 0.5, 0.0)
        case "half_pixel_symmetric":
            adjust = count / (scale * size)
            center = size * 0.5
            return center * (-adjust + 1.0) + ((at + 0.5) / scale - 0.5)
        case "align_corners":
            return several.where(at * (size - 1.0) / (count - 1.0).op("maximum", 1.0), 0.0)
        case "asymmetric":
            return at / scale
        case "tf_half_pixel_for_nn":
            return (at + 0.5) / scale
        case _:
            return _cropped(spec, at, size, count, i)


def _cropped(spec: _Spec, at: Term, size: Term, count: Term, i: int) -> Term:
    if spec.roi is None:
        raise at.node.invalid("crops without a region")
    first = spec.roi.at(0, i).cast(dt.F32)
    last = spec.roi.at(0, i + len(spec.axes)).cast(dt.F32)
    step = (last - first) * (size - 1.0) / (count - 1.0).op("maximum", 1.0)
    middle = (first + last) * 0.5 * (size - 1.0)
    return (count > 1.0).where(first * (size - 1.0) + at * step, middle)


def _clamped(places: Term, a: _Axis) -> Term:
    return places.cast(dt.I64).clamp(0, integers(places.node, (a.old - 1,)).reshape())


def _nearest(spec: _Spec, x: Term, a: _Axis, at: Term) -> Term:
    match spec.nearest:
        case "round_prefer_floor":
            place = (at - 0.5).op("ceil")
        case "round_prefer_ceil":
            place = (at + 0.5).op("floor")
        case "floor":
            place = at.op("floor")
        case _:
            place = at.op("ceil")
    return x.gather(_clamped(place, a), axis=a.axis, clamp=True)


def _weighted(spec: _Spec, x: Term, a: _Axis, at: Term) -> Term:
    node, radius = x.node, _RADIUS[spec.mode]
    shrink = a.scale.cast(dt.F32).op("minimum", 1.0) if spec.antialias else None
    low = at.op("floor")
    if shrink is None:
        start: Term = constant(node, 1.0 - radius, dt.F32)
        count = lit(2 * radius)
    else:
        reach = constant(node, -float(radius), dt.F32) / shrink
        start = reach.op("floor") + 1.0
        count = (-start * 2.0 + 2.0).control()
    offsets = arange(node, count, dt.F32) + start
    rows = a.new
    distance = offsets.reshape(1, count) - (at - low).reshape(rows, 1)
    if shrink is not None:
        distance = distance * shrink
    weights = _filter(spec, distance.op("abs"))
    places = low.reshape(rows, 1) + offsets.reshape(1, count)
    if spec.outside:
        last = integers(node, (a.old - 1,)).cast(dt.F32)
        weights = ((places >= 0.0) & (places <= last)).where(weights, 0.0)
    if spec.outside or shrink is not None:
        weights = weights / weights.over("sum", 1, keep=True)
    around = x.gather(_clamped(places, a), axis=a.axis, clamp=True)
    spread = [1] * around.rank
    spread[a.axis], spread[a.axis + 1] = rows, count  # type: ignore[call-overload]
    return (around * weights.cast(x.dtype).reshape(*spread)).over("sum", a.axis + 1)


def _filter(spec: _Spec, t: Term) -> Term:
    """Return the weight at a distance: a triangle, or the cubic of Keys (1981)."""
    if spec.mode == "linear":
        return (-t + 1.0).op("maximum", 0.0)
    a = spec.cubic
    near = ((t * (a + 2.0) - (a + 3.0)) * t) * t + 1.0
    far = ((t * a - 5.0 * a) * t + 8.0 * a) * t - 4.0 * a
    return (t <= 1.0).where(near, (t < 2.0).where(far, 0.0))


RULES: Mapping[str, Rule] = {"Resize": _resize, "Upsample": _upsample}
