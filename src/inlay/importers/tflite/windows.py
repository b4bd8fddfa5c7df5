"""Padding of windows: none, or as many windows as steps fit into the input."""

from __future__ import annotations

from collections.abc import Sequence

from inlay.arith.expr import Int
from inlay.importers.tflite.node import Node

SAME, VALID = 0, 1


def same_or_valid(
    node: Node,
    padding: int,
    sizes: Sequence[Int],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int] = (1, 1),
) -> tuple[int, ...]:
    """Return the elements padded in front of each spatial axis, then behind each."""
    if padding not in (SAME, VALID) or min(*strides, *dilations) < 1:
        raise node.unsupported(f"has the padding {padding}, strides {strides}, dilations {dilations}")
    if padding == VALID:
        return (0,) * (2 * len(sizes))
    needed: list[int] = []
    for size, k, stride, step in zip(sizes, kernel, strides, dilations, strict=True):
        known = size.value
        if known is None and stride > 1:
            raise node.unsupported("pads an axis whose size is not known")
        windows = 1 if known is None else -(-known // stride)
        reach = (k - 1) * step + 1
        needed.append(max(reach - 1 if known is None else (windows - 1) * stride + reach - known, 0))
    return (*(n // 2 for n in needed), *(n - n // 2 for n in needed))
