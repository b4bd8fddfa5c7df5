"""Element-wise operators of two tensors or more, on floats, plain integers, and quantized ones."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np

from inlay.arith.dtype import F64, I16, I64, U8
from inlay.importers.tflite import tables
from inlay.importers.tflite.integers import NONE, activated, ends_of_integers, requantize, scaled, summed
from inlay.importers.tflite.node import Kind, Node, Rule
from inlay.ir import make
from inlay.ir.expr import Expr


def _arithmetic(node: Node, name: str, options: str) -> Expr:
    (activation,) = node.options(options, "FusedActivationFunction")
    if node.kind() is not Kind.QUANTIZED:
        return activated(node, node.op(name, node.tensor(0), node.tensor(1)), activation)
    if name == "mul":
        a, b, out = (float(node.scale(t)) for t in (node.input(0), node.input(1), node.output()))
        product = node.op("mul", node.centered(0), node.centered(1))
        return requantize(node, product, a * b / out, node.output(), activation)
    bits = 15 if node.output().dtype is I16 else 20
    a, b, most = _of_one_scale(node, bits)
    factor = most / ((1 << bits) * float(node.scale(node.output())))
    return requantize(node, node.op(name, a, b), factor, node.output(), activation)


def _of_one_scale(node: Node, bits: int) -> tuple[Expr, Expr, float]:
    """Return two tensors of integers as i32 of one scale, scaled up by some bits, and that scale."""
    scales = [float(node.scale(node.input(i))) for i in (0, 1)]
    most, unit = 2 * max(scales), np.asarray(1 << bits, np.int32)
    a, b = (scaled(node, node.op("mul", node.centered(i), unit), scales[i] / most) for i in (0, 1))
    return a, b, most


def _div(node: Node) -> Expr:
    """Emit a quotient; of 8-bit integers, a table of all pairs."""
    (activation,) = node.options("DivOptions", "FusedActivationFunction")
    if node.kind() is not Kind.QUANTIZED:
        return activated(node, node.op("div", node.tensor(0), node.tensor(1)), activation)
    dtype, out = node.input(0).dtype, node.output()
    if dtype is I16:
        return _div_of_16_bits(node, activation)
    a, b = np.meshgrid(*[tables.all_of(dtype) - node.zero(node.input(i)) for i in (0, 1)], indexing="ij")
    factor = float(node.scale(node.input(0))) / float(node.scale(node.input(1)) * node.scale(out))
    low, high = ends_of_integers(node, activation, out)
    found = np.clip(tables.quotient(a, b, factor) + node.zero(out), low, high).astype(dtype.numpy)
    least = int(np.iinfo(dtype.numpy).min)
    row, column = (node.less(node.cast(node.tensor(i), I64), least) for i in (0, 1))
    place = node.op("add", node.op("mul", row, np.asarray(256, np.int64)), column)
    return node.op("gather", found.reshape(-1), place, axis=0, clamp=True)


def _div_of_16_bits(node: Node, activation: int) -> Expr:
    """Emit the quotient of reals in f64, ties away from zero; 0 where the divisor is 0."""
    out = node.output()
    factor = float(node.scale(node.input(0))) / float(node.scale(node.input(1)) * node.scale(out))
    a, b = (node.cast(node.centered(i), F64) for i in (0, 1))
    none = np.asarray(0, np.float64)
    is_zero = node.op("equal", b, none)
    ratio = node.op(
        "mul", node.op("div", a, node.op("select", is_zero, np.asarray(1.0), b)), np.asarray(factor)
    )
    size = node.op("floor", node.op("add", node.op("abs", ratio), np.asarray(0.5)))
    whole = node.op("select", is_zero, none, node.op("mul", size, node.op("sign", ratio)))
    zero = node.zero(out)
    low, high = (end - zero for end in ends_of_integers(node, activation, out))
    moved = node.op("add", node.clamped(whole, low, high), np.asarray(float(zero)))
    return node.cast(moved, out.dtype)


def _of_whole_numbers(node: Node, name: str) -> Expr:
    """Emit what kernels compute of integers as they are; scales have to say the same."""
    if node.kind() is Kind.QUANTIZED:
        a, b, out = node.input(0), node.input(1), node.output()
        of_result = node.scale(a) if name == "mod" else np.float32(1)
        if a.dtype is U8 or any(node.zero(t) for t in (a, b, out)):
            raise node.unsupported("takes integers with a zero point, which its kernels leave out")
        if node.scale(a) != node.scale(b) or node.scale(out) != of_result:
            raise node.unsupported("takes integers of scales that its kernels leave out")
    return node.op(name, node.tensor(0), node.tensor(1))


def _extreme(node: Node, name: str) -> Expr:
    """Emit the greater or lesser of two; integers of one scale are compared as they are."""
    node.keeps_scale()
    return node.op(name, node.tensor(0), node.tensor(1))


def _plain(node: Node, name: str) -> Expr:
    if Kind.QUANTIZED in (node.kind(0), node.kind(1)):
        raise node.unsupported("takes quantized integers")
    return node.op(name, node.tensor(0), node.tensor(1))


def _squared_difference(node: Node) -> Expr:
    if node.kind() is not Kind.QUANTIZED:
        difference = node.op("sub", node.tensor(0), node.tensor(1))
        return node.op("mul", difference, difference)
    bits = 0 if node.input(0).dtype is I16 else 7
    a, b, most = _of_one_scale(node, bits)
    difference = node.op("sub", a, b)
    factor = most * most / ((1 << 2 * bits) * float(node.scale(node.output())))
    return requantize(node, node.op("mul", difference, difference), factor, node.output(), NONE)


def _compare(node: Node, name: str) -> Expr:
    """Emit a comparison; bytes of two scales are brought to one as the kernels do it.

    Integers of 16 bits times a scale are exact in f64; the kernels compare them as if they had one scale.
    """
    if node.kind() is not Kind.QUANTIZED:
        return node.op(name, node.tensor(0), node.tensor(1))
    operands: list[Expr] = []
    if node.input(0).dtype is I16:
        pairs = [(node.scale(node.input(i)), node.zero(node.input(i))) for i in (0, 1)]
        if pairs[0] == pairs[1]:
            return node.op(name, node.tensor(0), node.tensor(1))
        for i, (scale, _) in enumerate(pairs):
            operands.append(node.op("mul", node.cast(node.centered(i), F64), np.asarray(scale, np.float64)))
        return node.op(name, *operands)
    for i in (0, 1):
        shifted = node.op("mul", node.centered(i), np.asarray(1 << 8, np.int32))
        operands.append(scaled(node, shifted, float(node.scale(node.input(i)))))
    return node.op(name, *operands)


def _logical(node: Node, name: str) -> Expr:
    return node.op(name, *(node.tensor(i) for i in range(len(node.values))))


def _select(node: Node) -> Expr:
    """Emit a choice. SELECT may have a condition for each row, SELECT_V2 broadcasts."""
    condition, x, y = (node.tensor(i) for i in range(3))
    node.keeps_scale()
    rank = len(node.shape(x))
    if node.record.name == "SELECT" and len(node.shape(condition)) == 1 and rank > 1:
        condition = node.reshape(condition, node.shape(condition)[0], *[1] * (rank - 1))
    return node.op("select", condition, x, y)


def _add_n(node: Node) -> Expr:
    is_integer, count = node.kind() is Kind.QUANTIZED, len(node.values)
    if is_integer:
        node.of_one_scale(*(node.input(i) for i in range(count)))
    total, *others = (node.centered(i) if is_integer else node.tensor(i) for i in range(count))
    for one in others:
        total = node.op("add", total, one)
    return summed(node, total, count) if is_integer else total


def _cast(node: Node) -> Expr:
    return node.cast(node.tensor(0), node.output().dtype)


def _bitcast(node: Node) -> Expr:
    if node.input(0).dtype.bits != node.output().dtype.bits:
        raise node.unsupported("changes the size of elements")
    return node.op("bitcast", node.tensor(0), dtype=node.output().dtype)


def _atan2(node: Node) -> Expr:
    """Emit the angle of a point from its two coordinates, by the half plane that it is in."""
    node.only_floats(0, 1)
    y, x = node.tensor(0), node.tensor(1)
    zero, pi = np.asarray(0, np.float32), np.asarray(np.pi, np.float32)
    angle = node.op("atan", node.op("div", y, x))
    is_below = node.op("less", y, zero)
    turn = node.op("select", is_below, node.op("sub", angle, pi), node.op("add", angle, pi))
    found = node.op("select", node.op("less", x, zero), turn, angle)
    is_origin = node.op("logical_and", node.op("equal", x, zero), node.op("equal", y, zero))
    return node.op("select", is_origin, node.op("mul", y, zero), found)


def _zeros_like(node: Node) -> Expr:
    x = node.tensor(0)
    return node.op("broadcast_to", node.number(0, x), make.shape_const(node.shape(x)))


COMPARISONS = {
    "EQUAL": "equal",
    "NOT_EQUAL": "not_equal",
    "LESS": "less",
    "LESS_EQUAL": "less_equal",
    "GREATER": "greater",
    "GREATER_EQUAL": "greater_equal",
}
RULES: Mapping[str, Rule] = {
    "ADD": partial(_arithmetic, name="add", options="AddOptions"),
    "SUB": partial(_arithmetic, name="sub", options="SubOptions"),
    "MUL": partial(_arithmetic, name="mul", options="MulOptions"),
    "DIV": _div,
    "POW": partial(_plain, name="pow"),
    "FLOOR_DIV": partial(_of_whole_numbers, name="floor_div"),
    "FLOOR_MOD": partial(_of_whole_numbers, name="mod"),
    "MAXIMUM": partial(_extreme, name="maximum"),
    "MINIMUM": partial(_extreme, name="minimum"),
    "SQUARED_DIFFERENCE": _squared_difference,
    **{name: partial(_compare, name=own) for name, own in COMPARISONS.items()},
    "LOGICAL_AND": partial(_logical, name="logical_and"),
    "LOGICAL_OR": partial(_logical, name="logical_or"),
    "LOGICAL_NOT": partial(_logical, name="logical_not"),
    "BITWISE_XOR": partial(_plain, name="bitwise_xor"),
    "RIGHT_SHIFT": partial(_plain, name="shift_right"),
    "SELECT": _select,
    "SELECT_V2": _select,
    "ADD_N": _add_n,
    "CAST": _cast,
    "BITCAST": _bitcast,
    "ATAN2": _atan2,
    "ZEROS_LIKE": _zeros_like,
}
