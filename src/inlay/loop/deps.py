"""What blocks touch: accesses over loop variables, and the regions that inner loops sweep.

The **hull** of an index over some loops is the interval it takes while those loops run and all others
stand still: a first element, over the outer variables, and an extent. It is exact (*dense*: every
element is met) when the index is a sum of variables in which each stride is at most the span of the
smaller ones, as after splits. An index that is no such sum (a division, a gathered index) has no hull,
and whoever asks must refuse.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import permutations
from typing import NamedTuple

from inlay.arith.bounds import bounds
from inlay.arith.expr import Int, Min, Sym, ceildiv, coefficient, lit, substitute, symbols, to_int
from inlay.loop.buffer import Buffer
from inlay.loop.ranges import Bounds
from inlay.loop.scalar import Load
from inlay.loop.stmt import Block, For, Stmt, Store
from inlay.loop.walk import Rewrite, child_stmts, own_scalars, scalars_below, stmts_below

Ranges = Mapping[Sym, tuple[Int, Int]]
"""Loop variables to their first value and extent."""


class BlockAccess(NamedTuple):
    """One load or store of a block, its indices over the loops around it.

    Attributes:
        loops: the loops around the block, outermost first.
        order: position among the accesses of the statement that was asked.
        gathers: an index mentions a value that was loaded.
    """

    block: Block
    buffer: Buffer
    indices: tuple[Int, ...]
    writes: bool
    loops: tuple[For, ...]
    order: int
    gathers: bool


class Interval(NamedTuple):
    """`lo .. lo + extent`; `dense` when each element is met."""

    lo: Int
    extent: Int
    dense: bool


Touched = tuple[tuple[Buffer, tuple[Int, ...], bool, bool], ...]
"""Buffer, indices over loops, whether it is a store, whether an index was loaded."""


def accesses(
    s: Stmt, known: dict[Block, Touched] | None = None, only: Buffer | None = None
) -> list[BlockAccess]:
    """Return what the blocks in a statement touch, in order; of a block, loads before stores.

    Args:
        s: the statement.
        known: remembers what each block touches, for callers that ask often.
        only: leave out other buffers.
    """
    found: list[BlockAccess] = []
    for block, loops in _blocks(s):
        touched = None if known is None else known.get(block)
        if touched is None:
            touched = _over_loops(block)
            if known is not None:
                known[block] = touched
        for buffer, indices, writes, gathers in touched:
            if only is not None and buffer is not only:
                continue
            found.append(BlockAccess(block, buffer, indices, writes, loops, len(found), gathers))
    return found


def _over_loops(block: Block) -> Touched:
    at = Rewrite({i.sym: b for i, b in zip(block.iters, block.bindings, strict=True)})
    iters = {i.sym for i in block.iters}
    return tuple(
        (buffer, at.ints(e), writes, not all(x in iters for i in e for x in symbols(i)))
        for buffer, e, writes in _touched(block)
    )


def _blocks(s: Stmt) -> Iterator[tuple[Block, tuple[For, ...]]]:
    pending: list[tuple[Stmt, tuple[For, ...]]] = [(s, ())]
    while pending:
        top, loops = pending.pop()
        if isinstance(top, Block):
            yield top, loops
            continue
        inner = (*loops, top) if isinstance(top, For) else loops
        pending.extend((child, inner) for child in reversed(child_stmts(top)))


def _touched(block: Block) -> Iterator[tuple[Buffer, tuple[Int, ...], bool]]:
    parts = (block.body,) if block.init is None else (block.init, block.body)
    stores: list[Store] = []
    for part in parts:
        for s in stmts_below(part):
            if isinstance(s, Store):
                stores.append(s)
            for value in own_scalars(s):
                for x in scalars_below(value):
                    if isinstance(x, Load):
                        yield x.buffer, x.indices, False
    for s in stores:
        yield s.buffer, s.indices, True


def ranges(loops: Iterable[For]) -> dict[Sym, tuple[Int, Int]]:
    """Return the ranges of loops."""
    return {x.var: (x.lo, x.extent) for x in loops}


def hull(e: Int, inner: Ranges) -> Interval | None:
    """Return the interval of an index while the loops of `inner` run; None when it has none."""
    strides: list[tuple[int, Int]] = []
    e, inner = _whole_loops(e, inner)
    lo = e
    for monomial, c in e.terms:
        if len(monomial) == 1 and type(monomial[0]) is Sym:
            swept = inner.get(monomial[0])
            if swept is None:
                continue
        elif any(s in inner for atom in monomial for s in _atom_symbols(atom)):
            return None
        else:
            continue
        first, extent = swept
        if first.value is None and any(s in inner for s in symbols(first)):
            return None
        start = first if c > 0 else first + extent - 1
        lo = lo + Int(((monomial, -c),))
        if start != 0:
            lo = lo + start * c
        if extent != 1:
            strides.append((abs(c), extent))
    if not strides:
        return Interval(lo, _ONE, dense=True)
    span, dense = _ONE, True
    strides.sort(key=lambda x: x[0])
    for stride, extent in strides:
        reach = (span - stride).value
        dense = dense and (reach is not None and reach >= 0)
        span = span + (extent - 1) * stride
    return Interval(lo, span, dense)


def _whole_loops(e: Int, inner: Ranges) -> tuple[Int, Ranges]:
    """Return an index over fewer loops: two that together count to a number are one.

    A loop that was split and clipped, `o in 0..ceil(n / size)` and inside it `i in 0..min(size, n - size*o)`,
    takes with `size*o + i` each value below n once.
    """
    found = dict(inner)
    for sym, (first, extent) in inner.items():
        whole = _clipped(extent, found) if first == 0 else None
        if whole is None:
            continue
        outer, size, n = whole
        stride = coefficient(e, sym)
        if stride is None or coefficient(e, outer) != stride * size:
            continue
        others = (end for s, r in found.items() if s not in (sym, outer) for end in r)
        if any(outer in symbols(end) for end in others):
            continue
        e = e - to_int(outer) * (stride * size)
        del found[outer]
        found[sym] = (first, n)
    return e, found


def _clipped(extent: Int, inner: Ranges) -> tuple[Sym, int, Int] | None:
    """Return `o`, `size` and `n` of an extent `min(size, n - size*o)` where `o` counts all steps of n."""
    atoms = [a for monomial, c in extent.terms for a in monomial if c == 1]
    if len(extent.terms) != 1 or len(atoms) != 1 or not isinstance(atoms[0], Min):
        return None
    for o in symbols(extent):
        for size, rest in permutations(atoms[0].args, 2):
            if o not in inner or size.value is None or coefficient(rest, o) != -size.value:
                continue
            n = rest + to_int(o) * size.value
            if o not in symbols(n) and inner[o] == (0, ceildiv(n, size)) and len(atoms[0].args) == 2:
                return o, size.value, n
    return None


def joined(x: Interval, y: Interval) -> Interval | None:
    """Return the least interval that has both; None where their distance or an extent is no number."""
    shift = (y.lo - x.lo).value
    if shift == 0 and x.extent == y.extent:
        return x
    end, other = x.extent.value, y.extent.value
    if shift is None or end is None or other is None:
        return None
    low, high = min(0, shift), max(end, shift + other)
    return Interval(x.lo + low, lit(high - low), dense=False)


_ONE = lit(1)


def _atom_symbols(atom: object) -> tuple[Sym, ...]:
    if isinstance(atom, Sym):
        return (atom,)
    return symbols(Int((((atom,), 1),)))  # type: ignore[arg-type]


def inside(access: BlockAccess, loop: For | None) -> dict[Sym, tuple[Int, Int]]:
    """Return the ranges of the loops around an access that are inside `loop` (None = all)."""
    if loop is None:
        return ranges(access.loops)
    return ranges(access.loops[access.loops.index(loop) + 1 :])


def region(access: BlockAccess, loop: For | None) -> tuple[Interval, ...] | None:
    """Return what an access sweeps in one iteration of `loop`; None when it cannot be told."""
    found = intervals(access, loop)
    return None if any(x is None for x in found) else tuple(x for x in found if x is not None)


def intervals(access: BlockAccess, loop: For | None) -> tuple[Interval | None, ...]:
    """Return what an access sweeps along each axis in one iteration of `loop`, None where unknown."""
    if access.gathers:
        return (None,) * len(access.indices)
    around = 0 if loop is None else access.loops.index(loop) + 1
    loops = tuple((x.var, x.lo, x.extent) for x in access.loops)
    return _intervals(access.indices, loops, around)


@lru_cache(maxsize=4096)
def _intervals(
    indices: tuple[Int, ...], loops: tuple[tuple[Sym, Int, Int], ...], around: int
) -> tuple[Interval | None, ...]:
    """Return the intervals of indices in loops of which so many stand still: each step of a schedule asks."""
    inner = {var: (lo, extent) for var, lo, extent in loops[around:]}
    known = _bounds(loops)
    return tuple(hull(known.simplify(e), inner) for e in indices)


@lru_cache(maxsize=256)
def _bounds(loops: tuple[tuple[Sym, Int, Int], ...]) -> Bounds:
    return Bounds({var: (lo, extent) for var, lo, extent in loops})


def covers(
    outer: tuple[Interval, ...] | None, inner: tuple[Interval, ...] | None, shape: tuple[Int, ...]
) -> bool:
    """Whether all elements of a buffer of `shape` that are in `inner` are certainly in `outer`.

    Regions may reach beyond the buffer, where tiles do; the accesses do not.
    """
    if outer is None or inner is None:
        return False
    nothing = Bounds()
    for a, b, n in zip(outer, inner, shape, strict=True):
        if not a.dense:
            return False
        if not (nothing.at_least(b.lo - a.lo, 0) or nothing.at_least(-a.lo, 0)):
            return False
        end = a.lo + a.extent
        if not (nothing.at_least(end - b.lo - b.extent, 0) or nothing.at_least(end - n, 0)):
            return False
    return True


def iteration_dim(found: Sequence[tuple[Sequence[Interval | None], Sym]]) -> int | None:
    """Return an axis along which iterations of loops are disjoint, None if there is none.

    `found` has, for each access to one buffer, the intervals of one iteration and the variable of its
    loop. Along the axis every region must lie in its own tile `[c*var + r, c*(var + 1) + r)` with
    the same `c` and `r` for all: then different iterations never meet.
    """
    first, var = found[0]
    for axis, own in enumerate(first):
        stride = None if own is None else _stride(own.lo, var)
        if own is None or stride is None or stride <= 0:
            continue
        start = own.lo - to_int(var) * stride
        spans = [_span(r[axis], v, stride, start) for r, v in found]
        lows = [x[0] for x in spans if x is not None]
        highs = [x[1] for x in spans if x is not None]
        if len(lows) == len(found) and max(highs) - min(lows) <= stride:
            return axis
    return None


def _stride(lo: Int, var: Sym) -> int | None:
    found = 0
    for monomial, c in lo.terms:
        if monomial == (var,):
            found = c
        elif any(var in _atom_symbols(atom) for atom in monomial):
            return None
    return found


def _span(x: Interval | None, var: Sym, stride: int, start: Int) -> tuple[int, int] | None:
    """Return an interval relative to the tile of the iteration, when numbers bound it."""
    if x is None or _stride(x.lo, var) != stride:
        return None
    low, extent = (x.lo - to_int(var) * stride - start).value, bounds(x.extent, {}).high
    return None if low is None or extent is None else (low, low + extent)


def renamed(found: tuple[Interval, ...], old: Sym, new: Sym) -> tuple[Interval, ...]:
    """Return a region with one loop variable called otherwise."""
    mapping = {old: to_int(new)}
    return tuple(Interval(substitute(x.lo, mapping), x.extent, x.dense) for x in found)


def apart(a: tuple[Interval, ...] | None, b: tuple[Interval, ...] | None) -> bool:
    """Whether two regions of one buffer certainly have no element in common."""
    if a is None or b is None:
        return False
    nothing = Bounds()
    return any(
        nothing.at_least(y.lo - x.lo - x.extent, 0) or nothing.at_least(x.lo - y.lo - y.extent, 0)
        for x, y in zip(a, b, strict=True)
    )
