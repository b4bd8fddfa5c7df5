"""A loop function: parameters, dims and a body. One kernel is one loop function.

The statement sequence at the top of a lowered function is its **phases**: each outermost PARALLEL
loop is one phase that all threads share, with a barrier after it; the statements between are phases
that one thread runs. Calling convention of a phase (see `bytecode`):

    void phase(void *const *buffers, const int64_t *ints, int64_t part, int64_t parts)

`buffers`: the parameters in order, then workspaces. `ints`: values of `dims`, in order. A parallel
phase runs iterations `[extent*part/parts, extent*(part+1)/parts)`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from inlay.arith.expr import Sym
from inlay.loop.buffer import Buffer
from inlay.loop.stmt import Stmt


class Stage(StrEnum):
    """Which forms of statements are legal."""

    SCHEDULABLE = "schedulable"
    LOWERED = "lowered"


@dataclass(frozen=True, slots=True, eq=False)
class LoopFunction:
    """A function over buffers.

    Attributes:
        name: a C identifier.
        params: buffers the caller gives: first those read, then those written.
        n_reads: how many of `params` are read-only.
        dims: integer arguments; every symbol of the buffers' shapes is over these.
        body: the computation.
        stage: schedulable or lowered.
        workspaces: WORKSPACE buffers that lowering moved out of the body, in ABI order.
    """

    name: str
    params: tuple[Buffer, ...]
    n_reads: int
    dims: tuple[Sym, ...]
    body: Stmt
    stage: Stage = Stage.SCHEDULABLE
    workspaces: tuple[Buffer, ...] = ()
