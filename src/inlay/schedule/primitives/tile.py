"""Split two nested loops into rectangles."""

from __future__ import annotations

from inlay.schedule.primitives.reorder import reorder
from inlay.schedule.primitives.split import split
from inlay.schedule.state import Schedule, primitive


@primitive
def tile(
    s: Schedule, first: str, second: str, height: int, width: int
) -> tuple[str, str, str, str]:
    """Split two loops that are directly inside one another, and put the loops over tiles outside.

    Before:

        for i in 0..8 { for j in 0..4 {
          block b(u: spatial 8 = i, v: spatial 4 = j) { y[u, v] = x[u, v] } } }

    After `tile(s, "i", "j", 4, 2)`:

        for i_o in 0..2 { for j_o in 0..2 { for i_i in 0..4 { for j_i in 0..2 {
          block b(u: spatial 8 = 4*i_o + i_i, v: spatial 4 = 2*j_o + j_i) {
            y[u, v] = x[u, v] } } } } }

    Sizes that do not divide leave predicates, as `split` does.

    Returns:
        The loops over tiles, then the loops inside a tile.

    Raises:
        Illegal: as `split` and `reorder`.
    """
    rows, row = split(s, first, height)
    columns, column = split(s, second, width)
    reorder(s, [rows, columns, row, column])
    return rows, columns, row, column
