"""Operators of StableHLO that converters leave as they are: element by element, and those that move elements.

They compute with what elements are: quantized integers have operators of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np

from inlay.arith.expr import Int
from inlay.importers.tflite.node import Kind, Node, Rule
from inlay.ir import make
from inlay.ir.expr import Expr

_BY_ELEMENT = {
    "ABS": "abs",
    "ADD": "add",
    "AND": "bitwise_and",
    "COSINE": "cos",
    "DIVIDE": "div",
    "EXPONENTIAL": "exp",
    "FLOOR": "floor",
    "LOG": "log",
    "LOGISTIC": "sigmoid",
    "MAXIMUM": "maximum",
    "MINIMUM": "minimum",
    "MULTIPLY": "mul",
    "NEGATE": "neg",
    "OR": "bitwise_or",
    "POWER": "pow",
    "RSQRT": "rsqrt",
    "SELECT": "select",
    "SHIFT_LEFT": "shift_left",
    "SUBTRACT": "sub",
    "TANH": "tanh",
}
_OF_TRUTH = {"bitwise_and": "logical_and", "bitwise_or": "logical_or"}
_DIRECTIONS = ("equal", "not_equal", "greater_equal", "greater", "less_equal", "less")


def _elements(node: Node) -> list[Expr]:
    """Return all inputs, none of which are quantized."""
    if any(node.kind(i) is Kind.QUANTIZED for i in range(len(node.values))):
        raise node.unsupported("takes quantized integers")
    return [node.tensor(i) for i in range(len(node.values))]


def _by_element(node: Node, name: str) -> Expr:
    operands = _elements(node)
    if node.dtype(operands[0]).name == "bool":
        name = _OF_TRUTH.get(name, name)
    return node.op(name, *operands)


def _compare(node: Node) -> Expr:
    (direction,) = node.options("StablehloCompareOptions", "ComparisonDirection")
    if direction not in range(len(_DIRECTIONS)):
        raise node.unsupported(f"has the direction {direction}")
    return node.op(_DIRECTIONS[int(direction)], *_elements(node))


def _clamp(node: Node) -> Expr:
    """Inputs: the least value, the elements, the greatest value."""
    low, x, high = _elements(node)
    return node.op("minimum", node.op("maximum", x, low), high)


def _convert(node: Node) -> Expr:
    return node.cast(_elements(node)[0], node.output().dtype)


def _sizes_of_output(node: Node) -> tuple[int, ...]:
    if any(d < 0 for d in node.output().shape):
        raise node.unsupported("gives a shape that the file does not say")
    return node.output().shape


def _reshape(node: Node) -> Expr:
    node.keeps_scale()
    return node.reshape(node.tensor(0), *_sizes_of_output(node))


def _broadcast(node: Node) -> Expr:
    """Emit a broadcast: each axis of the input is one of the output's, which a constant names."""
    node.keeps_scale()
    axes, sizes = node.numbers(1, "axes"), _sizes_of_output(node)
    if axes != sorted(axes) or any(a not in range(len(sizes)) for a in axes):
        raise node.unsupported(f"has axes {axes} of {len(sizes)}")
    x = node.tensor(0)
    spread: list[Int | int] = [1] * len(sizes)
    for axis, size in zip(axes, node.shape(x), strict=True):
        spread[axis] = size
    return node.op("broadcast_to", node.reshape(x, *spread), make.shape_const(sizes))


def _concatenate(node: Node) -> Expr:
    (axis,) = node.options("StablehloConcatenateOptions", "Dimension")
    node.keeps_scale()
    parts = [node.tensor(i) for i in range(len(node.values))]
    return node.op("concat", *parts, axis=node.axis(axis, len(node.shape(parts[0]))))


def _transpose(node: Node) -> Expr:
    node.keeps_scale()
    order = node.record.vector("StablehloTransposeOptions", "Permutation")
    return node.op("transpose", node.tensor(0), perm=tuple(int(a) for a in order))


def _slice(node: Node) -> Expr:
    node.keeps_scale()
    x = node.tensor(0)
    fields = ("StartIndices", "LimitIndices", "Strides")
    bounds = [node.record.vector("StablehloSliceOptions", f) for f in fields]
    if any(len(b) != len(node.shape(x)) for b in bounds):
        raise node.unsupported(f"has bounds of another number of axes than {len(node.shape(x))}")
    for axis, (start, stop, step) in enumerate(zip(*bounds, strict=True)):
        x = node.part(x, axis, int(start), int(stop), int(step))
    return x


def _pad(node: Node) -> Expr:
    node.keeps_scale()
    fields = ("EdgePaddingLow", "EdgePaddingHigh", "InteriorPadding")
    front, behind, inside = ([int(n) for n in node.record.vector("StablehloPadOptions", f)] for f in fields)
    if any(inside) or min([*front, *behind, 0]) < 0:
        raise node.unsupported("pads between elements, or takes elements away")
    return node.op("pad", node.tensor(0), make.shape_const([*front, *behind]), node.reshape(node.tensor(1)))


def _iota(node: Node) -> Expr:
    (axis,) = node.options("StablehloIotaOptions", "IotaDimension")
    sizes = _sizes_of_output(node)
    node.bounded(*sizes)
    axis = node.axis(axis, len(sizes))
    row = np.arange(sizes[axis], dtype=node.output().dtype.numpy)
    return make.const(np.broadcast_to(row.reshape([-1] + [1] * (len(sizes) - axis - 1)), sizes).copy())


RULES: Mapping[str, Rule] = {
    **{f"STABLEHLO_{name}": partial(_by_element, name=own) for name, own in _BY_ELEMENT.items()},
    "STABLEHLO_BROADCAST_IN_DIM": _broadcast,
    "STABLEHLO_CLAMP": _clamp,
    "STABLEHLO_COMPARE": _compare,
    "STABLEHLO_CONCATENATE": _concatenate,
    "STABLEHLO_CONVERT": _convert,
    "STABLEHLO_IOTA": _iota,
    "STABLEHLO_PAD": _pad,
    "STABLEHLO_RESHAPE": _reshape,
    "STABLEHLO_SLICE": _slice,
    "STABLEHLO_TRANSPOSE": _transpose,
}
