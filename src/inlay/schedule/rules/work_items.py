"""Kernels for devices that run many work items at once: one point of the result each.

    for p in 0..m*n parallel {                 all spatial loops of a nest are one; its iterations
      acc = 0                                  are the work items, neighbors in the last axis, so
      for k in 0..K { acc += A[..] * B[..] }   that neighbors touch neighboring memory; reductions
      C[..] = acc }                            stay inside an item, in a register

Each nest is a phase of its own, because items of one nest may need results of all items of the one
before. `work_items` first merges nests over the same range that need each other point by point, and
keeps what they hand over in registers; `separate_items` merges nothing, for groups where that is not
legal. There are no vectors: the device makes them of items. No reduction is divided over items, so a
reduction over everything is one item: right, and slow.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from inlay.loop.buffer import Scope
from inlay.loop.stmt import Block, IterKind
from inlay.loop.walk import blocks_of, stores_of
from inlay.machine.target import Target
from inlay.schedule.primitives.annotate import annotate
from inlay.schedule.primitives.cache_write import cache_write
from inlay.schedule.primitives.decompose_reduction import decompose_reduction
from inlay.schedule.primitives.fuse import fuse
from inlay.schedule.primitives.merge import merge
from inlay.schedule.primitives.merge_axes import merge_axes
from inlay.schedule.primitives.parallel import parallel
from inlay.schedule.primitives.set_scope import set_scope
from inlay.schedule.rules.nests import require_no_reduction, work
from inlay.schedule.state import Illegal, Schedule


@dataclass(slots=True)
class _Nest:
    """Loops that become items, outermost first, and what is left to do inside.

    Attributes:
        reductions: blocks whose first value is still set where the reduction begins.
    """

    loops: list[str]
    reductions: list[str] = field(default_factory=list[str])


def point_items(s: Schedule, target: Target) -> None:
    """Schedule a function without reductions: for processors that pretend to be such devices.

    Their compilers make vectors of neighboring items as long as an item is a few operations; what
    reduces runs several times as fast with vectors of its own (`contraction`, `rows`).

    Raises:
        Illegal: it has a reduction.
    """
    require_no_reduction(s)
    work_items(s, target)


def work_items(s: Schedule, target: Target) -> None:  # noqa: ARG001
    """Schedule a function of nests, with as few phases as their dependences allow."""
    _schedule(s, _merged)


def separate_items(s: Schedule, target: Target) -> None:  # noqa: ARG001
    """Schedule a function of nests, each a phase."""
    _schedule(s, lambda s, nests: nests)


def _schedule(s: Schedule, merged: Callable[[Schedule, list[_Nest]], list[_Nest]]) -> None:
    merge_axes(s)
    nests = [_nest(s, block) for block in list(blocks_of(s.body))]
    for nest in merged(s, nests):
        if nest.loops:
            _share(s, nest)
        for name in nest.reductions:
            n = len(_spatial(s.block(name)))
            loops = s.loops_of(name)
            decompose_reduction(s, name, loops[1 if nest.loops else n])


def _share(s: Schedule, nest: _Nest) -> None:
    """Make items of the loops of a nest."""
    outer = nest.loops[0]
    for inner in nest.loops[1:]:
        outer = fuse(s, outer, inner)
    parallel(s, outer)
    per_item = work(s.loop(outer).body)
    if per_item is not None:
        annotate(s, outer, "work", str(per_item))


def _spatial(block: Block) -> list[object]:
    return [i for i in block.iters if i.kind is IterKind.SPATIAL]


def _nest(s: Schedule, block: Block) -> _Nest:
    """Put a reduction into a register where that can be."""
    name, n = block.name, len(_spatial(block))
    if block.init is None:
        return _Nest(list(s.loops_of(name)[:n]))
    if not n:
        return _Nest([], [name])
    try:
        copy = cache_write(s, name, "register")
    except Illegal:
        return _Nest(list(s.loops_of(name)[:n]), [name])
    loops = s.loops_of(name)
    decompose_reduction(s, name, loops[n])
    for a, b in zip(loops[:n], s.loops_of(copy), strict=True):
        merge(s, a, b)
    set_scope(s, next(stores_of(s.block(name).body)).buffer.name, "register", at=loops[n - 1])
    return _Nest(list(loops[:n]))


# --------------------------------------------------------------------------- merging


def _merged(s: Schedule, nests: list[_Nest]) -> list[_Nest]:
    """Merge neighbors over the same range where each point needs only itself."""
    left: list[_Nest] = []
    for nest in nests:
        if left and _merge_all(s, left[-1], nest):
            left[-1].reductions += nest.reductions
        else:
            left.append(nest)
    for nest in left:
        if nest.loops:
            _own_temporaries(s, nest.loops[-1])
    return left


def _merge_all(s: Schedule, a: _Nest, b: _Nest) -> bool:
    """Merge two nests loop by loop, or not at all."""
    extents = [[s.loop(x).extent for x in nest.loops] for nest in (a, b)]
    if not a.loops or extents[0] != extents[1]:
        return False
    try:
        merge(s, a.loops[0], b.loops[0])
    except Illegal:
        return False
    for x, y in zip(a.loops[1:], b.loops[1:], strict=True):
        merge(s, x, y)
    return True


def _own_temporaries(s: Schedule, innermost: str) -> None:
    """Keep what only the blocks of one nest use in registers of an item."""
    names = {x.buffer.name for x in s.accesses(s.loop(innermost))}
    for name in sorted(names):
        if s.buffer(name).scope == Scope.WORKSPACE:
            try:
                set_scope(s, name, "register", at=innermost)
            except Illegal:
                continue
