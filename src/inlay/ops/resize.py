"""Resampling of the axes of a tensor to another shape: nearest, linear, cubic.

Every axis is resampled on its own: an element of the result lies at a real coordinate of the operand,
and is a weighted sum of the elements around it (taps); outside the operand the edge is repeated.
An axis that keeps its size and has no scale is left alone. Coordinates are computed in f32, in the
order that is written down in `_coordinate`, because for nearest the last bit decides.

Source: the Resize operator of ONNX (without cropping and antialiasing).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from inlay.arith.dtype import F16, F32, I32, I64, U8, DType
from inlay.arith.expr import Int
from inlay.ir.op import TypeContext
from inlay.ir.types import TensorType
from inlay.loop import te
from inlay.loop.scalar import UnaryOp
from inlay.ops import _rules as rules
from inlay.ops._build import Array, widen, widened
from inlay.ops._define import FusionPattern, OpDef, Sample, define
from inlay.ops._rules import ELEMENTS, FLOATS, Types
from inlay.ops._samples import noise


class Mode(StrEnum):
    """How an element is made from those around it."""

    NEAREST = "nearest"
    LINEAR = "linear"
    CUBIC = "cubic"


class Coordinates(StrEnum):
    """Where an element of the result lies in the operand."""

    HALF_PIXEL = "half_pixel"
    HALF_PIXEL_SYMMETRIC = "half_pixel_symmetric"
    PYTORCH_HALF_PIXEL = "pytorch_half_pixel"
    ALIGN_CORNERS = "align_corners"
    ASYMMETRIC = "asymmetric"


class Nearest(StrEnum):
    """Which neighbor of a coordinate is nearest."""

    ROUND_PREFER_FLOOR = "round_prefer_floor"
    ROUND_PREFER_CEIL = "round_prefer_ceil"
    FLOOR = "floor"
    CEIL = "ceil"


@dataclass(frozen=True, slots=True)
class ResizeAttrs:
    """`mode`, `coordinates`, `nearest`: see their classes; `scales`: result over operand.

    `scales` has one number per axis, or none for the ratios of sizes; `cubic_a`: coefficient of the
    cubic; `exclude_outside`: taps of the cubic that are outside weigh nothing.
    """

    mode: Mode = Mode.NEAREST
    coordinates: Coordinates = Coordinates.HALF_PIXEL
    nearest: Nearest = Nearest.ROUND_PREFER_FLOOR
    scales: tuple[float, ...] = ()
    cubic_a: float = -0.75
    exclude_outside: bool = False


SHORT = 32
"""Elements of a row from which on tables of places and weights take less than to compute them each time."""

Tap = tuple[te.ScalarValue, te.ScalarValue]
"""An index into an axis (i64, inside) and a weight (f32)."""


def _rule(ctx: TypeContext, a: ResizeAttrs, args: Types) -> TensorType:
    x = rules.tensor(ctx, args, 0, ELEMENTS if a.mode is Mode.NEAREST else FLOATS)
    shape = rules.shape_values(ctx, args, 1)
    rank = len(x.shape)
    if len(shape) != rank or len(a.scales) not in (0, rank):
        raise ctx.fail(
            f"found a shape of {len(shape)} and {len(a.scales)} scales, needed {rank} dims, and as "
            "many scales or none",
            id="type.rank-mismatch",
        )
    if any(not (s > 0 and math.isfinite(s)) for s in a.scales):
        raise ctx.fail(f"found scales {a.scales}, needed positive numbers")
    for d in range(rank):
        ctx.at_least(shape[d], 0, f"dim {d} of the new shape")
        if _resized(a, d, x.shape[d], shape[d]):
            ctx.at_least(x.shape[d], 1, f"an element of axis {d} to resample")
    return TensorType(shape, x.dtype)


def _resized(a: ResizeAttrs, axis: int, old: object, new: object) -> bool:
    return old != new or bool(a.scales and a.scales[axis] != 1.0)


# --------------------------------------------------------------------------- tensor expressions


def _compute(a: ResizeAttrs, operands: Sequence[Any], result: TensorType) -> te.Tensor:
    """Resample axis by axis, which takes fewer taps than all axes at once."""
    x: te.Tensor = operands[0]
    axes = [d for d in range(x.ndim) if _resized(a, d, x.shape[d], result.shape[d])]
    if a.mode is Mode.NEAREST or not axes:
        return _picked(a, x, axes, result)
    shape, y = list(x.shape), x
    for d in axes:
        shape[d] = result.shape[d]
        last = d == axes[-1]
        y = _along(a, y, d, x.shape[d], tuple(shape), x.dtype if last else widened(x.dtype))
    return y


def _picked(a: ResizeAttrs, x: te.Tensor, axes: Sequence[int], result: TensorType) -> te.Tensor:
    """Return the nearest element along each axis: no arithmetic on elements."""
    found = {d: _place_along(a, d, x.shape[d], result.shape) for d in axes}

    def body(*i: Int) -> te.ScalarValue:
        return x[tuple(found[d](i[d]) if d in found else i[d] for d in range(x.ndim))]

    return te.compute(result.shape, body, name="resize")


def _place_along(
    a: ResizeAttrs, axis: int, old: Int, shape: Sequence[Int]
) -> Callable[[Int], Int | te.ScalarValue]:
    """Return which element of an axis is the nearest one, by the index into the result."""
    new = shape[axis]
    if (even := _even(a, axis, old, new)) is not None:
        return even

    def place(i: Int) -> te.ScalarValue:
        return _clamped(_nearest(a.nearest, _coordinate(a, axis, i, old, new)), old)

    return _place_table(place, old, new) if _has_tables(axis, shape) else place


def _has_tables(axis: int, shape: Sequence[Int]) -> bool:
    """Whether places and weights along an axis are in tables, computed once and not for each row.

    Of short rows they are written out, with numbers for indices.
    """
    *others, count = shape
    is_long = count.value is None or count.value >= SHORT
    return axis == len(others) and is_long and any(n.value != 1 for n in others)


def _table(value: Callable[[Int], te.ScalarValue], count: Int) -> Callable[[Int], te.ScalarValue]:
    """Return a value of an index, by a table of it."""
    table = te.compute((count,), value, name="resize")
    return lambda i: table[i]


def _place_table(
    place: Callable[[Int], te.ScalarValue], old: Int, count: Int
) -> Callable[[Int], te.ScalarValue]:
    """Return an index into an axis, by a table of numbers that are as wide as elements where they fit."""
    dtype = I32 if old.value is not None and old.value <= 2**31 else I64
    table = _table(lambda i: place(i).cast(dtype), count)
    return lambda i: table(i).cast(I64)


def _even(a: ResizeAttrs, axis: int, old: Int, new: Int) -> Callable[[Int], Int] | None:
    """Return the nearest element where each is taken so many times, or one of so many; None elsewhere.

    Sizes are known then, no arithmetic on floats is left, and what is loaded lies in steps.
    """
    if not old.value or not new.value:
        return None
    places = _np_places(a, axis, old.value, new.value)
    times, step = -(-new.value // old.value), old.value // new.value
    if np.array_equal(places, np.arange(new.value) // times):
        return lambda i: i // times
    first = int(places[0])
    is_even = np.array_equal(places, np.arange(new.value) * step + first)
    return (lambda i: i * step + first) if is_even else None


def _along(
    a: ResizeAttrs, x: te.Tensor, axis: int, old: Int, shape: tuple[Int, ...], dtype: DType
) -> te.Tensor:
    """Return the weighted sums of the taps along one axis."""
    wide = widened(x.dtype)
    taps = _taps_along(a, axis, old, shape)

    def body(*i: Int) -> te.ScalarValue:
        total: te.ScalarValue | None = None
        for place, weight in taps(i[axis]):
            term = x[(*i[:axis], place, *i[axis + 1 :])].cast(wide) * weight.cast(wide)
            total = term if total is None else total + term
        assert total is not None, "there is at least one tap"
        return total.cast(dtype)

    return te.compute(shape, body, name="resize")


def _taps_along(a: ResizeAttrs, axis: int, old: Int, shape: Sequence[Int]) -> Callable[[Int], Sequence[Tap]]:
    """Return the taps of an element, by its index along the axis."""
    new = shape[axis]

    def taps(i: Int) -> list[Tap]:
        return _taps(a, axis, i, old, new)

    if not _has_tables(axis, shape):
        return taps
    tables = [
        (_place_table(lambda i, k=k: taps(i)[k][0], old, new), _table(lambda i, k=k: taps(i)[k][1], new))
        for k in range(2 if a.mode is Mode.LINEAR else 4)
    ]
    return lambda i: [(place(i), weight(i)) for place, weight in tables]


def _coordinate(a: ResizeAttrs, axis: int, i: Int, old: Int, new: Int) -> te.ScalarValue:
    at, size, count = te.index(i, F32), te.index(old, F32), te.index(new, F32)
    scale = te.const(a.scales[axis], F32) if a.scales else count / size
    match a.coordinates:
        case Coordinates.HALF_PIXEL:
            return (at + 0.5) / scale - 0.5
        case Coordinates.PYTORCH_HALF_PIXEL:
            return te.select(count > 1, (at + 0.5) / scale - 0.5, 0)
        case Coordinates.HALF_PIXEL_SYMMETRIC:
            # The result is centered where the scale does not fit a whole number of elements.
            adjust = count / (scale * size)
            offset = (1.0 - adjust) * (size * 0.5)
            return offset + (at + 0.5) / scale - 0.5
        case Coordinates.ALIGN_CORNERS:
            return te.select(count > 1, at * (size - 1.0) / te.maximum(count - 1.0, 1.0), 0)
        case Coordinates.ASYMMETRIC:
            return at / scale


def _clamped(place: te.ScalarValue, old: Int) -> te.ScalarValue:
    """Return a whole coordinate as an index inside the axis."""
    inside = te.minimum(te.maximum(place, 0), te.index(old - 1, F32))
    return inside.cast(I64)


def _taps(a: ResizeAttrs, axis: int, i: Int, old: Int, new: Int) -> list[Tap]:
    at = _coordinate(a, axis, i, old, new)
    if a.mode is Mode.LINEAR:
        at = te.minimum(te.maximum(at, 0), te.index(old - 1, F32))
        low = te.unary(UnaryOp.FLOOR, at)
        return [(_clamped(low, old), 1.0 - (at - low)), (_clamped(low + 1.0, old), at - low)]
    low = te.unary(UnaryOp.FLOOR, at)
    places = [low + float(k) for k in (-1, 0, 1, 2)]
    weights = _cubic(a.cubic_a, at - low)
    if a.exclude_outside:
        last = te.index(old - 1, F32)
        weights = [te.select((p >= 0) & (p <= last), w, 0) for p, w in zip(places, weights, strict=True)]
        total = weights[0] + weights[1] + weights[2] + weights[3]
        weights = [w / total for w in weights]
    return [(_clamped(p, old), w) for p, w in zip(places, weights, strict=True)]


def _nearest(nearest: Nearest, at: te.ScalarValue) -> te.ScalarValue:
    match nearest:
        case Nearest.ROUND_PREFER_FLOOR:
            return te.unary(UnaryOp.CEIL, at - 0.5)
        case Nearest.ROUND_PREFER_CEIL:
            return te.unary(UnaryOp.FLOOR, at + 0.5)
        case Nearest.FLOOR:
            return te.unary(UnaryOp.FLOOR, at)
        case Nearest.CEIL:
            return te.unary(UnaryOp.CEIL, at)


def _cubic(a: float, t: te.ScalarValue) -> list[te.ScalarValue]:
    """Return the weights of the four elements around a coordinate (Keys 1981)."""
    return [_cubic_far(a, t + 1.0), _cubic_near(a, t), _cubic_near(a, 1.0 - t), _cubic_far(a, 2.0 - t)]


def _cubic_near(a: float, d: te.ScalarValue) -> te.ScalarValue:
    return ((d * (a + 2)) - (a + 3)) * d * d + 1.0


def _cubic_far(a: float, d: te.ScalarValue) -> te.ScalarValue:
    return ((d * a - 5 * a) * d + 8 * a) * d - 4 * a


# --------------------------------------------------------------------------- reference


def _reference(a: ResizeAttrs, x: Array, shape: tuple[int, ...]) -> Array:
    y = x if a.mode is Mode.NEAREST else widen(x)
    for d in range(x.ndim):
        if _resized(a, d, x.shape[d], shape[d]):
            y = _resample(a, y, d, shape[d])
    return y.astype(x.dtype)


def _resample(a: ResizeAttrs, x: Array, axis: int, new: int) -> Array:
    old = x.shape[axis]
    at = _np_coordinates(a, axis, old, new)
    last = old - 1
    if a.mode is Mode.NEAREST:
        return np.take(x, _np_places(a, axis, old, new), axis)
    if a.mode is Mode.LINEAR:
        at = np.clip(at, 0, last)
        low = np.floor(at)
        places, weights = [low, low + 1], [1 - (at - low), at - low]
    else:
        low = np.floor(at)
        t, c = at - low, np.float32(a.cubic_a)
        places = [low - 1, low, low + 1, low + 2]
        near = [((c + 2) * d - (c + 3)) * d * d + 1 for d in (t, 1 - t)]
        far = [((c * d - 5 * c) * d + 8 * c) * d - 4 * c for d in (t + 1, 2 - t)]
        weights = [far[0], near[0], near[1], far[1]]
        if a.exclude_outside:
            weights = [np.where((p >= 0) & (p <= last), w, 0) for p, w in zip(places, weights, strict=True)]
            total = sum(weights)
            weights = [w / total for w in weights]
    along = [1] * x.ndim
    along[axis] = new
    parts = [
        np.take(x, np.clip(p, 0, last).astype(np.int64), axis) * w.astype(x.dtype).reshape(along)
        for p, w in zip(places, weights, strict=True)
    ]
    return np.asarray(sum(parts))


def _np_places(a: ResizeAttrs, axis: int, old: int, new: int) -> Array:
    place = _np_nearest(a.nearest, _np_coordinates(a, axis, old, new))
    return np.clip(place, 0, old - 1).astype(np.int64)


def _np_nearest(nearest: Nearest, at: Array) -> Array:
    match nearest:
        case Nearest.ROUND_PREFER_FLOOR:
            return np.ceil(at - np.float32(0.5))
        case Nearest.ROUND_PREFER_CEIL:
            return np.floor(at + np.float32(0.5))
        case Nearest.FLOOR:
            return np.floor(at)
        case Nearest.CEIL:
            return np.ceil(at)


def _np_coordinates(a: ResizeAttrs, axis: int, old: int, new: int) -> Array:
    f = np.float32
    at, size, count, half = np.arange(new, dtype=f), f(old), f(new), f(0.5)
    scale = f(a.scales[axis]) if a.scales else count / size
    match a.coordinates:
        case Coordinates.HALF_PIXEL:
            return (at + half) / scale - half
        case Coordinates.PYTORCH_HALF_PIXEL:
            return (at + half) / scale - half if new > 1 else at * 0
        case Coordinates.HALF_PIXEL_SYMMETRIC:
            offset = (f(1) - count / (scale * size)) * (size * half)
            return offset + (at + half) / scale - half
        case Coordinates.ALIGN_CORNERS:
            return at * (size - f(1)) / (count - f(1)) if new > 1 else at * 0
        case Coordinates.ASYMMETRIC:
            return at / scale


def _samples() -> list[Sample]:
    x = noise((1, 2, 4, 5), F32, seed="resize")
    n: tuple[str | int, ...] = (1, 2, "h", "w")
    made = [
        Sample(f"{mode} {c} {size}", ResizeAttrs(mode, c), (x, (1, 2, *size)), (n, (1, 2, "p", "q")))
        for mode in Mode
        for c in Coordinates
        for size in ((8, 10), (3, 7), (1, 1))
    ]
    made += [
        Sample(
            f"{r} {c} {size}",
            ResizeAttrs(coordinates=c, nearest=r),
            (x, (1, 2, *size)),
            (n, (1, 2, "p", "q")) if size == (6, 10) else (),
            exact=True,
        )
        for r in Nearest
        for c in (Coordinates.HALF_PIXEL, Coordinates.ASYMMETRIC)
        for size in ((6, 10), (2, 15))
    ]
    line = noise((2, 3, 27), F32, seed="line")
    made += [Sample(f"{mode} long", ResizeAttrs(mode), (line, (2, 5, n))) for mode in Mode for n in (36, 45)]
    scales = ResizeAttrs(Mode.LINEAR, scales=(1.0, 1.0, 1.6, 0.6))
    symmetric = ResizeAttrs(Mode.LINEAR, Coordinates.HALF_PIXEL_SYMMETRIC, scales=(1.0, 1.0, 1.6, 0.7))
    return [
        *made,
        Sample("scales", scales, (x, (1, 2, 6, 3))),
        Sample("symmetric", symmetric, (x, (1, 2, 6, 3))),
        Sample("outside", ResizeAttrs(Mode.CUBIC, exclude_outside=True), (x, (1, 2, 9, 3))),
        Sample("sharper", ResizeAttrs(Mode.CUBIC, cubic_a=-0.5), (x, (1, 2, 9, 3))),
        Sample("channels too", ResizeAttrs(Mode.LINEAR), (x, (2, 3, 4, 5))),
        Sample("same", ResizeAttrs(Mode.LINEAR), (x, (1, 2, 4, 5)), exact=True),
        Sample("u8", ResizeAttrs(), (noise((2, 3), U8, high=255), (4, 2)), exact=True),
        Sample("f16", ResizeAttrs(Mode.LINEAR), (x.astype(np.float16), (1, 2, 7, 7))),
        Sample("f16 nearest", ResizeAttrs(), (noise((2, 3), F16), (4, 2)), exact=True),
        Sample("to nothing", ResizeAttrs(Mode.LINEAR), (x, (1, 2, 0, 5))),
    ]


DEFINITIONS: tuple[OpDef, ...] = (
    define(
        "resize",
        ResizeAttrs,
        _rule,
        2,
        FusionPattern.LAYOUT,
        "x resampled to a shape",
        reference=_reference,
        compute=_compute,
        samples=_samples,
    ),
)
