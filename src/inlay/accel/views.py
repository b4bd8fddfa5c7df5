"""Shapes as commands see them: descriptions say convolutions of images and products of two matrices alone.

    x[n, c, w]     with lines      x[n, c, 1, w]     an image of one row
    x[b, m, k]     with rows       x[b * m, k]       all axes of rows are one

Elements stand in the same order in both, so a command that is given addresses computes the same.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from inlay.accel.overlay import Overlay
from inlay.accel.pattern import Applied
from inlay.arith.expr import Int, lit, product
from inlay.ir.types import TensorType

Shape = tuple[Int, ...]
View = Callable[[Shape], Shape]


def view_of(found: Overlay) -> View:
    """Return how shapes of a match are seen; those of factors, which have one axis, are not asked for."""
    for node in found.values:
        if isinstance(node, Applied) and node.is_product:
            ranks = [_rank(found, x) for x in (node, *node.operands)]
            if node.padded and ranks[0] == 3:
                return _of_lines
            if not node.padded and ranks[0] > 2 and ranks[2] == 2:
                return partial(_of_rows, ranks[0])
    return _as_it_is


def _rank(found: Overlay, node: object) -> int:
    type = next((e.type for x, e in found.values.items() if x is node), None)
    return len(type.shape) if isinstance(type, TensorType) else 0


def _of_lines(shape: Shape) -> Shape:
    return (*shape[:-1], lit(1), shape[-1]) if shape else shape


def _of_rows(rank: int, shape: Shape) -> Shape:
    return (product(shape[:-1]), shape[-1]) if len(shape) == rank else shape


def _as_it_is(shape: Shape) -> Shape:
    return shape
