"""What a caller of a lowered function sees, in any language: phases, workspaces, assertions.

The statements at the top of a lowered function are its *phases* (see `loop.func`). All parts of a
phase end before the next phase begins; its workspaces lie in one block that the caller gives; and a
phase answers 0 or the number of the assertion that failed, from 1, in the order of `assertions_of`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from inlay.arith.expr import Int, ceildiv, lit
from inlay.ir.kernel import Workspace
from inlay.loop.func import LoopFunction
from inlay.loop.stmt import Assert, For, LoopKind, Seq, Stmt
from inlay.loop.walk import stmts_below

CACHE_LINE = 64


@dataclass(frozen=True, slots=True)
class PhaseSource:
    """A phase as statements: `parallel` ones are a single loop that all parts share."""

    body: tuple[Stmt, ...]
    parallel: bool


@dataclass(frozen=True, slots=True)
class WorkspaceLayout:
    """How all workspaces of a function lie in one block.

    Shared buffers come first; from `shared_bytes` on, part p has `per_part_bytes` at
    `shared_bytes + p * per_part_bytes`. A caller that gives every part `bytes_per_part` has given
    enough.

    Attributes:
        offsets: of each workspace, in its region, in bytes.
        memory: where the block must be; empty for any memory.
    """

    offsets: tuple[Int, ...]
    shared_bytes: Int
    per_part_bytes: Int
    memory: str = ""

    @property
    def bytes_per_part(self) -> Int:
        """Bytes to allocate for each part."""
        return self.shared_bytes + self.per_part_bytes

    def block(self, parts: int | None = None) -> Workspace | None:
        """Return the block, None where there is nothing in it.

        Args:
            parts: how many there are; None where that is known when the kernel runs.
        """
        if parts is None:
            size, each = self.bytes_per_part, self.is_per_part
        else:
            size, each = self.shared_bytes + self.per_part_bytes * parts, False
        return None if size.value == 0 else Workspace(size, CACHE_LINE, each, self.memory)

    @property
    def is_per_part(self) -> bool:
        """Whether parts need bytes of their own."""
        return self.per_part_bytes.value != 0


def workspace_layout(function: LoopFunction) -> WorkspaceLayout:
    """Return where each workspace lies."""
    ends = {True: lit(0), False: lit(0)}
    offsets: list[Int] = []
    for buffer in function.workspaces:
        size = lit(buffer.dtype.itemsize)
        for extent in buffer.shape:
            size = size * extent
        offsets.append(ends[buffer.per_part])
        ends[buffer.per_part] += ceildiv(size, CACHE_LINE) * CACHE_LINE
    named = next((b.scope for b in function.workspaces if b.scope.is_memory), "")
    return WorkspaceLayout(tuple(offsets), ends[False], ends[True], str(named))


def phases_of(function: LoopFunction) -> tuple[PhaseSource, ...]:
    """Return the phases: outermost parallel loops, and the runs of statements between them."""
    out: list[PhaseSource] = []
    waiting: list[Stmt] = []

    def flush() -> None:
        if waiting:
            out.append(PhaseSource(tuple(waiting), parallel=False))
            waiting.clear()

    for statement in flatten(function.body):
        if isinstance(statement, For) and statement.kind is LoopKind.PARALLEL:
            flush()
            out.append(PhaseSource((statement,), parallel=True))
        else:
            waiting.append(statement)
    flush()
    return tuple(out) or (PhaseSource((), parallel=False),)


def assertions_of(function: LoopFunction) -> tuple[Assert, ...]:
    """Return the assertions of a function, in the order of their numbers."""
    return tuple(s for s in stmts_below(function.body) if isinstance(s, Assert))


def flatten(s: Stmt) -> Iterator[Stmt]:
    """Yield the statements of nested sequences, in order."""
    waiting = [s]
    while waiting:
        present = waiting.pop()
        if isinstance(present, Seq):
            waiting.extend(reversed(present.stmts))
        else:
            yield present
