"""Register tiles of contractions: how many rows by how many vectors of columns are summed at once.

A tile of `r` rows by `v` vectors keeps `r * v` accumulators in registers. One step of its reduction
loads the v vectors of a row of the panel, broadcasts one element for each of the r rows, and does
`r * v` multiply-adds:

    instructions per step = r * v + r + v        registers = r * v + v + 1

A row of the panel comes from the second cache, and each vector of it counts as two instructions
(`PANEL_VECTOR`); elements of rows are in the first. So tiles that are nearly square in vectors take
least for each multiply-add: 6 x 4 takes 1.58, 8 x 3 as much, 8 x 2 and 4 x 4 1.75. On a core with
two units for wide multiply-adds the loads are
what is left to save (1024 terms, one Ice Lake core: 172 GFLOP/s for 6 x 4, 149 for 8 x 2, of 175); with
one unit they hide behind it and any of these shapes does. A multiply-add waits about four cycles for
the one before it on the same accumulator, so a step of few accumulators takes as long as one of
`BUSY`.

The rows of a line and the columns of a matrix seldom divide evenly. `heights` covers rows with at most
two tile sizes, and `ranked_panels` weighs the columns computed for nothing behind the last panel
against the shape of the tiles, both by the instructions of a step, summed over the tiles (of one row, by
the vectors that are loaded). What both choose between is the same for every machine: its registers and
vectors are the parameters.
"""

from __future__ import annotations

from functools import cache

from inlay.machine.target import Target

MAX_ROWS = 8
"""More rows gain little, and lose when they share cache sets: rows whose distance is a multiple of
4 KB do, and a cache has eight or more ways (196 x 256 x 1024 on Zen 4: 91 GFLOP/s with 14 rows, 116
with 7, of 117)."""
MAX_VECTORS = 8
FEWEST_VECTORS = 2
"""Vectors of the narrowest panel, however much of the second cache it takes: with one, a tile loads as often
as it multiplies (Zen 5, ms with 1, 2 and 4: 28 x 28 x 256 to 256, 5 x 5 11.5, 9.4, 10.1; 14 x 14 x 1,024 to
1,024, dilated 16.6, 13.4, 15.4; 32 x 32 x 512 to 512, 4 x 4 in steps of 2 13.0, 10.0, 10.0)."""
BLOCK_VECTORS = 4
"""Vectors of a panel that is read in blocks of terms. With 4 rows and fewer, which read it whole, wider ones
are slower: products of 1 and 4 rows with 135 MB of weights take 2.8 and 3.2 ms with 4, 3.2 and 4.4 with 8
(Zen 5)."""
DOT_ROWS = 16
"""Rows of one vector of sums of many dot products, where half of the registers hold them: eight sums only
just cover the cycles that each waits for the one before it (32 x 32 x 16 to 16, 3 x 3, VNNI on Zen 5: 6.9 us
with 8 rows, 6.2 with 16)."""
PANEL_VECTOR = 2
"""Instructions that loading a vector of the panel counts as. 16 x 768 x 768 in tiles of 8 x 3 takes 0.89
of the time of 6 x 4 and 4 x 4, 64 x 768 x 3072 0.83; with AVX2 nothing changes by more than 2 %."""
BUSY = 8
"""Accumulators that keep two units busy over the four cycles that each multiply-add takes."""

MASKED = 1.1
"""Time of a last panel that is not full, in that of full ones that are as wide as what is left of it: its
results are masked."""
MASKED_GROUPS = 2.0
"""As much where groups of narrow integers are summed: all that its lanes do is masked."""
UNEVEN = 1.04
"""Time of panels of which the last is not full, beyond that: it is code of its own, and threads share panels
that take different times."""


def most_rows(vectors: int, registers: int, *, dots: bool = False) -> int:
    """Return how many rows of a tile fit the registers, with a row of the panel and a broadcast.

    Args:
        vectors: of columns.
        registers: for sums and factors.
        dots: whether many dot products are summed (`DOT_ROWS`).
    """
    limit = DOT_ROWS if dots and vectors == 1 and registers >= 2 * DOT_ROWS else MAX_ROWS
    return min(limit, max(1, (registers - vectors - 1) // vectors))


def step_cost(rows: int, vectors: int) -> int:
    """Return what one step of the reduction of a tile takes, in instructions."""
    return max(rows * vectors, BUSY) + rows + PANEL_VECTOR * vectors


def heights(rows: int, vectors: int, registers: int, *, dots: bool = False) -> tuple[int, ...]:
    """Return the rows of the tiles that cover a number of rows at the least cost; see `ranked_heights`."""
    return ranked_heights(rows, vectors, registers, dots=dots)[0]


@cache
def ranked_heights(
    rows: int, vectors: int, registers: int, *, dots: bool = False
) -> tuple[tuple[int, ...], ...]:
    """Return the rows of tiles that cover a number of rows, in order of cost.

    Two sizes at most, falling; the first covers all but the last tile. Of equals, one size.

    Args:
        rows: of a line.
        vectors: of columns.
        registers: for sums and factors.
        dots: whether many dot products are summed (`DOT_ROWS`).
    """
    most = most_rows(vectors, registers, dots=dots)
    options = [(h, rows % h) if rows % h else (h,) for h in range(1, min(most, max(rows, 1)) + 1)]
    options.sort(key=lambda sizes: (_cover(rows, sizes, vectors), len(sizes), -sizes[0]))
    return tuple(options)


def row_cost(rows: int, vectors: int, registers: int) -> float:
    """Return what one of so many rows takes in each step, in instructions."""
    return _cover(rows, heights(rows, vectors, registers), vectors) / rows


def _cover(rows: int, sizes: tuple[int, ...], vectors: int) -> int:
    full = rows // sizes[0] * step_cost(sizes[0], vectors)
    return full + (step_cost(sizes[1], vectors) if len(sizes) > 1 else 0)


def ranked_panels(
    columns: int,
    rows: int | None,
    lanes: int,
    registers: int,
    most: int = MAX_VECTORS,
    masked: float = MASKED,
) -> list[int]:
    """Return how many vectors wide panels of columns may be, in order of cost.

    Args:
        columns: how many there are.
        rows: in a line of rows; None for many, or not known.
        lanes: elements of a vector.
        registers: of vectors.
        most: vectors, at most.
        masked: time of the last panel where columns are missing, in that of one of its vectors without.
    """

    def cost(vectors: int) -> float:
        full, left = divmod(columns, vectors * lanes)
        if rows == 1:
            # It waits for its weights alone, and those behind the last column come with them.
            one = 1 + (1 + PANEL_VECTOR) * vectors
            whole = one * (full + (masked if left else 0))
            return whole * UNEVEN if left else whole
        many = most_rows(vectors, registers)
        tiles = (many,) if rows is None else heights(rows, vectors, registers)
        last = _cover(rows or many, tiles, -(-left // lanes)) if left else 0
        whole = full * _cover(rows or many, tiles, vectors) + masked * last
        return (whole * UNEVEN if left else whole) / (rows or many)

    fits = min(most, MAX_VECTORS, max(1, -(-columns // lanes)), max(1, (registers - 1) // 2))
    return sorted(range(1, fits + 1), key=cost)


def panel_width(
    target: Target,
    columns: int,
    terms: int | None,
    rows: int | None,
    itemsize: int = 4,
    registers: int | None = None,
    *,
    sum_bytes: int = 4,
) -> int:
    """Return how many columns a panel should have; see `panel_widths`."""
    return panel_widths(target, columns, terms, rows, itemsize, registers, sum_bytes=sum_bytes)[0]


def panel_widths(
    target: Target,
    columns: int,
    terms: int | None,
    rows: int | None,
    itemsize: int = 4,
    registers: int | None = None,
    *,
    sum_bytes: int = 4,
    in_blocks: bool = False,
) -> list[int]:
    """Return how many columns a panel may have such that it stays in the second cache, in order of cost.

    Args:
        target: one core of a device.
        columns: of the result.
        terms: of each sum; None where no panels are packed.
        rows: in a line of the result, where that is known.
        itemsize: bytes of a weight.
        registers: of vectors, for sums and factors; None for all that there are.
        sum_bytes: of a sum.
        in_blocks: whether a block of terms stays there where a panel does not.
    """
    lanes = target.lanes(sum_bytes)
    most = MAX_VECTORS
    if terms is not None and target.l2_bytes:
        least = BLOCK_VECTORS if in_blocks else FEWEST_VECTORS
        most = max(least, 3 * target.l2_bytes // (4 * itemsize * lanes * max(terms, 1)))
    registers = target.vector_registers if registers is None else registers
    masked = MASKED_GROUPS if itemsize == 1 else MASKED
    widths = [lanes * n for n in ranked_panels(columns, rows, lanes, registers, most, masked)]
    # Half a register of 64 bytes holds so few columns, and twice as many of them are multiplied in a cycle.
    is_narrow = itemsize == sum_bytes and target.vector_bytes == 64 and columns <= lanes // 2 and rows != 1
    return [lanes // 2, *widths] if is_narrow else widths
