"""Functions of fixed-point numbers as the reference kernels compute them: exponentials, reciprocals.

A number with `n` integer bits is an i32 in units of `2**(n - 31)`. Products are doubling high halves with
ties rounded up; sums wrap. What depends on 8-bit inputs alone is tabulated here in Python's integers; what
depends on sums is emitted as operations (`emitted_reciprocal`).

Source: gemmlowp, fixedpoint.h: exp by Taylor's series and a product of powers, 1/(1+x) by Newton's steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from inlay.arith.dtype import I64
from inlay.importers.tflite.integers import high_product, multipliers
from inlay.importers.tflite.node import Node
from inlay.ir.expr import Expr

_MAX, _MIN = 2**31 - 1, -(2**31)
_EXP_EIGHTH, _THIRD = 1895147668, 715827883
_EXP_POWERS = (
    (-2, 1672461947),
    (-1, 1302514674),
    (0, 790015084),
    (1, 290630308),
    (2, 39332535),
    (3, 720401),
    (4, 242),
)  # exp(-2**k)
_48_OVER_17, _NEG_32_OVER_17 = 1515870810, -1010580540


def _clamped(x: int) -> int:
    return min(max(x, _MIN), _MAX)


def high_half(a: int, b: int) -> int:
    """Return `a * b / 2**31` with ties up, saturated."""
    return _clamped((a * b + (1 << 30)) >> 31)


def divided_by_power(x: int, exponent: int) -> int:
    """Return `x / 2**exponent` with ties away from zero."""
    half = (1 << exponent) >> 1
    return (x + half) >> exponent if x >= 0 else -((-x + half) >> exponent)


def _exp_of_quarter(a: int) -> int:
    """Return exp of a number without integer bits from -1/4 up to 0."""
    x = a + (1 << 28)
    x2 = high_half(x, x)
    x3, x4 = high_half(x2, x), high_half(x2, x2)
    tail = divided_by_power(high_half(divided_by_power(x4, 2) + x3, _THIRD) + x2, 1)
    return _clamped(_EXP_EIGHTH + high_half(_EXP_EIGHTH, x + tail))


def exp_of_negative(a: int, integer_bits: int) -> int:
    """Return exp of a number that is not positive, without integer bits. Requires at most 5 integer bits."""
    if a == 0:
        return _MAX
    fraction = 31 - integer_bits
    quarter = 1 << (fraction - 2)
    rest = (a & (quarter - 1)) - quarter
    result = _exp_of_quarter(_clamped(rest << integer_bits))
    for power, factor in _EXP_POWERS:
        if power < integer_bits and (rest - a) & (1 << (fraction + power)):
            result = high_half(result, factor)
    return result


def _newton(a: int) -> int:
    """Return 2 / (1 + a) for a number from 0 to 1 without integer bits, in two integer bits."""
    total = a + _MAX
    half = (total + 1) // 2
    x = _48_OVER_17 + high_half(half, _NEG_32_OVER_17)
    for _ in range(3):
        x += _clamped(high_half(x, (1 << 29) - high_half(half, x)) << 2)
    return x


def logistic(a: int, integer_bits: int) -> int:
    """Return 1 / (1 + exp(-a)) without integer bits."""
    if a == 0:
        return 1 << 30
    above = _clamped(_newton(exp_of_negative(-abs(a), integer_bits)) << 1)
    return above if a > 0 else _MAX - above


def tanh(a: int, integer_bits: int) -> int:
    """Return tanh without integer bits: (1 - e) / (1 + e) with e = exp(-2 |a|)."""
    size = _clamped((_newton(exp_of_negative(-abs(a), integer_bits + 1)) - (1 << 29)) << 2)
    return size if a > 0 else -size if a < 0 else 0


def function_table(scale: float, zero: int, function: Callable[[int, int], int], fraction: int) -> np.ndarray:
    """Return a function of 8-bit integers with a sign, tabulated from -128 on.

    Args:
        scale, zero: of the inputs.
        function: of a number with four integer bits.
        fraction: bits of the results, which begin at -128 if there are eight of them, else at 0.
    """
    multiplier, exponent = multipliers(scale * (1 << 27))
    m, left = int(multiplier), int(exponent)
    radius = math.floor(15 * (1 << 27) / (1 << left)) if left >= 0 else 1 << 8
    low = -128 if fraction == 8 else 0
    table = np.empty(256, np.int8)
    for q in range(-128, 128):
        x = q - zero
        if abs(x) >= radius:
            found = 127 if x > 0 else -128
        else:
            scaled = divided_by_power(high_half(x << max(left, 0), m), max(-left, 0))
            found = divided_by_power(function(scaled, 4), 31 - fraction) + low
        table[q + 128] = min(max(found, -128), 127)
    return table


def softmax_tables(scale: float, beta: float) -> tuple[np.ndarray, np.ndarray]:
    """Return for the distance of an input from the greatest one, 0 to 255: the exponential, and as summed.

    Exponentials have no integer bits, what is summed 12. Both are 0 where the reference leaves an input out.
    """
    factor = min(beta * scale * (1 << 26), 2**31 - 1.0)
    fraction, shift = multipliers(factor)
    m, left = int(fraction), int(shift)
    radius = math.floor(31 * (1 << 26) / (1 << left)) if left >= 0 else 255
    table = np.zeros(256, np.int32)
    for distance in range(256):
        if distance <= radius:
            table[distance] = exp_of_negative(high_half(-distance << max(left, 0), m), 5)
    summed = np.array([divided_by_power(int(e), 12) for e in table], np.int32)
    return table, summed


def emitted_exponent(node: Node, wide: Expr) -> Expr:
    """Emit the number of the highest bit of positive integers below `2**32`, all of them i64."""
    exponent: Expr | None = None
    for step in (16, 8, 4, 2, 1):
        is_high = node.op("greater_equal", wide, np.asarray(1 << step, np.int64))
        bits = node.op("mul", node.cast(is_high, I64), np.asarray(step, np.int64))
        wide = node.op("shift_right", wide, bits)
        exponent = bits if exponent is None else node.op("add", exponent, bits)
    assert exponent is not None
    return exponent


def wide_product(node: Node, a: Expr, b: Expr | np.ndarray) -> Expr:
    """Return the doubling high half of a product as `high_product` does, of numbers of 32 bits in i64."""
    rounded = node.op("add", node.op("mul", a, b), np.asarray(1 << 30, np.int64))
    return node.op("shift_right", rounded, np.asarray(31, np.int64))


def emitted_reciprocal(node: Node, total: Expr) -> tuple[Expr, Expr]:
    """Emit the reciprocal of positive sums with 12 integer bits, all of them i64.

    Nothing saturates on the way: from 48/17 - 32/17 d on, each step is off by less than 1/17.

    Returns:
        the reciprocal of the sum scaled to 1 to 2, without integer bits; by how many bits the sum exceeds it.
    """

    def const(value: int) -> np.ndarray:
        return np.asarray(value, np.int64)

    exponent = emitted_exponent(node, total)
    # The highest bit is number `exponent`, so there are `31 - exponent` zeros before it.
    headroom = node.op("sub", const(31), exponent)
    shifted = node.op("shift_left", total, headroom)
    half = node.op("shift_right", shifted, const(1))
    x = node.op("add", wide_product(node, half, const(_NEG_32_OVER_17)), const(_48_OVER_17))
    for _ in range(3):
        gap = node.op("sub", const(1 << 29), wide_product(node, half, x))
        x = node.op("add", x, node.op("shift_left", wide_product(node, x, gap), const(2)))
    twice = node.op("minimum", node.op("shift_left", x, const(1)), const(_MAX))
    return twice, node.op("sub", const(12), headroom)


def emitted_inverse_root(node: Node, total: Expr) -> tuple[Expr, Expr]:
    """Emit `1 / sqrt(x)` of integers from 0 to `2**29`, all i64, by Newton's steps; 0 counts as 1.

    Returns:
        multipliers of 31 bits; by how many bits their products are shifted to the right. Both are i64.
    """

    def const(value: int) -> np.ndarray:
        return np.asarray(value, np.int64)

    def times(a: Expr, b: Expr | np.ndarray) -> Expr:
        return node.cast(high_product(node, a, b), I64)

    def more(e: Expr, bits: int) -> Expr:
        return node.clamped(node.op("shift_left", e, const(bits)), _MIN, _MAX)

    x = node.op("maximum", total, const(2))
    room = node.op("sub", const(30), emitted_exponent(node, x))
    pairs = node.op("sub", node.op("shift_right", room, const(1)), const(1))
    x = node.op("shift_left", x, node.op("mul", pairs, const(2)))
    half = node.op("shift_right", node.op("add", node.op("shift_right", x, const(1)), const(1)), const(1))
    root: Expr = node.op("add", node.op("mul", x, const(0)), const(1 << 28))
    for _ in range(5):
        cube = more(times(times(root, root), root), 6)
        root = more(node.op("sub", times(root, const((1 << 28) + (1 << 27))), times(half, cube)), 3)
    root = times(root, const(1518500250))
    right = node.op("sub", const(11), pairs)
    root = node.op("shift_left", root, node.op("maximum", node.op("neg", right), const(0)))
    is_one = node.op("less", total, const(2))
    shift = node.op("select", is_one, const(0), node.op("maximum", right, const(0)))
    return node.op("select", is_one, const(_MAX), root), shift
