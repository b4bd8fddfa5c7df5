"""The loops around the block of a contraction, by what they do."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from inlay.arith.expr import symbols
from inlay.loop.stmt import IterKind, LoopKind
from inlay.loop.walk import stores_of
from inlay.machine.target import Target
from inlay.schedule.primitives.annotate import annotate
from inlay.schedule.primitives.merge import merge
from inlay.schedule.state import Schedule

STEP_PRODUCTS = 48
"""Multiply-adds of vectors in a turn of the innermost loop over terms, about."""
MAX_STEPS = 4
"""Steps in a turn, at most."""


def spatial_loops(s: Schedule, block: str) -> list[str]:
    """Return the loops over which a block does not reduce, outermost first."""
    reducing = set(reduce_loops(s, block))
    return [x for x in s.loops_of(block) if x not in reducing]


def reduce_loops(s: Schedule, block: str, inside: str | None = None) -> list[str]:
    """Return the loops over which a block reduces, outermost first; those inside a loop if one is given."""
    b = s.block(block)
    found = {
        x
        for i, binding in zip(b.iters, b.bindings, strict=True)
        if i.kind is IterKind.REDUCE
        for x in symbols(binding)
    }
    loops = s.loops_of(block)
    within = loops if inside is None else loops[loops.index(inside) + 1 :]
    return [x for x in within if s.loop(x).var in found]


def divisors(count: int, least: int, most: int) -> list[int]:
    """Return what divides a number of iterations, from `least` to `most`, rising."""
    return [n for n in range(least, most + 1) if count % n == 0]


def merge_all(s: Schedule, nests: Sequence[Sequence[str]]) -> None:
    """Run neighboring nests of the same loops as one, from the outermost loop on."""
    for first, *others in zip(*nests, strict=True):
        for other in others:
            merge(s, first, other)


def write_out_steps(s: Schedule, block: str, target: Target) -> None:
    """Write out a few steps of a sum of floats for each turn of its innermost loop.

    What counts the turns and tests for their end takes places of multiply-adds.
    """
    dtype, loop = next(stores_of(s.block(block).body)).buffer.dtype, reduce_loops(s, block)[-1]
    if not dtype.is_float or s.loop(loop).kind is not LoopKind.SERIAL:
        return
    loops = s.loops_of(block)
    inside = [s.loop(x).extent.value for x in loops[loops.index(loop) + 1 :]]
    products = prod(e for e in inside if e is not None) // target.lanes(dtype.itemsize)
    most = s.loop(loop).extent.value or 2 * MAX_STEPS
    steps = max(1, min(STEP_PRODUCTS // max(products, 1), MAX_STEPS, most))
    steps = s.asked.pick(f"{block}.steps", steps, [n for n in (1, 2, 4, 8) if n <= most])
    if steps > 1:
        annotate(s, loop, "steps", str(steps))
