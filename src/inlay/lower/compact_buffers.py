"""Shrink buffers allocated inside loops to what is touched while they live.

    for i in 0..n { alloc t: f32[n, 64] stack         for i in 0..n { alloc t: f32[1, 64] stack
      for j in 0..64 { t[i, j] = ... } ... }    ->      for j in 0..64 { t[0, j] = ... } ... }

Along each axis the region of all accesses, over the loops inside the allocation, gives a first
element and an extent. An axis keeps its extent where that cannot be told (an index that is a division
or was loaded) or is not smaller.
"""

from __future__ import annotations

from inlay.arith.expr import Int, Sym, lit, symbols
from inlay.loop.buffer import Buffer
from inlay.loop.deps import Interval, hull
from inlay.loop.scalar import Load
from inlay.loop.stmt import Alloc, For, Let, Stmt, Store
from inlay.loop.walk import Rewrite, child_stmts, map_children, own_scalars, scalars_below

_Region = list[Interval | None]


def compact_buffers(s: Stmt) -> Stmt:
    """Return an equal statement with smaller buffers.

    Requires: no `Block`.
    """
    return _walk(s, inside_loop=False)


def _walk(s: Stmt, *, inside_loop: bool) -> Stmt:
    inner = inside_loop or isinstance(s, For)
    s = map_children(s, lambda child: _walk(child, inside_loop=inner))
    return _compacted(s) if isinstance(s, Alloc) and inside_loop else s


def _compacted(s: Alloc) -> Stmt:
    b = s.buffer
    found: list[_Region | None] = [None]
    _collect(s.body, b, {}, set(), found)
    region = found[0]
    if region is None:
        return s.body
    keep = [_keeps(x, n) for x, n in zip(region, b.shape, strict=True)]
    if all(keep):
        return s
    shape = tuple(
        n if k or x is None else x.extent for x, n, k in zip(region, b.shape, keep, strict=True)
    )
    new = Buffer(b.name, shape, b.dtype, b.scope, None, b.per_part)

    def access(buffer: Buffer, indices: tuple[Int, ...]) -> tuple[Buffer, tuple[Int, ...]]:
        if buffer is not b:
            return buffer, indices
        axes = zip(indices, region, keep, strict=True)
        return new, tuple(e if k or x is None else e - x.lo for e, x, k in axes)

    return Alloc(new, Rewrite(access=access).stmt(s.body))


def _keeps(x: Interval | None, n: Int) -> bool:
    """Whether an axis stays as it is."""
    if x is None:
        return True
    saved = (n - x.extent).value
    if saved is not None:
        return saved <= 0
    # A symbolic extent is taken for large: what one iteration touches is not larger.
    return x.extent.value is None


def _collect(
    s: Stmt,
    b: Buffer,
    inner: dict[Sym, tuple[Int, Int]],
    lets: set[Sym],
    found: list[_Region | None],
) -> None:
    if isinstance(s, For):
        inner = {**inner, s.var: (s.lo, s.extent)}
    if isinstance(s, Let):
        lets = lets | {s.sym}
    if isinstance(s, Store) and s.buffer is b:
        _include(s.indices, inner, lets, found)
    for value in own_scalars(s):
        for x in scalars_below(value):
            if isinstance(x, Load) and x.buffer is b:
                _include(x.indices, inner, lets, found)
    for child in child_stmts(s):
        _collect(child, b, inner, lets, found)


def _include(
    indices: tuple[Int, ...],
    inner: dict[Sym, tuple[Int, Int]],
    lets: set[Sym],
    found: list[_Region | None],
) -> None:
    here = [None if any(x in lets for x in symbols(e)) else hull(e, inner) for e in indices]
    before = found[0]
    found[0] = here if before is None else [_union(x, y) for x, y in zip(before, here, strict=True)]


def _union(x: Interval | None, y: Interval | None) -> Interval | None:
    if x is None or y is None:
        return None
    shift = (y.lo - x.lo).value
    if shift == 0 and x.extent == y.extent:
        return x
    end, other = x.extent.value, y.extent.value
    if shift is None or end is None or other is None:
        return None
    low, high = min(0, shift), max(end, shift + other)
    return Interval(x.lo + low, lit(high - low), dense=False)
