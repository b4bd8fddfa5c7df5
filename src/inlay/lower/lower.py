"""Schedulable functions to lowered ones: the list of passes, in order.

    flatten_blocks      blocks to statements, predicates to branches
    partition_loops     full tiles apart from the last
    simplify            indices and conditions, by the ranges of loops
    compact_buffers     temporaries shrink to what is touched while they live
    place_buffers       registers, stack, workspaces

The statements at the top of the result are its phases (see `loop.func`).
"""

from __future__ import annotations

from inlay.loop.func import LoopFunction, Stage
from inlay.lower.compact_buffers import compact_buffers
from inlay.lower.flatten_blocks import flatten_blocks
from inlay.lower.partition_loops import partition_loops
from inlay.lower.place_buffers import place_buffers
from inlay.lower.simplify import simplify


def lower(f: LoopFunction) -> LoopFunction:
    """Return the lowered function; one that is lowered already is returned as it is."""
    if f.stage is Stage.LOWERED:
        return f
    body = compact_buffers(simplify(partition_loops(flatten_blocks(f.body))))
    body, workspaces = place_buffers(body)
    return LoopFunction(f.name, f.params, f.n_reads, f.dims, body, Stage.LOWERED, workspaces)
