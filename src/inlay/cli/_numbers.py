"""Numbers of command lines, with the range in which they mean something."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable

MOST = (1 << 64) - 1
"""The largest seed."""


def integer(low: int, high: int) -> Callable[[str], int]:
    """Return what reads an integer of a range, for `type=` of an argument."""

    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = low - 1
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"found {text}, needed an integer from {low} to {high}")
        return value

    return read


def number(most: float = math.inf) -> Callable[[str], float]:
    """Return what reads a number from zero on, for `type=` of an argument."""

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not 0 <= value <= most or math.isinf(value):
            upper = "on" if math.isinf(most) else f"to {most:g}"
            raise argparse.ArgumentTypeError(f"found {text}, needed a number from 0 {upper}")
        return value

    return read
