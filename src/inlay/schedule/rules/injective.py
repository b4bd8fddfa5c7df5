"""Element-wise, broadcast and layout kernels: no block reduces.

    for i in 0..(n + 63) / 64 parallel {       after `merge_axes`, each nest has few axes; the last
      for u in 0..4 unroll {                   becomes vectors, the first is shared by the threads
        for v in 0..16 vector { y[64*i + 16*u + v] = ... } } }

Nests that walk the same range in the same way are merged, so that several results of one group take
one pass.
"""

from __future__ import annotations

from inlay.loop.walk import blocks_of
from inlay.machine.target import Target
from inlay.schedule.primitives.fuse import fuse
from inlay.schedule.primitives.merge import merge
from inlay.schedule.primitives.merge_axes import merge_axes
from inlay.schedule.rules.nests import is_strided, parallelize, require_no_reduction, vectorize_cases
from inlay.schedule.rules.shared_places import share_places
from inlay.schedule.rules.short_rows import rows_side_by_side
from inlay.schedule.state import Illegal, Schedule

FEW_ITERATIONS = 8
"""An outermost loop with fewer iterations is fused with the next, to have enough to share."""


def injective(s: Schedule, target: Target) -> None:
    """Schedule a function without reductions.

    Raises:
        Illegal: it has one.
    """
    require_no_reduction(s)
    merge_axes(s)
    for block in s.block_names():
        vectorize_points(s, block, target)
    # What was peeled off a nest has one of its own.
    nests = [s.loops_of(block) for block in s.block_names()]
    for loop in _merged(s, list(dict.fromkeys(x[0] for x in nests if x))):
        parallelize(s, loop)


def vectorize_points(s: Schedule, block: str, target: Target) -> str | None:
    """Put vectors into the nest of a block that does not reduce.

    Returns:
        The outermost loop, for threads to share; None where the block computes one element.
    """
    loops = s.loops_of(block)
    if not loops:
        return None
    shuffles = is_strided(s.block(block), s.loop(loops[-1]).var)
    if not rows_side_by_side(s, block, target):
        vectorize_cases(s, loops[-1], target)
    if len(loops) > 1 and loops[-2] in s.loops_of(block):  # tiles that are transposed are cut of both loops
        share_places(s, block, loops[-2])
    outer = list(s.loops_of(block))
    while len(outer) > 3 and _is_open(s, outer[0], outer[1]):
        # Full vectors are to have no condition where elements are shuffled, which takes them apart.
        outer[:2] = [fuse(s, outer[0], outer[1], keeps=shuffles and len(outer) == 4)]
    return outer[0]


def _is_open(s: Schedule, outer: str, inner: str) -> bool:
    """Whether a loop runs a few times around another of which nobody knows how often it does.

    Fused they are enough to be shared. Where that is known, `parallelize` sees to it. Of several blocks
    iterations are not known to be apart any more.
    """
    around, inside = s.loop(outer), s.loop(inner)
    is_short = around.extent.value is not None and around.extent.value < FEW_ITERATIONS
    is_one = around.body is inside and len(list(blocks_of(inside))) == 1
    return is_short and is_one and inside.extent.value is None


def _merged(s: Schedule, loops: list[str]) -> list[str]:
    """Merge neighbors where that is legal, and return the loops that are left."""
    left = loops[:1]
    for loop in loops[1:]:
        try:
            merge(s, left[-1], loop)
        except Illegal:
            left.append(loop)
    return left
