"""Shrink temporaries to what is touched while they live.

    for i in 0..n { alloc t: f32[n, 64] @stack         for i in 0..n { alloc t: f32[1, 64] @stack
      for j in 0..64 { t[i, j] = ... } ... }    ->      for j in 0..64 { t[0, j] = ... } ... }

Along each axis the region of all accesses, over the loops inside the allocation, gives a first
element and an extent. An axis keeps its extent where that cannot be told (an index that is a division
or was loaded) or is not smaller.

All buffers are done in two walks: one collects the regions, the other rewrites.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from inlay.arith.expr import Int, Sym, lit, symbols
from inlay.loop.buffer import Buffer, Scope
from inlay.loop.deps import Interval, hull, joined
from inlay.loop.scalar import Dot, Load
from inlay.loop.stmt import Alloc, For, Let, Stmt, Store
from inlay.loop.walk import Rewrite, child_stmts, own_scalars, scalars_below

_Region = list[Interval | None]
_Ranges = dict[Sym, tuple[Int, Int]]


def compact_buffers(s: Stmt) -> Stmt:
    """Return an equal statement with smaller buffers; the same if there is nothing to shrink.

    Requires: no `Block`.
    """
    found = _Regions()
    found.walk(s, {})
    moved: dict[Buffer, tuple[Buffer, list[Int | None]]] = {}
    for b, region in found.of.items():
        smaller = _smaller(b, region)
        if smaller is not None:
            moved[b] = smaller
    if not moved:
        return s

    def access(b: Buffer, indices: tuple[Int, ...]) -> tuple[Buffer, tuple[Int, ...]]:
        to = moved.get(b)
        if to is None:
            return b, indices
        axes = zip(indices, to[1], strict=True)
        return to[0], tuple([e if lo is None else e - lo for e, lo in axes])

    return Rewrite(buffers={b: new for b, (new, _) in moved.items()}, access=access).stmt(s)


def _smaller(b: Buffer, region: _Region | None) -> tuple[Buffer, list[Int | None]] | None:
    """Return the buffer to have instead, and what to subtract from each index."""
    if region is None:  # what would have touched it never runs
        return Buffer(b.name, (lit(1),) * len(b.shape), b.dtype, b.scope, None, b.per_part), []
    grows = b.scope == Scope.REGISTER
    origins = [None if x is None or _keeps(x, n, grows=grows) else x.lo for x, n in zip(region, b.shape)]
    if all(lo is None for lo in origins):
        return None
    shape = tuple(
        n if lo is None or x is None else x.extent for x, n, lo in zip(region, b.shape, origins, strict=True)
    )
    return Buffer(b.name, shape, b.dtype, b.scope, None, b.per_part), origins


def _keeps(x: Interval, n: Int, *, grows: bool) -> bool:
    """Whether an axis stays as it is.

    Registers grow to what vector loops reach, lanes that a predicate turns off included: cells are
    whole vectors.
    """
    saved = (n - x.extent).value
    if saved is not None:
        return saved == 0 or (saved < 0 and not grows)
    # A symbolic extent is taken for large: what one iteration touches is not larger.
    return x.extent.value is None


@dataclass(slots=True)
class _Regions:
    """Collects what is touched of each buffer that is allocated.

    Also where no loop is around: one that runs once is gone by now, and its buffer has to be as small
    as in the others (registers are cells of one vector each).

    Attributes:
        of: the region; None before the first access.
        lets: symbols bound by lets: an index that mentions one cannot be told.
    """

    of: dict[Buffer, _Region | None] = field(default_factory=dict[Buffer, "_Region | None"])
    lets: set[Sym] = field(default_factory=set[Sym])

    def walk(self, s: Stmt, live: dict[Buffer, _Ranges]) -> None:
        """Visit a statement; `live` maps allocated buffers to the loops inside the allocation."""
        if isinstance(s, For):
            live = {b: {**inner, s.var: (s.lo, s.extent)} for b, inner in live.items()}
        elif isinstance(s, Alloc):
            self.of[s.buffer] = None
            live = {**live, s.buffer: {}}
        elif isinstance(s, Let):
            self.lets.add(s.sym)
        elif isinstance(s, Store):
            self._include(s.buffer, s.indices, live)
        if live:
            for value in own_scalars(s):
                for x in scalars_below(value):
                    if isinstance(x, Dot):
                        live = {b: {**inner, x.sym: (lit(0), lit(x.width))} for b, inner in live.items()}
                    elif isinstance(x, Load):
                        self._include(x.buffer, x.indices, live)
        for child in child_stmts(s):
            self.walk(child, live)

    def _include(self, b: Buffer, indices: tuple[Int, ...], live: dict[Buffer, _Ranges]) -> None:
        inner = live.get(b)
        if inner is None:
            return
        here: _Region = [None if self._is_loaded(e) else hull(e, inner) for e in indices]
        before = self.of[b]
        self.of[b] = (
            here
            if before is None
            else [None if x is None or y is None else joined(x, y) for x, y in zip(before, here, strict=True)]
        )

    def _is_loaded(self, e: Int) -> bool:
        return bool(self.lets) and any(x in self.lets for x in symbols(e))
