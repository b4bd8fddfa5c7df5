"""Functions of one narrow integer, tabulated as the reference kernels compute them.

A table has the result for each integer of the element type, the least first: 256 for 8 bits, 65536 for 16.
Everything here is NumPy on integers of 64 bits, so nothing of it is left in the program.

Sources: TFLite's reference kernels of HARD_SWISH, LOGISTIC and TANH of 16 bits, ABS, RSQRT and DIV, and
its tables with 512 steps for 16-bit functions.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from inlay.arith.dtype import DType
from inlay.importers.tflite.integers import multipliers

Function = Callable[[np.ndarray], np.ndarray]


def all_of(dtype: DType) -> np.ndarray:
    """Return every integer of an element type, the least first."""
    info = np.iinfo(dtype.numpy)
    return np.arange(info.min, info.max + 1, dtype=np.int64)


def fitted(values: np.ndarray, dtype: DType) -> np.ndarray:
    """Return values clamped to an element type."""
    info = np.iinfo(dtype.numpy)
    return np.clip(values, info.min, info.max).astype(dtype.numpy)


def rounded(x: np.ndarray) -> np.ndarray:
    """Return reals rounded to integers, ties away from zero; they stay reals."""
    return np.trunc(x + np.copysign(np.asarray(0.5, x.dtype), x))


def divided(x: np.ndarray, exponent: np.ndarray | int) -> np.ndarray:
    """Return `x / 2**exponent` with ties away from zero."""
    half = (np.int64(1) << np.int64(exponent)) >> 1
    return np.sign(x) * ((np.abs(x) + half) >> np.int64(exponent))


def times(x: np.ndarray, multiplier: np.ndarray | int, shift: np.ndarray | int) -> np.ndarray:
    """Return integers times a multiplier of 31 bits and a power of two, rounded twice."""
    shift = np.asarray(shift, np.int64)
    left = np.clip(shift, 0, 31)
    wide = (x.astype(np.int64) << left).astype(np.int32).astype(np.int64)
    once = (wide * np.asarray(multiplier, np.int64) + (1 << 30)) >> 31
    return divided(once, np.clip(-shift, 0, 31))


def _high16(a: np.ndarray, b: int) -> np.ndarray:
    return np.minimum((a * b + (1 << 14)) >> 15, 32767)


def _narrow16(factor: float) -> tuple[int, int]:
    """Return a factor as a multiplier of 15 bits and a shift."""
    m, s = multipliers(factor)
    return (32767 if int(m) >= (1 << 31) - 1 - (1 << 15) else (int(m) + (1 << 15)) >> 16), int(s)


def hard_swish(x: np.ndarray, scale: np.float32, out_scale: np.float32) -> np.ndarray:
    """Return `x * clamp(x + 3, 0, 6) / 6` of integers less their zero point, without that of the output."""
    fine = np.float32(1 / 128) * scale
    m, s = _narrow16(float(fine / out_scale))
    gate_m, gate_s = _narrow16(float(fine / np.float32(3 / 32768)))
    x = x << 7
    scaled = _high16(x, m)
    gate = x
    if gate_s > 0:
        gate = np.clip(gate << (gate_s - 1), -32768, 32767)
    gate = _high16(gate, gate_m)
    if gate_s > 0:
        gate = np.clip(gate << 1, -32768, 32767)
    gate = (divided(gate, max(-gate_s, 0)) + (1 << 15)) >> 1
    product = gate * scaled
    high = np.where((gate == -32768) & (scaled == -32768), 32767, np.trunc(product / 32768).astype(np.int64))
    return divided(high, max(-s, 0))


_STEPS_ABOVE: list[int] = [
    *(4, 8, 12, 14, 15, 16, 17, 19, 20, 21, 22, 25, 27, 28, 29, 30, 31, 33, 34, 35, 37, 39, 40, 41, 43, 44),
    *(45, 46, 49, 50, 54, 62, 63, 64, 66, 82, 86, 93, 100, 103, 112, 116, 135, 255),
]
"""Steps of the table of the kernels that are one more than the rounded value: chosen for interpolation."""


def _sigmoid_steps() -> np.ndarray:
    """Return the sigmoid in steps of 1/24, as 16 bits without a sign."""
    steps = np.array([math.floor(65536 / (1 + math.exp(-i / 24)) + 0.5) for i in range(256)], np.int64)
    steps[_STEPS_ABOVE] += 1
    return steps


def scale_of_16_bits(scale: float) -> tuple[int, int]:
    """Return the multiplier and the shift by which LOGISTIC and TANH read integers of 16 bits."""
    log = math.log2(scale)
    whole = round(log)
    left = 12 + whole
    if abs(log - whole) < 1e-3 and left in (0, 1):
        return 0, left
    multiplier, shift = float(np.float32(scale)) * 4096 * 3, 0
    while multiplier <= 32767 / 2 and shift <= 30:
        shift, multiplier = shift + 1, multiplier * 2
    return int(multiplier), shift


def sigmoid_of_16_bits(x: np.ndarray, multiplier: int, shift: int) -> np.ndarray:
    """Return the logistic function in units of `2**-15`, interpolated between steps."""
    x, size = _read(x, multiplier, shift)
    steps, at = _sigmoid_steps(), np.minimum(size >> 9, 254)
    found = (steps[at] << 9) + (size & 0x1FF) * (steps[at + 1] - steps[at])
    found = np.where(size >> 9 >= 255, 0x7FFF << 10, found)
    return np.where(x >= 0, found + (1 << 9), (1 << 25) - found + (1 << 9) - 1) >> 10


def tanh_of_16_bits(x: np.ndarray, multiplier: int, shift: int) -> np.ndarray:
    """Return tanh in units of `2**-15`: `2 * logistic(2 * x) - 1`."""
    x, size = _read(x, multiplier, shift)
    steps, at = _sigmoid_steps(), np.minimum(size >> 8, 254)
    found = (steps[at] << 8) + (size & 0xFF) * (steps[at + 1] - steps[at])
    found = np.where(size >> 8 >= 255, 0xFFFF << 8, found)
    above = found - (1 << 23) + (1 << 7)
    return np.where(x >= 0, above, -found + (1 << 23) + (1 << 7) - 1) >> 8


def _read(x: np.ndarray, multiplier: int, shift: int) -> tuple[np.ndarray, np.ndarray]:
    """Return integers of 16 bits in steps of `1 / (24 << 9)`, and their sizes."""
    if multiplier == 0:
        multiplier, shift = 3 << shift, 0
    x = (x * multiplier + ((1 << shift) >> 1)) >> shift
    return x, np.abs(x)


def inverse_root(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return multipliers and shifts of `1 / sqrt(x)` of positive integers, by Newton's steps."""
    x = x.astype(np.int64)
    is_one = x <= 1
    x = np.maximum(x, 2)
    shift = np.full(x.shape, 11, np.int64)
    while np.any(large := x >= 1 << 29):
        x, shift = np.where(large, x >> 2, x), shift + large
    bits = np.floor(np.log2(x.astype(np.float64))).astype(np.int64)
    pairs = np.maximum((30 - bits) // 2 - 1, 0)  # pairs of zeros in front of the number, less one
    shift, x = shift - pairs, x << (2 * pairs)
    half = divided(x >> 1, 1)  # three integer bits
    root = np.full(x.shape, 1 << 28, np.int64)
    for _ in range(5):
        cube = _shifted_left(_high(_high(root, root), root), 6)
        root = _shifted_left(_high(root, (1 << 28) + (1 << 27)) - _high(half, cube), 3)
    root = _high(root, 1518500250)
    negative = shift < 0
    root, shift = np.where(negative, root << np.where(negative, -shift, 0), root), np.maximum(shift, 0)
    return np.where(is_one, (1 << 31) - 1, root), np.where(is_one, 0, -shift)


def _high(a: np.ndarray, b: np.ndarray | int) -> np.ndarray:
    return np.minimum((a * b + (1 << 30)) >> 31, (1 << 31) - 1)


def _shifted_left(x: np.ndarray, bits: int) -> np.ndarray:
    return np.clip(x << bits, -(1 << 31), (1 << 31) - 1)


def of_reals(
    function: Function, x: np.ndarray, pair: tuple[np.float32, int], out: tuple[np.float32, int], dtype: DType
) -> np.ndarray:
    """Return a function of 8-bit integers by way of what they stand for.

    Args:
        function: of reals.
        x: the integers.
        pair: scale and zero point of the integers.
        out: those of the results.
        dtype: of the results.
    """
    scale, zero = pair
    with np.errstate(all="ignore"):
        real = function((scale * (x - zero).astype(np.float32)).astype(np.float64)).astype(np.float32)
        steps = rounded(real * (np.float32(1) / out[0])) + np.float32(out[1])
    return fitted(np.nan_to_num(np.clip(steps, -(2.0**31), 2.0**31)).astype(np.int64), dtype)


def in_512_steps(
    function: Function, pair: tuple[float, int], out: tuple[float, int], dtype: DType
) -> np.ndarray:
    """Return the 513 values between which functions of 16-bit integers are interpolated, computed in f32.

    Args:
        function: of reals.
        pair: scale and zero point of the integers.
        out: those of the results.
        dtype: of the integers.
    """
    info, real = np.iinfo(dtype.numpy), np.float32
    (scale, zero), (out_scale, out_zero) = pair, out
    low, high = real(scale) * real(info.min - zero), real(scale) * real(info.max - zero)
    out_low, out_high = (
        real(out_scale) * real(info.min - out_zero),
        real(out_scale) * real(info.max - out_zero),
    )
    step = (high - low) / real(512)
    factor = real(info.max - info.min + 1) / (out_high - out_low)
    at = np.arange(512).astype(real)

    def computed(x: np.ndarray) -> np.ndarray:
        return function(x.astype(np.float64)).astype(real)

    with np.errstate(all="ignore"):
        value = computed(low + at * step)
        middle = computed(low + at * step + step / real(2))
        following = computed(low + (at + real(1)) * step)
        sample = rounded(value * factor)
        between = rounded((following * factor + sample) / real(2))
        bias = rounded((between - rounded(middle * factor)) / real(2))
        last = rounded(computed(np.asarray([high])) * factor)
        steps = np.clip(np.concatenate([sample - bias, last]), info.min, info.max)
    return np.nan_to_num(steps).astype(np.int64)


def interpolated(steps: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Return what a table of 513 values says of 16-bit integers."""
    at = 256 + (x >> 7)
    return steps[at] + (((steps[at + 1] - steps[at]) * (x & 0x7F) + 64) >> 7)


def quotient(a: np.ndarray, b: np.ndarray, factor: float) -> np.ndarray:
    """Return `a / b * factor` of integers less their zero points; 0 where `b` is 0.

    The reciprocal is that of a sum with 31 integer bits, by Newton's steps.
    """
    sign, is_zero = np.where(b < 0, -1, 1), b == 0
    a, b = a * sign, np.maximum(b * sign, 1)
    ahead = 31 - np.floor(np.log2(b)).astype(np.int64)
    half = (((b << ahead) - (1 << 31)) + (1 << 31)) >> 1
    x = 1515870810 + _high(half, -1010580540)
    for _ in range(3):
        x = x + _shifted_left(_high(x, (1 << 29) - _high(half, x)), 2)
    inverse = np.minimum(x << 1, (1 << 31) - 1)
    recip_shift = 31 - ahead
    size = np.where(a < 0, ~a, a)
    headroom = 30 - np.floor(np.log2(np.maximum(size, 1))).astype(np.int64)
    headroom = np.where(size == 0, 31, headroom)
    unscaled = times(a, inverse, headroom)
    m, s = multipliers(factor)
    once = (unscaled * int(m) + (1 << 30)) >> 31
    found = divided(once, np.clip(-(int(s) - recip_shift - headroom), 0, 62))
    return np.where(is_zero, 0, found)
