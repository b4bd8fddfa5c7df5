"""How sums are cut into the matrices of a matrix unit, and whether that pays.

A *block* of `down x across` matrices of sums stays in registers while the reduction runs. One step loads a
matrix of each factor for each of its rows and columns of matrices, and multiplies every pair. So a block that
is nearly square loads least, and a matrix with few rows or steps takes nearly as long as a full one. Second
factors of long sums do not stay in the first cache from block to block, and loading those takes longer than
multiplying them: such blocks are one matrix wide, and high.

Rows of a matrix are at one distance in memory: pixels of a line. Matrices below one another may be further
ones of the line, or of the next lines.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from inlay.machine.matrix_units import MatrixProduct

MOST_SUMS = 4
"""Matrices of sums in registers at once; the others hold factors, two of each."""
LEAST_PRODUCTS = 64
"""Rows times steps of a matrix from which on the unit is faster than dot products."""


@dataclass(frozen=True, slots=True)
class MatrixBlocks:
    """Blocks that cover all sums.

    Attributes:
        rows: of a matrix.
        steps: of the sum in a matrix.
        along: matrices along a line.
        lines: how many lines a block reaches over, but for the last one.
        across: matrices side by side.
    """

    rows: int
    steps: int
    along: int
    lines: int
    across: int


@cache
def matrix_blocks(
    unit: MatrixProduct, rows: int, lines: int, columns: int, groups: int, repeats: int, l1_bytes: int
) -> MatrixBlocks | None:
    """Return the blocks to compute sums in; None where the unit does not pay.

    Args:
        unit: what multiplies.
        rows: of a line.
        lines: one after the other, each at a distance of its own.
        columns: of the sums.
        groups: steps of a sum that are next to each other.
        repeats: how often as many are added up.
        l1_bytes: the first cache.
    """
    if columns < 1 or columns % unit.columns or rows < 1 or groups < 1 or repeats < 1:
        return None
    steps = max(d for d in range(1, unit.steps + 1) if groups % d == 0)
    across = columns // unit.columns
    found = list(_candidates(unit, rows, lines, across, steps))
    if not found:
        return None
    second = groups * repeats * unit.columns * unit.width

    def cost(x: MatrixBlocks) -> float:
        load = LOAD if 2 * second * x.across <= l1_bytes else FAR_LOAD
        count = rows // (x.rows * x.along) * (across // x.across)
        full, left = divmod(lines, x.lines)
        return count * (full * _step(x, x.lines, load) + (_step(x, left, load) if left else 0))

    best = min(found, key=cost)
    return best if best.rows * best.steps >= LEAST_PRODUCTS else None


def _candidates(
    unit: MatrixProduct, rows: int, lines: int, across: int, steps: int
) -> Iterator[MatrixBlocks]:
    for height in range(1, unit.rows + 1):
        for along in range(1, MOST_SUMS + 1):
            if rows % (height * along):
                continue
            for high in range(1, min(lines, MOST_SUMS // along) + 1):
                for wide in range(1, MOST_SUMS // (along * high) + 1):
                    if across % wide == 0:
                        yield MatrixBlocks(height, steps, along, high, wide)


def _step(x: MatrixBlocks, lines: int, load: int) -> float:
    """Return about how many cycles a step of a block takes."""
    down = x.along * lines
    return down * x.across * max(x.rows, x.steps, LEAST_CYCLES) + LOAD * down + load * x.across


LEAST_CYCLES = 10
"""Of a product; otherwise as many as the matrix has rows, or steps."""
LOAD, FAR_LOAD = 4, 20
"""Cycles that loading a matrix adds, most of which products hide; from the second cache."""
