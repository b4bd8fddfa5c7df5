"""Fourier transforms. A complex number is a pair of floats: the last axis of its tensor."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np

from inlay.arith.dtype import F32, F64
from inlay.importers.tflite.node import Node, Rule
from inlay.ir import make
from inlay.ir.expr import Expr

_MOST = 1 << 22
"""Elements of a matrix that is stored in a program."""


def _waves(node: Node, inputs: int, outputs: int) -> tuple[np.ndarray, np.ndarray]:
    """Return exp(-2 pi i k n / inputs), `[inputs, outputs]`, exactly reduced: real and imaginary parts."""
    if inputs < 1 or inputs * outputs > _MOST:
        raise node.unsupported(f"transforms {inputs} elements")
    turns = 2 * np.pi * (np.outer(np.arange(inputs), np.arange(outputs)) % inputs / inputs)
    return np.cos(turns), -np.sin(turns)


def _of_length(node: Node, x: Expr, axis: int, length: int) -> Expr:
    """Cut an axis off, or fill it up with zeros."""
    size = node.shape(x)[axis].value
    if size is None:
        raise node.unsupported("transforms an axis whose size is not known")
    if size >= length:
        return x if size == length else node.part(x, axis, 0, length)
    rank = len(node.shape(x))
    pads = [0] * (2 * rank)
    pads[rank + axis] = length - size
    return node.op("pad", x, make.shape_const(pads))


def _rfft(node: Node) -> Expr:
    """Emit the transform of matrices of reals, of which the second half of each row is left out.

    A product loses more to rounding than a fast transform, so it is computed in f64.
    """
    node.only_floats()
    lengths, x = node.numbers(1, "a size"), node.tensor(0)
    rank = len(node.shape(x))
    if len(lengths) != 2 or rank < 2 or min(lengths) < 1:
        raise node.unsupported(f"transforms a tensor of rank {rank} to {lengths}")
    rows, columns = lengths
    x = _of_length(node, _of_length(node, x, rank - 1, columns), rank - 2, rows)
    kept = columns // 2 + 1
    found = node.op("matmul", node.cast(x, F64), np.concatenate(_waves(node, columns, kept), 1))
    if rows > 1:
        cos, sin = _waves(node, rows, rows)
        real, imaginary = (node.part(found, rank - 1, k * kept, (k + 1) * kept) for k in (0, 1))
        first = node.op("sub", _times(node, cos, real), _times(node, sin, imaginary))
        second = node.op("add", _times(node, sin, real), _times(node, cos, imaginary))
        found = node.op("concat", first, second, axis=rank - 1)
    pairs = node.reshape(found, *node.shape(x)[:-1], 2, kept)
    return node.cast(node.op("transpose", pairs, perm=(*range(rank - 1), rank, rank - 1)), F32)


def _times(node: Node, matrix: np.ndarray, x: Expr) -> Expr:
    return node.op("matmul", make.const(matrix), x)


def _size(node: Node) -> Expr:
    x = node.tensor(0)
    return node.op("sqrt", node.op("reduce_sum_square", x, axes=(len(node.shape(x)) - 1,)))


def _component(node: Node, k: int) -> Expr:
    x = node.tensor(0)
    last = len(node.shape(x)) - 1
    return node.reshape(node.part(x, last, k, k + 1), *node.shape(x)[:-1])


RULES: Mapping[str, Rule] = {
    "RFFT2D": _rfft,
    "COMPLEX_ABS": _size,
    "REAL": partial(_component, k=0),
    "IMAG": partial(_component, k=1),
}
OF_COMPLEX = frozenset((*RULES, "RESHAPE", "EXPAND_DIMS"))
"""Operators that may have complex operands or results."""
