"""How the constants of requantizations are prepared for kernels."""

from __future__ import annotations

import numpy as np

from inlay.arith.dtype import I32
from inlay.ir import make
from inlay.ir.expr import Call, Const, OpRef
from inlay.ir.types import TensorType
from inlay.ops._build import Array
from inlay.ops.prepared_rounding import MOST_DISTANCE, MOST_OFFSET, Nudge, PreparedAttrs
from inlay.ops.requantization import FARTHEST, RequantizeAttrs, Rounding
from inlay.transforms._constants import array_of

_MOST_ZERO = 1 << 15
_ANY_SHIFT = -8
"""Of a multiplier that is 0, as channels have whose weights are: its product is 0 before and behind."""


def prepared_rounding(call: Call) -> tuple[list[Const], PreparedAttrs] | None:
    """Return the constants of a prepared requantization and its attributes, None where there is none.

    Args:
        call: a `requantize`.
    """
    assert isinstance(call.callee, OpRef), "a requantization is a call of its operator"
    attrs = call.callee.attrs
    assert isinstance(attrs, RequantizeAttrs), "requantizations have their attributes"
    x, arrays = call.args[0].type, [array_of(a) for a in call.args[1:]]
    if not isinstance(x, TensorType) or x.dtype is not I32 or len(arrays) < 2:
        return None
    multiplier, shift = arrays
    if multiplier is None or shift is None or not multiplier.size or np.any(multiplier < 0):
        return None
    distance = _distance(attrs, np.where(multiplier == 0, _ANY_SHIFT, shift))
    if distance is None or abs(attrs.zero) >= _MOST_ZERO:
        return None
    low, high = attrs.ends()
    half = np.int64(1) << (distance - 1)
    offset = half + (attrs.zero << distance)
    has_room = bool(np.all(abs(offset) < MOST_OFFSET))
    made = [
        make.const(np.asarray(a, np.int32), span=call.span)
        for a in (multiplier, offset if has_room else half, distance)
    ]
    zero = 0 if has_room else attrs.zero
    return made, PreparedAttrs(attrs.dtype, zero, low, high, _nudge(attrs, low), attrs.axis)


def _distance(attrs: RequantizeAttrs, shift: Array) -> Array | None:
    """Return how far the upper half is shifted, None where less than it is shifted out or the pair of
    roundings is another one.
    """
    shift = shift.astype(np.int64)
    match attrs.rounding:
        case Rounding.TFLITE if attrs.bits == 31:
            found = np.minimum(-shift, 31) - 1
        case Rounding.HALF_UP:
            found = np.minimum(attrs.bits - shift, FARTHEST) - 32
        case _:
            return None
    return found if np.all((found >= 1) & (found <= MOST_DISTANCE)) else None


def _nudge(attrs: RequantizeAttrs, low: int) -> Nudge:
    if attrs.rounding is not Rounding.TFLITE:
        return Nudge.DOWN
    return Nudge.UP if low >= attrs.zero else Nudge.AWAY
