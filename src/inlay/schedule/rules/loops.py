"""The loops around the block of a contraction, by what they do."""

from __future__ import annotations

from collections.abc import Sequence

from inlay.arith.expr import symbols
from inlay.loop.stmt import IterKind
from inlay.schedule.primitives.merge import merge
from inlay.schedule.state import Schedule


def spatial_loops(s: Schedule, block: str) -> list[str]:
    """Return the loops over which a block does not reduce, outermost first."""
    reducing = set(reduce_loops(s, block))
    return [x for x in s.loops_of(block) if x not in reducing]


def reduce_loops(s: Schedule, block: str) -> list[str]:
    """Return the loops over which a block reduces, outermost first."""
    b = s.block(block)
    found = {
        x
        for i, binding in zip(b.iters, b.bindings, strict=True)
        if i.kind is IterKind.REDUCE
        for x in symbols(binding)
    }
    return [x for x in s.loops_of(block) if s.loop(x).var in found]


def merge_all(s: Schedule, nests: Sequence[Sequence[str]]) -> None:
    """Run neighboring nests of the same loops as one, from the outermost loop on."""
    for first, *others in zip(*nests, strict=True):
        for other in others:
            merge(s, first, other)
