"""The arithmetic of TFLite's integer operators: factors as multipliers, ends of activations, requantization.

Sources: TFLite's 8-bit quantization specification, and what its reference kernels prepare: factors are
computed in f64 from scales in f32, fractions are rounded to 31 bits.
"""

from __future__ import annotations

import numpy as np

from inlay.arith.dtype import I32, I64, DType
from inlay.importers.tflite.node import Node
from inlay.importers.tflite.schema import TensorRecord, damaged
from inlay.ir.expr import Expr
from inlay.ops.requantization import Rounding, quantized_multiplier

_LOWEST_SHIFT, _HIGHEST_SHIFT = -31, 30
NONE, RELU, RELU_N1_TO_1, RELU6 = range(4)
RELU_0_TO_1 = -1
"""An operator of its own, and no fused activation of the schema."""
_ENDS: dict[int, tuple[float | None, float | None]] = {
    NONE: (None, None),
    RELU: (0.0, None),
    RELU_N1_TO_1: (-1.0, 1.0),
    RELU6: (0.0, 6.0),
    RELU_0_TO_1: (0.0, 1.0),
}


def ends_of_reals(node: Node, activation: int) -> tuple[float | None, float | None]:
    """Return what a fused activation clamps floats to."""
    if activation not in _ENDS:
        raise node.unsupported(f"has the activation {activation}")
    return _ENDS[activation]


def ends_of_integers(node: Node, activation: int, t: TensorRecord) -> tuple[int, int]:
    """Return what a fused activation clamps the integers of a tensor to."""
    low, high = ends_of_reals(node, activation)
    if not t.dtype.is_integer:
        raise node.unsupported(f"gives {t.dtype} from integers")
    info = np.iinfo(t.dtype.numpy)
    scale, zero = node.scale(t), node.zero(t)

    def quantized(real: float) -> int:
        quotient = float(np.float32(real) / scale)
        return zero + int(np.floor(abs(quotient) + 0.5) * np.sign(quotient))

    least = int(info.min) if low is None else max(int(info.min), quantized(low))
    return least, int(info.max) if high is None else min(int(info.max), quantized(high))


def activated(node: Node, e: Expr, activation: int) -> Expr:
    """Clamp floats as a fused activation does."""
    return node.clamped(e, *ends_of_reals(node, activation))


def multipliers(factors: float | np.ndarray, bits: int = 31) -> tuple[np.ndarray, np.ndarray]:
    """Return multipliers and shifts of positive factors; 0 and the most for those beyond."""
    if not np.all(np.isfinite(factors)):
        raise damaged("the quotient of scales is no number")
    m, s = quantized_multiplier(factors, bits)
    gone, beyond = s < _LOWEST_SHIFT, s > _HIGHEST_SHIFT
    m = np.where(gone, 0, np.where(beyond, (1 << bits) - 1, m))
    return m.astype(np.int32), np.where(gone, 0, np.minimum(s, _HIGHEST_SHIFT)).astype(np.int32)


def multiplier_of(factor: float) -> tuple[int, int]:
    """Return the multiplier and the shift of a factor."""
    m, s = multipliers(factor)
    return int(m), int(s)


def requantize(
    node: Node, e: Expr, factors: float | np.ndarray, t: TensorRecord, activation: int, axis: int = -1
) -> Expr:
    """Return sums as the integers of a tensor: scaled, with its zero point, clamped by an activation."""
    return requantize_by(node, e, *multipliers(factors), t, activation, axis)


def requantize_by(
    node: Node,
    e: Expr,
    m: np.ndarray,
    s: np.ndarray,
    t: TensorRecord,
    activation: int,
    axis: int = -1,
    rounding: Rounding = Rounding.TFLITE,
) -> Expr:
    """Return sums as the integers of a tensor, by multipliers and shifts; see `requantize`."""
    low, high = ends_of_integers(node, activation, t)
    return requantize_as(node, e, m, s, t.dtype, node.zero(t), low, high, axis, rounding)


def requantize_as(
    node: Node,
    e: Expr,
    m: np.ndarray,
    s: np.ndarray,
    dtype: DType,
    zero: int = 0,
    low: int | None = None,
    high: int | None = None,
    axis: int = -1,
    rounding: Rounding = Rounding.TFLITE,
) -> Expr:
    """Return sums as integers of an element type, by multipliers and shifts.

    Sums of 64 bits are multiplied by 15 bits and rounded once.
    """
    is_wide = node.dtype(e) is I64
    if is_wide:
        m = np.where(m < 0x7FFF0000, (m.astype(np.int64) + (1 << 15)) >> 16, 0x7FFF).astype(np.int32)
    return node.op(
        "requantize",
        e,
        m,
        s,
        dtype=dtype,
        zero=zero,
        low=low,
        high=high,
        rounding=Rounding.HALF_UP if is_wide else rounding,
        axis=axis,
        bits=15 if is_wide else 31,
    )


def scaled(node: Node, e: Expr, factor: float) -> Expr:
    """Return i32 times a factor, in i32."""
    m, s = multipliers(factor)
    return node.op("requantize", e, m, s, dtype=I32, rounding=Rounding.TFLITE, axis=0)


def summed(node: Node, total: Expr, count: int) -> Expr:
    """Return sums of integers of the first input, less their zero points, as integers of the output.

    Sums have up to `count` terms. They are shifted before they are scaled, as far as 32 bits let them be:
    kernels shift by 19 bits, and overflow with more than 16 terms. They also begin with the negative of the
    zero point; sums here begin with 0.

    Raises:
        UnsupportedError: there may be so many terms that their sum alone leaves 32 bits.
    """
    most = max(count, 1) << (node.dtype(node.tensor(0)).bits)
    bits = min(20, 32 - most.bit_length())
    if bits < 1:
        raise node.unsupported(f"sums {count} integers")
    shifted = node.op("mul", total, np.asarray(1 << (bits - 1), np.int32))
    factor = 2 * float(node.scale(node.input(0))) / ((1 << bits) * float(node.scale(node.output())))
    return requantize(node, shifted, factor, node.output(), NONE)


def high_product(node: Node, a: Expr, b: Expr | np.ndarray) -> Expr:
    """Return the doubling high half of products of i32: `a * b / 2**31`, ties up."""
    wide_b = b.astype(np.int64) if isinstance(b, np.ndarray) else node.cast(b, I64)
    product = node.op("mul", node.cast(a, I64), wide_b)
    rounded = node.op("add", product, np.asarray(1 << 30, np.int64))
    return node.cast(node.op("shift_right", rounded, np.asarray(31, np.int64)), I32)
