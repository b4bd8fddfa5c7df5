"""Transpositions of vectors in registers, by shuffles that stay inside of a few elements.

Rows of n elements become n columns of as many elements as there are rows: a multiple of n. Row k is put
beside rows k + n, k + 2n, ...: that leaves transpositions of n by n, side by side. For each, log2(n) times
the first half of the vectors and the second half are interleaved. That rotates the number of a row and the
number of an element in it, as one string of bits, by one bit: in the end they have changed places. With n
elements of 16 bytes in all an interleaving is one instruction, whatever the registers (`vpunpckl`, `zip1`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from inlay.codegen.llvm_builder import Builder
from inlay.codegen.llvm_types import vector


def transposed(builder: Builder, rows: Sequence[str], element: str, n: int) -> list[str]:
    """Return the n columns of rows of n elements, vectors of one element of each row.

    Args:
        builder: writes the shuffles, each once.
        rows: vectors; a power of two of them, n at least.
        element: the LLVM type of an element.
        n: a power of two.
    """
    lanes = len(rows)
    type, halves = vector(element, lanes), [_interleaved(n, lanes, half) for half in (0, 1)]
    found = [_side_by_side(builder, rows[k::n], element, n) for k in range(n)]
    for _ in range(n.bit_length() - 1):
        found = [
            builder.pure(f"shufflevector {type} {a}, {type} {b}, {mask}", (a, b))
            for a, b in zip(found[: n // 2], found[n // 2 :], strict=True)
            for mask in halves
        ]
    return found


def _side_by_side(builder: Builder, parts: Sequence[str], element: str, size: int) -> str:
    """Return vectors of one size, a power of two of them, as one."""
    while len(parts) > 1:
        type, mask = vector(element, size), _mask(range(2 * size))
        parts = [
            builder.pure(f"shufflevector {type} {a}, {type} {b}, {mask}", (a, b))
            for a, b in zip(parts[::2], parts[1::2], strict=True)
        ]
        size *= 2
    return parts[0]


def _interleaved(n: int, lanes: int, half: int) -> str:
    """Return which elements of two vectors alternate: of each n of both, those in one half."""
    return _mask(
        first + half * (n // 2) + k + other * lanes
        for first in range(0, lanes, n)
        for k in range(n // 2)
        for other in (0, 1)
    )


def _mask(chosen: Iterable[int]) -> str:
    words = [f"i32 {x}" for x in chosen]
    return f"<{len(words)} x i32> <{', '.join(words)}>"
