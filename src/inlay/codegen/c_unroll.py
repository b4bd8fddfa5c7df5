"""Which loops a compiler of source text is asked to write out, decided on the loops themselves.

Native code is made of what a schedule says: vectors are vectors, unrolled loops are written out. A
compiler of text makes vectors by itself, and its time grows with every statement that it is asked to
write out, above all with those that branch or compute much. It needs them written out for one thing
only: the tile of a contraction, whose accumulators stay in registers where every index of them is a
number. So:

* a condition that a loop does not change is asked once, in front of the loop;
* loops are written out while their bodies are short: tiles of sums are, what is done to a finished
  tile (rounding to 8 bits, say) is left as a loop, which the compiler makes vectors of;
* such a loop reads the tile at indices that are no numbers. It gets a copy of the tile, so that the
  tile itself can be in registers:

      acc[8][16]                                    acc[8][16]
      for k { unrolled { acc[i][j] += .. } }        for k { unrolled { acc[i][j] += .. } }
      for i, j { y[..] = long(acc[i][j]) }    =>    done[8][16]; unrolled { done[i][j] = acc[i][j] }
                                                    for i, j { y[..] = long(done[i][j]) }
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from inlay.arith.expr import Int, Sym, fresh, from_atom, lit, symbols
from inlay.loop.buffer import Buffer, Scope
from inlay.loop.func import LoopFunction
from inlay.loop.scalar import Index, Load, Name, Scalar
from inlay.loop.stmt import Alloc, For, If, LoopKind, Seq, Stmt, Store, While
from inlay.loop.walk import (
    Rewrite,
    child_stmts,
    loads_of,
    map_children,
    operands,
    own_scalars,
    scalars_below,
    seq,
    stmts_below,
    stores_of,
)

MOST_WRITTEN_OUT = 512
"""Statements that a compiler is asked to make of a loop, where each has few operations."""
FEW_OPERATIONS = 4
LONG_STATEMENT = 8
"""What each operation of a statement with more counts."""

_WRITTEN_OUT = (LoopKind.UNROLL, LoopKind.VECTOR)


def with_short_loops(f: LoopFunction) -> LoopFunction:
    """Return a function of the same meaning whose unrolled and vector loops are to be written out."""
    return replace(f, body=_with_copies(_as_loops(_asked_once(f.body))))


# ------------------------------------------------------------------------- conditions


def _asked_once(s: Stmt) -> Stmt:
    """Move conditions out of loops that are written out and do not change them."""
    s = map_children(s, _asked_once)
    if not isinstance(s, For) or s.kind not in _WRITTEN_OUT or (s.extent.value or 0) < 1:
        return s
    body = s.body
    if not isinstance(body, If) or body.otherwise is not None:
        return s
    if not all(_is_fixed(x, s.var) for x in scalars_below(body.condition)):
        return s
    return If(body.condition, For(s.var, s.lo, s.extent, s.kind, body.then, s.note))


def _is_fixed(x: Scalar, var: Sym) -> bool:
    """Whether a node of a condition is the same in every iteration."""
    match x:
        case Load():
            return False
        case Index(value=value):
            return var not in symbols(value)
        case Name(sym=sym):
            return sym != var
        case _:
            return True


# ------------------------------------------------------------------------------ loops


def _as_loops(s: Stmt) -> Stmt:
    """Make serial loops of those that would become too much."""
    if isinstance(s, For) and s.kind in _WRITTEN_OUT and _statements(s) > MOST_WRITTEN_OUT:
        s = For(s.var, s.lo, s.extent, LoopKind.SERIAL, s.body, s.note)
    return map_children(s, _as_loops)


def _statements(s: Stmt) -> int:
    """Return about how many statements a nest becomes where its loops are written out."""
    operations = sum(1 for v in own_scalars(s) for x in scalars_below(v) if operands(x))
    own = LONG_STATEMENT * operations if operations > FEW_OPERATIONS else 0
    inside = max(own + sum(_statements(x) for x in child_stmts(s)), 1)
    if isinstance(s, For) and s.kind in _WRITTEN_OUT:
        return inside * (s.extent.value or 1)
    return inside


# ------------------------------------------------------------------------------ tiles


def _with_copies(s: Stmt) -> Stmt:
    """Give loops that are left copies of the tiles that are to be in registers."""
    s = map_children(s, _with_copies)
    if not isinstance(s, Alloc) or s.buffer.scope != Scope.REGISTER:
        return s
    readers = [x for x in _run_once(s.body) if _steps_through(x, s.buffer)]
    kept = _without(s.body, readers)
    if not readers or _has_loop_through(kept, s.buffer) or not _is_used(kept, s.buffer):
        return s
    if _elements(s.buffer) > MOST_WRITTEN_OUT:
        return s
    return Alloc(s.buffer, _replaced(s.body, readers, s.buffer))


def _run_once(s: Stmt) -> Iterator[Stmt]:
    """Yield the statements that run at most once each time `s` does, outermost first."""
    pending = [s]
    while pending:
        top = pending.pop()
        yield top
        if not isinstance(top, For | While):
            pending.extend(reversed(child_stmts(top)))


def _steps_through(s: Stmt, buffer: Buffer) -> bool:
    """Whether a serial loop has a variable that is part of an index of a buffer."""
    if not isinstance(s, For) or s.kind is not LoopKind.SERIAL:
        return False
    return any(s.var in symbols(e) for e in _indices(s, buffer))


def _has_loop_through(s: Stmt, buffer: Buffer) -> bool:
    return any(_steps_through(x, buffer) for x in stmts_below(s))


def _is_used(s: Stmt, buffer: Buffer) -> bool:
    return next(_indices(s, buffer), None) is not None


def _indices(s: Stmt, buffer: Buffer) -> Iterator[Int]:
    for x in (*loads_of(s), *stores_of(s)):
        if x.buffer is buffer:
            yield from x.indices


def _without(s: Stmt, dropped: list[Stmt]) -> Stmt:
    if any(s is x for x in dropped):
        return Seq(())
    return map_children(s, lambda x: _without(x, dropped))


def _elements(buffer: Buffer) -> int:
    count = 1
    for extent in buffer.shape:
        count *= extent.value or MOST_WRITTEN_OUT + 1
    return count


def _replaced(s: Stmt, readers: list[Stmt], tile: Buffer) -> Stmt:
    if not any(s is x for x in readers):
        return map_children(s, lambda x: _replaced(x, readers, tile))
    copy = Buffer(f"{tile.name}_done", tile.shape, tile.dtype, Scope.STACK, tile.strides)
    steps = [_copied(copy, tile), Rewrite(buffers={tile: copy}).stmt(s)]
    if any(x.buffer is tile for x in stores_of(s)):
        steps.append(_copied(tile, copy))
    return Alloc(copy, seq(*steps))


def _copied(to: Buffer, source: Buffer) -> Stmt:
    at = [fresh(f"{to.name}_i{i}") for i, _ in enumerate(to.shape)]
    indices = tuple(from_atom(v) for v in at)
    out: Stmt = Store(to, indices, Load(source, indices))
    for var, extent in reversed(list(zip(at, to.shape, strict=True))):
        kind = LoopKind.VECTOR if isinstance(out, Store) else LoopKind.UNROLL
        out = For(var, lit(0), extent, kind, out)
    return out
