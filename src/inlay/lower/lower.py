"""Schedulable functions to lowered ones: the list of passes, in order.

    f = lower(f, target)
    f = lower(f, target, hooks=(Hook("simplify", narrow),))

    flatten_blocks      blocks to statements, predicates to branches
    partition_loops     full tiles apart from the last
    simplify            indices and conditions, by the ranges of loops
    trim_vectors        vectors of which a condition lets no lane through are left out
    compact_buffers     temporaries shrink to what is touched while they live
    drop_guards         lanes that nothing reads are computed, not left out
    exact_floats        sums of a few small integers in floats, clamps after rounding
    load_sides          both sides of selects that choose by lane, without a mask
    place_buffers       registers, stack, workspaces

The statements at the top of the result are its phases (see `loop.func`). A function that was written
as loops, and not scheduled, only has its buffers placed.

A *hook* is a pass of a back end behind one of these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from inlay.base.registry import unknown_name
from inlay.loop.func import LoopFunction, Stage
from inlay.loop.stmt import Stmt
from inlay.lower.compact_buffers import compact_buffers
from inlay.lower.drop_guards import drop_guards
from inlay.lower.exact_floats import exact_floats
from inlay.lower.flatten_blocks import flatten_blocks
from inlay.lower.load_sides import load_sides
from inlay.lower.partition_loops import partition_loops
from inlay.lower.place_buffers import place_buffers
from inlay.lower.simplify import simplify
from inlay.lower.trim_vectors import trim_vectors
from inlay.machine.target import Target

PASSES: Mapping[str, Callable[[Stmt, Target], Stmt]] = {
    "flatten_blocks": lambda s, _: flatten_blocks(s),
    "partition_loops": lambda s, _: partition_loops(s),
    "simplify": lambda s, _: simplify(s),
    "trim_vectors": trim_vectors,
    "compact_buffers": lambda s, _: compact_buffers(s),
    "drop_guards": lambda s, _: drop_guards(s),
}
"""In order; `place_buffers` comes last."""


@dataclass(frozen=True, slots=True)
class Hook:
    """A pass of a back end.

    Attributes:
        after: the name of a pass of `PASSES`; hooks behind one run in the order of the list.
        run: loops to loops.
    """

    after: str
    run: Callable[[Stmt, Target], Stmt]


def lower(f: LoopFunction, target: Target, hooks: Sequence[Hook] = ()) -> LoopFunction:
    """Return the lowered function.

    Args:
        f: schedulable, or lowered but for the places of its buffers.
        target: what it is lowered for.
        hooks: further passes.

    Raises:
        CompileError: `name.unknown` for a hook behind a pass that there is not.
    """
    for hook in hooks:
        if hook.after not in PASSES:
            raise unknown_name("pass of loops", hook.after, PASSES)
    body = f.body
    for name, run in PASSES.items() if f.stage is not Stage.LOWERED else ():
        body = run(body, target)
        for hook in hooks:
            body = hook.run(body, target) if hook.after == name else body
    if f.stage is not Stage.LOWERED:
        body = load_sides(exact_floats(body, target))
    body, workspaces = place_buffers(body, target)
    workspaces = (*f.workspaces, *workspaces)
    return LoopFunction(f.name, f.params, f.n_reads, f.dims, body, Stage.LOWERED, workspaces)
