"""Axes that a reshape cuts into several, or makes one of."""

from __future__ import annotations

from collections.abc import Sequence

from inlay.arith.expr import Int, lit


def split_axes(whole: Sequence[Int], split: Sequence[Int]) -> list[list[int]] | None:
    """Return for each axis the axes it was split into; None if axes were merged or cut across.

    One of a single element may be split into none: it goes away.
    """
    parts: list[list[int]] = []
    at = 0
    for d in whole:
        product, axes = lit(1), list[int]()
        is_gone = d == 1 and at < len(split) and split[at] != 1
        while at < len(split) and (product != d or not axes) and not is_gone:
            product = product * split[at]
            axes.append(at)
            at += 1
        if product != d:
            return None
        parts.append(axes)
    while at < len(split) and split[at] == 1 and parts:
        parts[-1].append(at)
        at += 1
    return parts if at == len(split) else None
