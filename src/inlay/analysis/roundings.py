"""Whether two requantizations give the same results on every accumulator that can occur.

Both are steps from integers to integers that never fall, if their factors are not negative. Let the first
change its result at `t1 < t2 < ...`. Between two of these it is constant, and the other lies between its
values at the ends. So they agree on a range exactly if they agree at its ends and on both sides of each `ti`:
for results of 8 bits at most 512 accumulators of a channel, found by bisection, all at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from inlay.ops.requantization import RequantizeAttrs, Rounding, requantized

_WIDEST_RESULT = 16


@dataclass(frozen=True, slots=True)
class Requantization:
    """What is done to accumulators: attributes and operands of `requantize`.

    Attributes:
        attrs: with `axis` 0: accumulators are `[channel, any]` here.
        factor: a scale of f32 or a multiplier of i32, one or one for each channel.
        shift: of a multiplier.
    """

    attrs: RequantizeAttrs
    factor: np.ndarray
    shift: np.ndarray | None = None

    def __call__(self, accumulators: np.ndarray) -> np.ndarray:
        """Return the results for accumulators `[channel, any]`."""
        shifts = () if self.shift is None else (self.shift,)
        return requantized(self.attrs, accumulators, self.factor, *shifts)

    def is_monotone(self, low: int, high: int) -> bool:
        """Whether results do not fall from one accumulator of a range to the next."""
        if np.any(self.factor < 0) or not np.all(np.isfinite(self.factor)):
            return False
        if self.attrs.rounding is not Rounding.TFLITE or self.shift is None:
            return True
        left = int(np.clip(self.shift, 0, 31).max(initial=0))
        return low << left >= -(1 << 31) and high << left < 1 << 31


@dataclass(frozen=True, slots=True)
class Disagreement:
    """Where two requantizations differ first, or why that was not decided.

    Attributes:
        channel, accumulator: the first one that differs; -1 and 0 where none was looked for.
        results: of both.
        reason: why it was not decided.
    """

    channel: int
    accumulator: int
    results: tuple[int, int]
    reason: str = ""


def equal_rounding(a: Requantization, b: Requantization, low: int, high: int) -> Disagreement | None:
    """Return where two requantizations differ on the accumulators from `low` to `high`, ends included.

    None is a proof that they are equal there. Cost: O(channels * results * log(high - low)).
    """
    if low > high:
        return None
    info = np.iinfo(a.attrs.dtype.numpy)
    if info.bits > _WIDEST_RESULT:
        return Disagreement(-1, 0, (0, 0), f"results of {info.bits} bits have too many steps to look at")
    if not a.is_monotone(low, high) or not b.is_monotone(low, high):
        return Disagreement(-1, 0, (0, 0), "results can fall where accumulators rise")
    operands = [x for r in (a, b) for x in (r.factor, r.shift) if x is not None]
    channels = max(x.size for x in operands)
    steps = _steps(a, channels, low, high)
    points = np.concatenate([np.full((channels, 1), low), steps - 1, steps, np.full((channels, 1), high)], 1)
    points = np.sort(np.clip(points, low, high), axis=1)
    of_a, of_b = a(points).astype(np.int64), b(points).astype(np.int64)
    channel, at = np.unravel_index(np.argmax(of_a != of_b), of_a.shape)
    found = int(of_a[channel, at]), int(of_b[channel, at])
    if found[0] == found[1]:
        return None
    return Disagreement(int(channel), int(points[channel, at]), found)


def _steps(a: Requantization, channels: int, low: int, high: int) -> np.ndarray:
    """Return `[channel, result]`: the least accumulator with at least that result; `high + 1` for none."""
    first, last = a.attrs.ends()
    results = np.arange(first + 1, last + 1, dtype=np.int64)
    below = np.full((channels, results.size), low - 1, np.int64)  # the result is less, or before the range
    above = np.full((channels, results.size), high + 1, np.int64)
    while np.any(above - below > 1):
        middle = (below + above) >> 1
        reached = a(np.clip(middle, low, high)).astype(np.int64) >= results
        is_open = above - below > 1
        above = np.where(is_open & reached, middle, above)
        below = np.where(is_open & ~reached, middle, below)
    return above
