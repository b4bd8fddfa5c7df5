"""Split a loop in two."""

from __future__ import annotations

from inlay.arith.dtype import BOOL
from inlay.arith.expr import Int, ceildiv, lit, to_int
from inlay.loop.inits import conjunction
from inlay.loop.scalar import Binary, BinaryOp, Index, Scalar
from inlay.loop.stmt import Block, For, LoopKind, Stmt
from inlay.loop.walk import Rewrite, map_children
from inlay.schedule.state import Schedule, illegal, primitive


@primitive
def split(s: Schedule, loop: str, factor: int) -> tuple[str, str]:
    """Split a loop into one over tiles of `factor` iterations and one inside the tile.

    Before:

        for i in 0..n { block b(v: spatial n = i) { y[v] = x[v] } }

    After `split(s, "i", 4)`:

        for i_o in 0..(n + 3) / 4 { for i_i in 0..4 {
          block b(v: spatial n = 4*i_o + i_i) where [4*i_o + i_i] < [n] { y[v] = x[v] } } }

    The predicate is left out where `factor` certainly divides the extent. Lowering separates the
    full tiles from the last one, so that the predicate costs nothing there.

    Returns:
        The names of the outer and the inner loop.

    Raises:
        Illegal: `schedule.kind`.
    """
    place = s.loop_place(loop)
    old = s.loop(loop)
    if factor < 1:
        raise illegal("kind", f"found factor {factor}, needed a positive number")
    require_serial(old)
    outer, inner = s.fresh_loop(f"{loop}_o"), s.fresh_loop(f"{loop}_i")
    offset = to_int(outer) * factor + to_int(inner)
    body = Rewrite({old.var: old.lo + offset}).stmt(old.body)
    if (old.extent % factor) != 0:
        body = with_predicate(body, less(offset, old.extent))
    tile = For(inner, lit(0), lit(factor), LoopKind.SERIAL, body)
    tiles = For(outer, lit(0), ceildiv(old.extent, factor), LoopKind.SERIAL, tile, old.note)
    s.replace(place, tiles)
    return outer.name, inner.name


def require_serial(loop: For) -> None:
    """Refuse a loop that already has another kind.

    Raises:
        Illegal: `schedule.kind`.
    """
    if loop.kind is not LoopKind.SERIAL:
        raise illegal("kind", f"found {loop.kind} loop {loop.var.name}, needed a serial one")


def less(a: Int, b: Int) -> Scalar:
    """Return the scalar `a < b`."""
    return Binary(BinaryOp.LT, Index(a), Index(b), BOOL)


def with_predicate(s: Stmt, condition: Scalar) -> Stmt:
    """Add a condition to the predicates of all blocks in a statement."""
    if isinstance(s, Block):
        both = condition if s.predicate is None else conjunction(s.predicate, condition)
        return Block(s.name, s.iters, s.bindings, s.body, s.init, both)
    return map_children(s, lambda child: with_predicate(child, condition))
