"""Drop axes of one element, and make one axis of neighbors that are only walked together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from inlay.arith.expr import Int, Sym, lit, symbols, to_int
from inlay.loop.buffer import Buffer
from inlay.loop.scalar import Index, Load
from inlay.loop.stmt import Alloc, Block, BlockIter, For, IterKind, LoopKind, Seq, Stmt, Store
from inlay.loop.walk import Rewrite, own_scalars, scalars_below, seq, stmts_below
from inlay.schedule.state import Schedule, illegal, primitive

_Pair = tuple[Sym, Sym]
_Access = tuple[Buffer, tuple[Int, ...]]


@primitive
def merge_axes(s: Schedule, *, known: bool = False) -> None:
    """Give every buffer and nest of a function as few axes as its accesses allow.

    Before:

        for i in 0..n { for j in 0..m {
          block b(u: spatial n = i, v: spatial m = j) { y[u, v] = x[u, v] } } }

    After `merge_axes(s)`:

        schedulable func f(x: f32[n*m]) -> (y: f32[n*m]) over (n, m) {
          for i in 0..n*m { block b(u: spatial n*m = i) { y[u] = x[u] } } }

    Two neighboring axes become one when every access to the buffer walks both with two iters of its
    block, and these iters occur only so. An axis of extent 1 goes away. The bytes of a buffer do not
    change, so a kernel cannot tell: axes of a window of a larger tensor become one only where their
    elements lie one behind the other.

    Applies to a function as `from_te` made it: one nest of loops around each block.

    Args:
        s: the schedule.
        known: leave axes alone whose extents are not known: what they are merged with would not be known.

    Raises:
        Illegal: `schedule.not-nested`.
    """
    temporaries, nests = _parts(s.body)
    plan = _Plan(s.function.params, temporaries, [b for b, _ in nests], known=known)
    buffers = plan.buffers
    body = seq(*(_nest(block, loops, plan) for block, loops in nests))
    for b in reversed(temporaries):
        body = Alloc(buffers[b], body)
    s.set_params(tuple(buffers[b] for b in s.params))
    s.set_body(body)


def _are_one(b: Buffer, outer: int, inner: int) -> bool:
    """Whether elements along two axes are one behind the other: of a window they may not be."""
    return b.strides is None or b.strides[outer] == b.strides[inner] * b.shape[inner]


def _parts(body: Stmt) -> tuple[list[Buffer], list[tuple[Block, list[Sym]]]]:
    temporaries: list[Buffer] = []
    while isinstance(body, Alloc):
        temporaries.append(body.buffer)
        body = body.body
    nests: list[tuple[Block, list[Sym]]] = []
    for s in body.stmts if isinstance(body, Seq) else (body,):
        loops: list[Sym] = []
        while isinstance(s, For) and s.kind is LoopKind.SERIAL and s.lo == 0:
            loops.append(s.var)
            s = s.body
        if not isinstance(s, Block) or s.bindings != tuple(map(to_int, loops)):
            raise illegal("not-nested", "found a function that was scheduled before")
        nests.append((s, loops))
    return temporaries, nests


def _accesses(block: Block) -> Iterator[_Access]:
    for part in (block.body,) if block.init is None else (block.init, block.body):
        for s in stmts_below(part):
            if isinstance(s, Store):
                yield s.buffer, s.indices
            for value in own_scalars(s):
                for x in scalars_below(value):
                    if isinstance(x, Load):
                        yield x.buffer, x.indices


def _elsewhere(block: Block) -> Iterator[Sym]:
    """Yield the iters that are used as numbers."""
    for part in (block.body,) if block.init is None else (block.init, block.body):
        for s in stmts_below(part):
            for value in own_scalars(s):
                for x in scalars_below(value):
                    if isinstance(x, Index):
                        yield from symbols(x.value)


@dataclass(slots=True)
class _BlockPlan:
    """What happens to the iters of a block.

    Attributes:
        units: iters of one point, to 0.
        pairs: neighboring iters that become one.
        accesses: with `units` replaced.
    """

    block: Block
    units: dict[Sym, Int]
    pairs: set[_Pair]
    accesses: list[_Access]


class _Plan:
    """Decides for all blocks and buffers at once, by taking away what does not agree."""

    def __init__(
        self, params: Sequence[Buffer], temporaries: Sequence[Buffer], blocks: Sequence[Block], *, known: bool
    ) -> None:
        self._known = known
        self._blocks = {block: self._start(block) for block in blocks}
        everything = [*params, *temporaries]
        self._kept = {b: [d for d, n in enumerate(b.shape) if n != 1] for b in everything}
        self._joined = {b: [_are_one(b, *pair) for pair in pairwise(k)] for b, k in self._kept.items()}
        for plan in self._blocks.values():
            plan.accesses = [(b, tuple(e[d] for d in self._kept[b])) for b, e in plan.accesses]
        while self._take_away():
            pass
        self.buffers = {b: self._buffer(b) for b in everything}

    def _start(self, block: Block) -> _BlockPlan:
        units = {i.sym: lit(0) for i in block.iters if i.extent == 1}
        left = [i for i in block.iters if i.extent != 1]
        used = set(_elsewhere(block))
        pairs = {
            (a.sym, b.sym)
            for a, b in pairwise(left)
            if a.kind is b.kind and a.sym not in used and b.sym not in used
            if not self._known or (a.extent.value is not None and b.extent.value is not None)
        }
        at = Rewrite(units)
        accesses = [(b, at.ints(indices)) for b, indices in _accesses(block)]
        return _BlockPlan(block, units, pairs, accesses)

    def _take_away(self) -> bool:
        changed = False
        for plan in self._blocks.values():
            for pair in sorted(plan.pairs, key=lambda p: p[0].uid):
                if not all(self._walks(plan, pair, b, e) for b, e in plan.accesses):
                    plan.pairs.discard(pair)
                    changed = True
            for b, e in plan.accesses:
                for d, joined in enumerate(self._joined[b]):
                    if joined and (e[d].atom, e[d + 1].atom) not in plan.pairs:
                        self._joined[b][d] = False
                        changed = True
        return changed

    def _walks(self, plan: _BlockPlan, pair: _Pair, b: Buffer, indices: tuple[Int, ...]) -> bool:
        """Whether an access mentions both iters, side by side and in full, or neither."""
        first, second = pair
        extent = next(i.extent for i in plan.block.iters if i.sym == second)
        d = 0
        while d < len(indices):
            if indices[d].atom == first:
                if not self._steps(b, d, indices, second, extent):
                    return False
                d += 2
                continue
            if any(x in pair for x in symbols(indices[d])):
                return False
            d += 1
        return True

    def _steps(self, b: Buffer, d: int, indices: tuple[Int, ...], second: Sym, extent: Int) -> bool:
        return (
            d + 1 < len(indices)
            and self._joined[b][d]
            and indices[d + 1].atom == second
            and b.shape[self._kept[b][d + 1]] == extent
        )

    # ---------------------------------------------------------------- results

    def _groups(self, b: Buffer) -> list[list[int]]:
        groups: list[list[int]] = []
        for position in range(len(self._kept[b])):
            if position and self._joined[b][position - 1]:
                groups[-1].append(position)
            else:
                groups.append([position])
        return groups

    def _buffer(self, b: Buffer) -> Buffer:
        shape: list[Int] = []
        for group in self._groups(b):
            size = lit(1)
            for position in group:
                size = size * b.shape[self._kept[b][position]]
            shape.append(size)
        same = tuple(shape) == b.shape
        if same:
            return b
        steps = b.strides and tuple(b.strides[self._kept[b][group[-1]]] for group in self._groups(b))
        return replace(b, shape=tuple(shape), strides=steps)

    def iters(self, block: Block) -> list[list[BlockIter]]:
        """Return the iters that become one, in groups."""
        plan = self._blocks[block]
        groups: list[list[BlockIter]] = []
        for i in block.iters:
            if i.sym in plan.units:
                continue
            if groups and (groups[-1][-1].sym, i.sym) in plan.pairs:
                groups[-1].append(i)
            else:
                groups.append([i])
        return groups

    def rewrite(self, block: Block) -> Rewrite:
        """Return the rewriting of a block's body."""

        def access(b: Buffer, indices: tuple[Int, ...]) -> _Access:
            kept = [indices[d] for d in self._kept[b]]
            return self.buffers[b], tuple(kept[group[0]] for group in self._groups(b))

        return Rewrite(self._blocks[block].units, access=access)


def _nest(block: Block, loops: list[Sym], plan: _Plan) -> Stmt:
    groups = plan.iters(block)
    rewrite = plan.rewrite(block)
    var_of = {i.sym: var for i, var in zip(block.iters, loops, strict=True)}
    iters: list[BlockIter] = []
    for group in groups:
        extent = lit(1)
        for i in group:
            extent = extent * i.extent
        iters.append(BlockIter(group[0].sym, extent, group[0].kind))
    init = None if block.init is None else rewrite.stmt(block.init)
    body = rewrite.stmt(block.body)
    if init is not None and all(i.kind is IterKind.SPATIAL for i in iters):
        # Every axis of the reduction had one point: it starts and updates at once.
        init, body = None, seq(init, body)
    bindings = tuple(to_int(var_of[i.sym]) for i in iters)
    result: Stmt = Block(block.name, tuple(iters), bindings, body, init)
    for i in reversed(iters):
        result = For(var_of[i.sym], lit(0), i.extent, LoopKind.SERIAL, result)
    return result
