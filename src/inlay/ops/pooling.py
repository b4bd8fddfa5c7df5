"""Pools: the greatest or the mean of each window.

`x` is `[n, c, *spatial]`, or `[n, *spatial, c]` with `channels_last`. Strides, dilations and pads are
as in `_windows.py`. With `ceil_mode` a last window may stick out behind, if it begins inside; the
elements outside never count. Pools over all of an axis are reductions (`reduce_max`, `reduce_mean`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from inlay.arith.dtype import F16, F32, I8, I32, I64, U8, DType
from inlay.arith.expr import Int, ceildiv, floordiv, lit
from inlay.ir.op import TypeContext
from inlay.ir.types import TensorType
from inlay.loop import te
from inlay.ops import _rules as rules
from inlay.ops._build import Array, lowest, widen, widened
from inlay.ops._define import FusionPattern, OpDef, Sample, define
from inlay.ops._rules import FLOATS, NUMBERS, Types
from inlay.ops._samples import noise
from inlay.ops._windows import Windows, accepted, padded, resolve, window_view


@dataclass(frozen=True, slots=True)
class MaxPoolAttrs:
    """`kernel`, `strides`, `pads`, `dilations`, `ceil_mode`, `channels_last`."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...] = ()
    pads: tuple[int, ...] = ()
    dilations: tuple[int, ...] = ()
    ceil_mode: bool = False
    channels_last: bool = False


@dataclass(frozen=True, slots=True)
class AveragePoolAttrs:
    """As for `max_pool`; `count_include_pad`: the padding counts as zeros in the mean."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...] = ()
    pads: tuple[int, ...] = ()
    dilations: tuple[int, ...] = ()
    ceil_mode: bool = False
    channels_last: bool = False
    count_include_pad: bool = False


Attrs = MaxPoolAttrs | AveragePoolAttrs
Over = Callable[[Sequence[te.Axis], te.ScalarValue], te.ScalarValue]
"""A reduction over axes."""


def _first(a: Attrs) -> int:
    """Return the first spatial axis."""
    return 1 if a.channels_last else 2


def _windows(a: Attrs) -> Windows:
    return accepted(tuple(map(lit, a.kernel)), a.strides, a.dilations, a.pads)


def _shape(ctx: TypeContext, a: Attrs, x: TensorType) -> tuple[Int, ...]:
    rules.of_rank(ctx, x, len(a.kernel) + 2, "the input")
    if not a.kernel or min(a.kernel) < 1:
        raise ctx.fail(f"found kernel {a.kernel}, needed at least 1 along each spatial axis")
    windows = resolve(ctx, tuple(map(lit, a.kernel)), a.strides, a.dilations, a.pads)
    first = _first(a)
    out = windows.out(ctx, x.shape[first : first + windows.count], ceil=a.ceil_mode)
    return (*x.shape[:first], *out, *x.shape[first + windows.count :])


def _out(a: Attrs, shape: Sequence[int]) -> list[int]:
    """Return the numbers of windows along the spatial axes of an array."""
    w, out = _windows(a), list[int]()
    for i in range(w.count):
        size = shape[_first(a) + i]
        room = size + w.before[i] + w.after[i] - (a.kernel[i] - 1) * w.dilations[i] - 1
        count = room // w.strides[i] + 1
        if a.ceil_mode:
            count = -(-room // w.strides[i]) + 1
            if (count - 1) * w.strides[i] >= size + w.before[i]:
                count -= 1
        out.append(count)
    return out


def _reduced(a: Attrs, source: te.Tensor, shape: Sequence[Int], over: Over, name: str) -> te.Tensor:
    """Combine each window of the padded `source` with a reduction such as `te.max_over`."""
    windows, first = _windows(a), _first(a)
    if not _is_in_lines(a):
        return _combined(source, first, windows, shape, over, name)
    last = first + windows.count - 1
    columns = windows.span(shape[first : last + 1])[-1]
    inside = (*shape[:last], columns, *shape[last + 1 :])
    lines = _combined(source, first, windows.without_last(), inside, over, "lines")
    return _combined(lines, last, windows.only_last(), shape, over, name)


def _combined(
    source: te.Tensor, first: int, windows: Windows, shape: Sequence[Int], over: Over, name: str
) -> te.Tensor:
    """Combine windows along the axes from `first` on; where there is none, elements stay as they are.

    Sums are in the widened format, and so are maxima of floats: they are kept in registers of that.
    """
    wide = widened(source.dtype) if over is te.sum_over or source.dtype.is_float else source.dtype

    def body(*i: Int) -> te.ScalarValue:
        k = windows.axes()
        at = windows.at(i[first : first + windows.count], k)
        value = source[(*i[:first], *at, *i[first + windows.count :])]
        term = value.cast(wide)
        return over(k, term) if k else term

    return te.compute(shape, body, name=name, tag="pool")


def _is_in_lines(a: Attrs) -> bool:
    """Whether windows are combined along the last spatial axis behind the others.

    Windows overlap: what is combined of the lines of a window serves all windows that share its columns, so
    that one of 5 x 5 takes 5 + 5 elements and not 25. Of images in planes it also has the padding in it, and
    what is left to do has no conditions.
    """
    w, lines = _windows(a), math.prod(a.kernel[:-1])
    if a.channels_last:
        return 2 * lines * a.kernel[-1] > 3 * ((lines + 1) * w.strides[-1] + a.kernel[-1])
    is_padded = a.ceil_mode or w.before[-1] > 0 or w.after[-1] > 0
    return is_padded or lines * a.kernel[-1] > lines + 1 + a.kernel[-1]


# --------------------------------------------------------------------------- max


def _max_rule(ctx: TypeContext, a: MaxPoolAttrs, args: Types) -> TensorType:
    x = rules.tensor(ctx, args, 0, NUMBERS)
    return TensorType(_shape(ctx, a, x), x.dtype)


def _max_reference(a: MaxPoolAttrs, x: Array) -> Array:
    out = _out(a, x.shape)
    fill = -np.inf if x.dtype.kind in "fV" else np.iinfo(x.dtype).min
    view = window_view(x, _first(a), _windows(a), out, fill)
    axes = tuple(range(x.ndim, x.ndim + len(out)))
    return widen(view).max(axes).astype(x.dtype)


def _max_compute(a: MaxPoolAttrs, operands: Sequence[te.Tensor], result: TensorType) -> te.Tensor:
    (x,) = operands
    best = _reduced(a, _filled(x, a, result), result.shape, te.max_over, "max_pool")
    if best.dtype is x.dtype:
        return best
    return te.compute(result.shape, lambda *i: best[i].cast(x.dtype), name="rounded")


def _filled(x: te.Tensor, a: Attrs, result: TensorType) -> te.Tensor:
    out = result.shape[_first(a) : _first(a) + len(a.kernel)]
    return padded(x, _first(a), _windows(a), out, lowest(x.dtype), ceil=a.ceil_mode)


def _index_rule(ctx: TypeContext, a: MaxPoolAttrs, args: Types) -> TensorType:
    return TensorType(_shape(ctx, a, rules.tensor(ctx, args, 0, NUMBERS)), I64)


def _index_reference(a: MaxPoolAttrs, x: Array) -> Array:
    first, out, windows = _first(a), _out(a, x.shape), _windows(a)
    best = _max_reference(a, x)
    flat = np.arange(x.size, dtype=np.int64).reshape(x.shape)
    fill = -np.inf if x.dtype.kind in "fV" else np.iinfo(x.dtype).min
    values = widen(window_view(x, first, windows, out, fill))
    places = window_view(flat, first, windows, out, np.iinfo(np.int64).max)
    top = widen(best)[(..., *[None] * len(out))]
    hit = (values == top) | (np.isnan(values) if values.dtype.kind == "f" else False)
    axes = tuple(range(x.ndim, x.ndim + len(out)))
    return np.where(hit, places, np.iinfo(np.int64).max).min(axes)


def _index_compute(a: MaxPoolAttrs, operands: Sequence[te.Tensor], result: TensorType) -> te.Tensor:
    (x,) = operands
    windows, first = _windows(a), _first(a)
    source = _filled(x, a, result)
    best = _reduced(a, source, result.shape, te.max_over, "max_pool")
    nowhere = np.iinfo(np.int64).max

    def body(*i: Int) -> te.ScalarValue:
        k = windows.axes()
        padded_at = windows.at(i[first : first + windows.count], k)
        value = source[(*i[:first], *padded_at, *i[first + windows.count :])].cast(best.dtype)
        at, flat = list(i), lit(0)
        hit: te.ScalarValue = value.equals(best[i])
        if x.dtype.is_float:
            hit = hit | value.differs(value)
        for d in range(windows.count):
            at[first + d] = padded_at[d] - windows.before[d]
            if a.ceil_mode or windows.before[d] or windows.after[d]:
                place = te.index(at[first + d])
                hit = hit & (place >= 0) & (place < te.index(x.shape[first + d]))
        for d, size in enumerate(x.shape):
            flat = flat * size + at[d]
        return te.min_over(k, te.select(hit, te.index(flat), nowhere))

    return te.compute(result.shape, body, name="max_pool_index", tag="pool")


# --------------------------------------------------------------------------- average


def _average_rule(ctx: TypeContext, a: AveragePoolAttrs, args: Types) -> TensorType:
    x = rules.tensor(ctx, args, 0, FLOATS)
    return TensorType(_shape(ctx, a, x), x.dtype)


def _average_reference(a: AveragePoolAttrs, x: Array) -> Array:
    out, windows, first = _out(a, x.shape), _windows(a), _first(a)
    axes = tuple(range(x.ndim, x.ndim + len(out)))
    total = window_view(widen(x), first, windows, out, 0).sum(axes)
    ones = np.ones(x.shape[first : first + len(out)], total.dtype)
    if a.count_include_pad:
        ones = np.pad(ones, list(zip(windows.before, windows.after, strict=True)), constant_values=1)
        windows = accepted(windows.kernel, a.strides, a.dilations, ())
    count = window_view(ones, 0, windows, out, 0).sum(tuple(range(len(out), 2 * len(out))))
    if a.channels_last:
        count = count[..., None]
    return (total / np.maximum(count, 1)).astype(x.dtype)


def _average_compute(a: AveragePoolAttrs, operands: Sequence[te.Tensor], result: TensorType) -> te.Tensor:
    (x,) = operands
    windows, first, wide = _windows(a), _first(a), widened(x.dtype)
    out = result.shape[first : first + windows.count]
    source = padded(x, first, windows, out, 0, ceil=a.ceil_mode)
    total = _reduced(a, source, result.shape, te.sum_over, "pool_sum")
    number = _number(a, x.shape[first : first + windows.count])

    def body(*i: Int) -> te.ScalarValue:
        count = te.const(1, number)
        for d, at in enumerate(i[first : first + windows.count]):
            count = count * _counted(a, windows, d, at, x.shape[first + d], number)
        return (total[i] / te.maximum(count, 1).cast(wide)).cast(x.dtype)

    return te.compute(result.shape, body, name="average_pool")


_MOST_PLACES = 1 << 30
"""Of an axis, and of a window, that are counted in 32 bits."""


def _number(a: Attrs, sizes: Sequence[Int]) -> DType:
    """Return what elements are counted in: I32, which vectors turn into floats, where it holds them."""
    known = [math.prod(a.kernel), *a.pads, *(_MOST_PLACES if n.value is None else n.value for n in sizes)]
    return I32 if max(known) < _MOST_PLACES else I64


def _counted(
    a: AveragePoolAttrs, w: Windows, d: int, window: Int, size: Int, number: DType
) -> te.ScalarValue:
    """Return how many elements of a window count along one axis."""
    low, high = lit(0), size
    if a.count_include_pad:
        low, high = lit(-w.before[d]), size + w.after[d]
    clipped_front = w.before[d] > 0 and not a.count_include_pad
    clipped_back = a.ceil_mode or (w.after[d] > 0 and not a.count_include_pad)
    start, step = window * w.strides[d] - w.before[d], lit(w.dilations[d])
    first, last = te.const(0, number), te.index(w.kernel[d] - 1, number)
    if clipped_front:
        first = te.maximum(te.index(ceildiv(low - start, step), number), 0)
    if clipped_back:
        last = te.minimum(te.index(floordiv(high - 1 - start, step), number), last)
    count = last - first + 1
    return te.maximum(count, 0) if clipped_back and clipped_front else count


# --------------------------------------------------------------------------- samples


_CASES: tuple[tuple[tuple[int, ...], MaxPoolAttrs], ...] = (
    ((1, 3, 8, 7), MaxPoolAttrs((2, 2), (2, 2))),
    ((2, 2, 8, 7), MaxPoolAttrs((3, 3), (2, 2), (1, 1, 1, 1))),
    ((1, 2, 9, 9), MaxPoolAttrs((3, 2), (1, 1), (1, 0, 0, 1))),
    ((1, 2, 7, 7), MaxPoolAttrs((3, 3), (2, 2), (0, 0, 0, 0), (), True)),
    ((1, 2, 8, 6), MaxPoolAttrs((3, 3), (3, 3), (1, 1, 1, 1), (), True)),
    ((1, 2, 9, 8), MaxPoolAttrs((2, 3), (1, 2), (1, 2, 0, 1), (2, 2))),
    ((1, 2, 9, 8), MaxPoolAttrs((2, 3), (2, 3), (1, 2, 0, 1), (2, 2), True)),
    ((2, 3, 11), MaxPoolAttrs((4,), (3,), (1, 2))),
    ((1, 2, 5, 4, 6), MaxPoolAttrs((2, 2, 3), (2, 1, 2), (0, 0, 1, 1, 0, 1))),
    ((0, 2, 8, 7), MaxPoolAttrs((2, 2), (2, 2))),
    ((1, 3, 30, 45), MaxPoolAttrs((3, 3), (2, 2), (1, 1, 1, 1))),
    ((1, 2, 11, 20), MaxPoolAttrs((5, 5), (), (2, 2, 2, 2))),
    ((1, 1, 130, 70), MaxPoolAttrs((3, 3), (1, 3), (1, 0, 1, 0), (2, 1))),
    ((1, 2, 50), MaxPoolAttrs((4,), (3,))),
)


def _names(a: Attrs) -> tuple[str, ...]:
    spatial = tuple(f"s{i}" for i in range(len(a.kernel)))
    return ("n", *spatial, "c") if a.channels_last else ("n", "c", *spatial)


def _max_samples() -> list[Sample]:
    made: list[Sample] = []
    for shape, a in _CASES:
        x = noise(shape, F32, seed="pool")
        last = MaxPoolAttrs(a.kernel, a.strides, a.pads, a.dilations, a.ceil_mode, True)
        moved = np.ascontiguousarray(np.moveaxis(x, 1, -1))
        made += [
            Sample(f"{shape} {a}", a, (x,), (_names(a),), exact=True),
            Sample(f"{shape} {a} last", last, (moved,), (_names(last),), exact=True),
        ]
    a = _CASES[1][1]
    made += [Sample(f"{d}", a, (noise((1, 2, 8, 7), d),), exact=True) for d in (F16, I8, U8)]
    hole = noise((1, 1, 6, 6), F32, seed="nan")
    hole[0, 0, 2, 2], hole[0, 0, 5, 5] = np.nan, -np.inf
    made.append(Sample("nan", a, (hole,), exact=True))
    return made


def _average_samples() -> list[Sample]:
    made: list[Sample] = []
    for shape, a in _CASES:
        for include in (False, True):
            for last in (False, True):
                attrs = AveragePoolAttrs(a.kernel, a.strides, a.pads, a.dilations, a.ceil_mode, last, include)
                x = noise(shape, F32, seed="pool")
                x = np.ascontiguousarray(np.moveaxis(x, 1, -1)) if last else x
                made.append(Sample(f"{shape} {attrs}", attrs, (x,), (_names(attrs),)))
    made.append(Sample("f16", AveragePoolAttrs((2, 2)), (noise((1, 2, 5, 5), F16),)))
    return made


DEFINITIONS: tuple[OpDef, ...] = (
    define(
        "max_pool",
        MaxPoolAttrs,
        _max_rule,
        1,
        FusionPattern.REDUCTION,
        "greatest of each window; NaN if any is",
        reference=_max_reference,
        compute=_max_compute,
        samples=_max_samples,
    ),
    define(
        "max_pool_index",
        MaxPoolAttrs,
        _index_rule,
        1,
        FusionPattern.REDUCTION,
        "index, in the flattened input, of the first greatest of each window",
        reference=_index_reference,
        compute=_index_compute,
        samples=_max_samples,
    ),
    define(
        "average_pool",
        AveragePoolAttrs,
        _average_rule,
        1,
        FusionPattern.REDUCTION,
        "mean of each window, over the elements inside the input",
        reference=_average_reference,
        compute=_average_compute,
        samples=_average_samples,
    ),
)
