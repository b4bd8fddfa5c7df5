"""Split a loop into tiles of falling size, without predicates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from inlay.arith.expr import Int, Min, lit, to_int
from inlay.loop.inits import iter_symbols
from inlay.loop.stmt import For, IterKind, LoopKind, Stmt
from inlay.loop.walk import Rewrite, blocks_of, seq, stmts_below
from inlay.schedule.primitives.split import require_serial
from inlay.schedule.state import Schedule, illegal, primitive


@dataclass(frozen=True, slots=True)
class Copy:
    """One of the nests that a cascade makes.

    Attributes:
        tile: its tile size.
        outer: loop over the tiles.
        inner: loop inside a tile, of extent `tile`.
        names: old to new names of the loops and blocks inside; the first nest keeps them.
    """

    tile: int
    outer: str
    inner: str
    names: dict[str, str]


@primitive
def split_cascade(s: Schedule, loop: str, tiles: Sequence[int]) -> tuple[Copy, ...]:
    """Split a loop into full tiles of the first size, then what is left into tiles of the next.

    Before:

        for i in 0..n { block b(v: spatial n = i) { y[v] = x[v] } }

    After `split_cascade(s, "i", (4, 1))`:

        for i_o in 0..n / 4 { for i_i in 0..4 { block b(v: spatial n = 4*i_o + i_i) { y[v] = x[v] } } }
        for i_o_1 in 0..(n % 4) { for i_i_1 in 0..1 {
          block b_1(v: spatial n = 4*(n / 4) + i_o_1 + i_i_1) { y[v] = x[v] } } }

    This is how an extent that is a symbol gets register tiles: every tile has a constant size and
    no predicate. Copies that certainly run no tile are left out.

    Args:
        s: the schedule.
        loop: which loop.
        tiles: sizes, falling; the last divides whatever is left, so it is 1 unless more is known. Of an
            extent `min(a, b)` each of both is asked.

    Returns:
        The copies, in order of execution.

    Raises:
        Illegal: `schedule.kind`, `schedule.extent`.
    """
    place, old = s.loop_place(loop), s.loop(loop)
    require_serial(old)
    if not tiles or list(tiles) != sorted(set(tiles), reverse=True) or tiles[-1] < 1:
        raise illegal("kind", f"found tiles {tuple(tiles)}, needed falling positive sizes")
    for block in blocks_of(old.body):
        if block.init is not None and old.var in iter_symbols(block, IterKind.REDUCE):
            raise illegal(
                "kind",
                f"found {block.name} to start its reduction over {loop}: each copy would",
                hint="use decompose_reduction first",
            )
    parts = _parts(old.extent, tiles)
    own = {x.var.name: x.var.name for x in stmts_below(old.body) if isinstance(x, For)}
    own |= {b.name: b.name for b in blocks_of(old.body)}
    made: list[Stmt] = []
    copies: list[Copy] = []
    for start, count, tile in parts:
        body, names = s.copied(old.body) if made else (old.body, own)
        outer, inner = s.fresh_loop(f"{loop}_o"), s.fresh_loop(f"{loop}_i")
        value = old.lo + start + to_int(outer) * tile + to_int(inner)
        body = Rewrite({old.var: value}).stmt(body)
        nest = For(inner, lit(0), lit(tile), LoopKind.SERIAL, body)
        made.append(For(outer, lit(0), count, LoopKind.SERIAL, nest, old.note))
        copies.append(Copy(tile, outer.name, inner.name, names))
    s.replace(place, seq(*made))
    return tuple(copies)


def _parts(extent: Int, tiles: Sequence[int]) -> list[tuple[Int, Int, int]]:
    """Return (first iteration, number of tiles, tile size) of each part that may run."""
    parts: list[tuple[Int, Int, int]] = []
    start, left, cases = lit(0), extent, _cases(extent)
    for tile in tiles:
        count = left // tile
        if any((case // tile) != 0 for case in cases):
            parts.append((start, count, tile))
        start = start + count * tile
        left = left % tile
        cases = [case % tile for case in cases]
    if any(case != 0 for case in cases):
        raise illegal("extent", f"found {left} iterations left, needed a last tile that divides")
    return parts or [(lit(0), lit(0), tiles[0])]


def _cases(extent: Int) -> tuple[Int, ...]:
    """Return what an extent may be: a full block of iterations, or what is left for the last one."""
    return extent.atom.args if isinstance(extent.atom, Min) else (extent,)
