"""Multipliers of a device for a requantize of a program, with the proof that both round alike.

A program has a float scale, or a multiplier and a shift, and a rounding; a device has multipliers of 31 bits,
shifts, and roundings of its own. Where both are the same form, nothing is to be shown. Else the nearest
multiplier is taken, and `equal_rounding` decides on all sums that can occur. Multipliers beside the nearest
one do not help: a float product that is a tie by rounding has odd divisors that are ties as well, and go
the other way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from inlay.accel.stages import FLOAT, Factor, Stages, Untiled, Value
from inlay.analysis.roundings import Disagreement, Requantization, equal_rounding
from inlay.ops.requantization import Rounding, quantized_multiplier

_BITS = 31


def is_same_form(factor: Factor) -> bool:
    """Whether a program's multiplier and shift are the device's, so that all sums round alike."""
    a = factor.attrs
    return len(factor.operands) == 2 and a.bits == _BITS and str(a.rounding) == factor.form


def terms(
    factor: Factor, operands: list[np.ndarray], low: np.ndarray, high: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return multipliers (i32) and shifts (i8) of a device, or scales where it has floats.

    Args:
        factor: of the program.
        operands: its arrays.
        low, high: the least and the greatest sum of each channel.

    Raises:
        Untiled: no multiplier rounds as the program does; with the channel and the sum.
    """
    flat = [x.ravel() for x in operands]
    if factor.form == FLOAT:
        if not np.all(np.isfinite(flat[0])):
            raise Untiled("a scale is no number")
        return flat[0].astype(np.float32), flat[0]
    if is_same_form(factor):
        return flat[0].astype(np.int32), _shifts(flat[1])
    if len(flat) == 2:
        scale = flat[0].astype(np.float64) * 2.0 ** (flat[1].astype(np.float64) - factor.attrs.bits)
    else:
        scale = flat[0].astype(np.float64)
    if not np.all(np.isfinite(scale)) or np.any(scale < 0):
        raise Untiled("a factor is negative, or no number")
    mul, shift = quantized_multiplier(np.where(scale > 0, scale, 1.0))
    mul = np.where(scale > 0, mul, 0)
    attrs = replace(factor.attrs, axis=0, least=0, near=False)
    program = Requantization(attrs, *flat)
    ours = replace(attrs, rounding=Rounding(factor.form), bits=_BITS)
    reach = int(low.min()), int(high.max())
    wrong = equal_rounding(program, Requantization(ours, mul, shift), *reach)
    if wrong is not None and not wrong.reason and low.size == mul.size:
        wrong = _of_channels(program, Requantization(ours, mul, shift), low, high)
    if wrong is not None:
        what = wrong.reason or (
            f"of the sum {wrong.accumulator} in channel {wrong.channel} it makes {wrong.results[1]}, "
            f"and the program {wrong.results[0]}"
        )
        raise Untiled(f"{factor.form} differs from {attrs.rounding} with its scale: {what}")
    return mul, _shifts(shift)


def _of_channels(
    program: Requantization, device: Requantization, low: np.ndarray, high: np.ndarray
) -> Disagreement | None:
    """Return where both differ first, each channel on its own sums."""
    for c in range(low.size):
        one, other = (
            Requantization(x.attrs, x.factor[c : c + 1], None if x.shift is None else x.shift[c : c + 1])
            for x in (program, device)
        )
        if (wrong := equal_rounding(one, other, int(low[c]), int(high[c]))) is not None:
            return replace(wrong, channel=c)
    return None


def _shifts(shift: np.ndarray) -> np.ndarray:
    if np.any(np.abs(shift) > _BITS):
        raise Untiled(f"a shift of more than {_BITS} bits")
    return shift.astype(np.int8)


def reach(found: Stages, factor: Factor, arrays: Mapping[Value, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return the least and the greatest sum of each channel, from the actual weights, with what is added.

    Where what is requantized is no such sum, it is any.
    """
    product, bias = found.product, found.bias
    if product is None or not factor.of_product:
        return np.array([-(1 << 31)]), np.array([(1 << 31) - 1])
    w = np.moveaxis(arrays[product.weights].astype(np.int64), product.channel, 0)
    w = w.reshape(w.shape[0], -1)
    ends = np.iinfo(product.pixels.buffer.dtype.numpy)
    first, second = w * int(ends.min), w * int(ends.max)
    added = np.int64(0) if bias is None else arrays[bias].astype(np.int64).ravel()
    return np.minimum(first, second).sum(axis=1) + added, np.maximum(first, second).sum(axis=1) + added
