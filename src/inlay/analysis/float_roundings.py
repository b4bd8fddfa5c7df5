"""Floats that requantize as a multiplier and a shift do, or another scale: found and proved.

    v(x) = f32(f32(x - shift) * scale + offset)           rounded once; then to an integer, ties to even

Let a requantization reach its result `k` first at the accumulator `t`. Both are steps that never fall, so
they are the same from `low` to `high` exactly if they are there, at both ends, and at `t` and `t - 1` of
each `k` that has its `t` between the ends. With a scale, each `t` bounds the offset from below and each
`t - 1` from above. The middle of what is left is tried, for a few scales next to the exact one, and what is
found is looked at in floats: that is the proof. Results of neighbors differ by a factor, say 1/500, and
floats of this size by 2^-17 or less, so most channels need one try.

* Roundings in two steps move `t` by up to half the distance to its neighbor, away from zero. Then
  accumulators below a `pivot`, which is zero, have another offset, a `step` away.
* A scale of 24 bits may be too far from the exact one for the first and the last step. A `shift` that makes
  an accumulator in the middle 0 halves what it is off by, and so does a pivot there. No shift may wrap.
* A channel with one result has the scale 0.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from inlay.analysis.roundings import Requantization
from inlay.ops._build import Array
from inlay.ops.float_rounding import MOST_OFFSET, MOST_SCALE, OFFSET_STEP, SCALE_STEP
from inlay.ops.requantization import Rounding

_MOST_BITS = 8
"""Of results: wider ones have more steps than floats tell apart."""
_NEIGHBORS = (0, 1, -1)
"""Scales that are tried: how many floats they are from the nearest one."""
_PARTS = (0.5, 0.3, 0.7, 0.4, 0.6)
"""Offsets that are tried: where they are between what bounds them."""
_MIDDLES = (0.5, 0.484, 0.516, 0.469, 0.531, 0.453, 0.547, 0.438, 0.562)
"""Shifts that are tried: where they are between the first accumulator that matters and the last."""
_FEW, _ALONE = 16, 4
"""Shifts, which help single channels, are tried where at most one in so many is left, or so many."""
_FAR = 1e9
"""Beyond all offsets."""


@dataclass(frozen=True, slots=True)
class FloatRounding:
    """What requantizes by floats, for each channel.

    Attributes:
        scale, offset: of f32.
        step: added to offsets of accumulators below the pivot; a sum of f32.
        pivot: an accumulator, of i32, as it is behind the shift.
        shift: what is taken off accumulators first, of i32.
    """

    scale: Array
    offset: Array
    step: Array
    pivot: Array
    shift: Array


def float_rounding(r: Requantization, low: Array, high: Array) -> FloatRounding | None:
    """Return floats that give the same results as a requantization; None where none were found.

    Args:
        r: with attributes of axis 0, and as many factors as there are channels.
        low, high: ends of the accumulators of each channel, of i64.

    Cost: O(channels * results) for each try; most channels need one.
    """
    if np.iinfo(r.attrs.dtype.numpy).bits > _MOST_BITS or np.any(low > high):
        return None
    if not r.is_monotone(int(low.min()), int(high.max())):
        return None
    limits = _limits(r, low, high)
    if limits is None:
        return None
    search = _Search(_exact(r), limits, is_split=_is_split(r))
    with np.errstate(all="ignore"):
        return search.run()


def _exact(r: Requantization) -> Array:
    """Return the real factor of each channel."""
    if r.shift is None:
        return r.factor.astype(np.float64)
    return r.factor * 2.0 ** (r.shift.astype(np.float64) - r.attrs.bits)


def _is_split(r: Requantization) -> bool:
    """Whether accumulators below zero are rounded otherwise and do not all give the least result."""
    a = r.attrs
    two_sided = a.rounding is Rounding.TFLITE or a.rounding is Rounding.HALF_AWAY
    return two_sided and r.shift is not None and a.ends()[0] < a.zero


# --------------------------------------------------------------------------- what has to hold


@dataclass(frozen=True, slots=True)
class _Limits:
    """What values have to be: `[channel, any]` each.

    Attributes:
        low, high: ends of accumulators.
        x: accumulators.
        result: what they give. The least and the greatest may be passed.
        first, last: the ends of results.
        is_up: whether the value has to be at least half a step below the result; else, at most above.
        counts: whether there is such a limit.
    """

    low: Array
    high: Array
    x: Array
    result: Array
    first: int
    last: int
    is_up: Array
    counts: Array

    def between(self, part: float) -> Array:
        """Return accumulators between the first one that matters and the last."""
        first = np.where(self.counts, self.x, self.high[:, None]).min(1)
        last = np.where(self.counts, self.x, self.low[:, None]).max(1)
        return np.rint(first + part * (last - first)).astype(np.int64)

    def of(self, channels: Array) -> _Limits:
        """Return those of some channels."""
        names = ("low", "high", "x", "result", "is_up", "counts")
        return replace(self, **{n: getattr(self, n)[channels] for n in names})


def _limits(r: Requantization, low: Array, high: Array) -> _Limits | None:
    """Return what has to hold; None where the steps were not found."""
    first, last = r.attrs.ends()
    results = np.arange(first + 1, last + 1, dtype=np.int64)[None]
    low, high = low[:, None], high[:, None]
    at_low, at_high = (r(e).astype(np.int64) for e in (low, high))
    inside = (at_low < results) & (results <= at_high)
    steps = np.where(inside, np.clip(_steps(r, results), low + 1, high), low + 1)
    for _ in range(4):
        reached, before = r(steps).astype(np.int64) >= results, r(steps - 1).astype(np.int64) < results
        if np.all((reached & before) | ~inside):
            break
        steps = np.where(inside, np.clip(steps + ~reached - ~before, low + 1, high), low + 1)
    else:
        return None
    wide = np.broadcast_to(results, steps.shape)
    up = np.ones(steps.shape, bool)
    return _Limits(
        low[:, 0],
        high[:, 0],
        np.concatenate([steps, steps - 1, low, high], 1),
        np.concatenate([wide, wide - 1, at_low, at_high], 1),
        first,
        last,
        np.concatenate([up, ~up, up[:, :1], ~up[:, :1]], 1),
        np.concatenate([inside, inside, at_low > first, at_high < last], 1),
    )


def _steps(r: Requantization, results: Array) -> Array:
    """Return about the first accumulator of each result; exactly for the pair of roundings."""
    a = r.attrs
    wanted = results - a.zero
    if a.rounding is Rounding.TFLITE and r.shift is not None and a.bits == 31:
        right = np.clip(-r.shift.astype(np.int64), 1, 31)[:, None]
        once = ((2 * wanted - 1) << (right - 1)) + (wanted <= 0)
        numerator = (np.clip(once, -(1 << 31), 1 << 31) << 31) - (1 << 30)
        return -(-numerator // np.maximum(r.factor.astype(np.int64), 1)[:, None])
    factors = np.maximum(_exact(r), 2.0**-40)[:, None]
    return np.ceil((wanted - 0.5) / factors).astype(np.int64)


# --------------------------------------------------------------------------- the search


class _Search:
    """Finds floats channel by channel, all at once."""

    def __init__(self, exact: Array, limits: _Limits, *, is_split: bool) -> None:
        n = limits.x.shape[0]
        self._exact, self._limits, self._is_split = exact, limits, is_split
        self._scale, self._offset, self._step = (np.zeros(n, np.float32) for _ in range(3))
        self._pivot, self._shift = (np.zeros(n, np.int64) for _ in range(2))
        self._constant()

    def run(self) -> FloatRounding | None:
        """Return what was found for all channels, or None."""
        channels = self._left.size
        pivots = ("zero", "tightest") if self._is_split else ("none", "tightest", "middle")
        for shift in (None, *_MIDDLES):
            for pivot in pivots:
                for step in _NEIGHBORS:
                    for part in _PARTS:
                        if self._left.size:
                            self._try(shift, pivot, step, part)
            if self._left.size > max(channels // _FEW, _ALONE):
                break
        if self._left.size:
            return None
        whole = (self._pivot.astype(np.int32), self._shift.astype(np.int32))
        return FloatRounding(self._scale, self._offset, self._step, *whole)

    def _constant(self) -> None:
        """Find the channels that have one result."""
        ends = self._limits.result[:, -2:]
        is_one = ends[:, 0] == ends[:, 1]
        self._offset[is_one] = ends[is_one, 0]
        self._left = np.flatnonzero(~is_one)

    def _try(self, shift: float | None, pivot: str, step: int, part: float) -> None:
        """Try a scale and offsets for all channels that are left.

        Args:
            shift: where it is between the first accumulator that matters and the last; None for none.
            pivot: where it is: at accumulator zero, in the middle, or where limits are tightest.
            step, part: which scale and which offset.
        """
        t, left = self._limits.of(self._left), self._left
        scale = _next(self._exact[left], step)
        by = np.zeros_like(left) if shift is None else t.between(shift)
        x = t.x - by[:, None]
        limit = t.result + np.where(t.is_up, -0.5, 0.5) - scale.astype(np.float64)[:, None] * x
        match pivot:
            case "none":
                at = t.low
            case "zero":
                at = np.zeros_like(left)
            case "middle":
                at = t.between(0.5)
            case _:
                at = _tightest(t, limit)
        is_below = t.x < at[:, None]
        offset, has_upper = _between(limit, t.counts & ~is_below, t.is_up, part)
        below, has_lower = _between(limit, t.counts & is_below, t.is_up, part)
        offset, below = np.where(has_upper, offset, below), np.where(has_lower, below, offset)
        jump = (below.astype(np.float64) - offset).astype(np.float32)
        below = offset + jump
        value = _value(x, scale, np.where(is_below, below[:, None], offset[:, None]))
        found = np.clip(np.rint(value), t.first, t.last)
        is_right = np.all((found == t.result) | ~t.counts, axis=1) & _rises(scale, offset, below)
        is_right &= (scale > 0) & (scale <= MOST_SCALE)
        is_right &= np.maximum(abs(offset), abs(below)) < MOST_OFFSET
        is_right &= (t.low - by >= -(1 << 31)) & (t.high - by < 1 << 31)
        done = left[is_right]
        self._scale[done], self._shift[done] = scale[is_right], by[is_right]
        self._pivot[done] = 0 if pivot == "none" else (at - by)[is_right]
        self._offset[done], self._step[done] = offset[is_right], jump[is_right]
        self._left = left[~is_right]


def _tightest(t: _Limits, limit: Array) -> Array:
    """Return the pivots between the accumulators whose limits of one offset are nearest to each other."""
    up = np.where(t.counts & t.is_up, limit, -_FAR).argmax(1)[:, None]
    down = np.where(t.counts & ~t.is_up, limit, _FAR).argmin(1)[:, None]
    return np.maximum(np.take_along_axis(t.x, up, 1), np.take_along_axis(t.x, down, 1))[:, 0]


def _value(x: Array, scale: Array, offset: Array) -> Array:
    """Return what a fused multiplication and addition gives for accumulators."""
    product = x.astype(np.float32).astype(np.float64) * scale.astype(np.float64)[:, None]
    return (product + offset.astype(np.float64)).astype(np.float32)


def _rises(scale: Array, offset: Array, below: Array) -> Array:
    """Whether values do not fall at the pivot."""
    return below.astype(np.float64) <= offset.astype(np.float64) + scale


def _next(x: Array, step: int) -> Array:
    """Return floats near numbers, or so many floats above them."""
    near = (x.astype(np.float32).view(np.int32) + np.int32(step)).view(np.float32)
    return (np.rint(near.astype(np.float64) / SCALE_STEP) * SCALE_STEP).astype(np.float32)


def _between(limit: Array, counts: Array, is_up: Array, part: float) -> tuple[Array, Array]:
    """Return offsets between the greatest least ones and the least greatest ones; and where limits are."""
    low = np.where(counts & is_up, limit, -_FAR).max(1)
    high = np.where(counts & ~is_up, limit, _FAR).min(1)
    middle = low + (high - low) * part
    alone = np.where(high < _FAR, high - 2.0**-8, np.where(low > -_FAR, low + 2.0**-8, 0.0))
    near = np.where((low > -_FAR) & (high < _FAR), middle, alone)
    return (np.rint(near / OFFSET_STEP) * OFFSET_STEP).astype(np.float32), np.any(counts, axis=1)
