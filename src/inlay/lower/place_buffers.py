"""Decide where the bytes of temporaries are.

* A buffer that connects phases (a parallel loop is among the statements that use it) is a workspace of
  the function.
* REGISTER and STACK buffers of a constant size stay where they are allocated, at the top of the
  function around just the statements that use them, as far as the stack of the target goes: a buffer
  takes its bytes of what those around it leave.
* Other WORKSPACE buffers go on the stack too if their size is a small number. What does not become
  workspaces of the function, one for each part inside a parallel loop.

Requires that buffers have been compacted; establishes that every allocation left has a constant
shape, and that the statements at the top of the function are its phases.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from inlay.arith.expr import Int, lit
from inlay.loop.buffer import Buffer, Scope
from inlay.loop.stmt import Alloc, For, LoopKind, Seq, Stmt
from inlay.loop.walk import Rewrite, loads_of, map_children, seq, stmts_below, stores_of
from inlay.machine.target import Target

STACK_BYTES = 4096
"""Largest temporary that goes on the stack without being asked to."""


def place_buffers(s: Stmt, target: Target) -> tuple[Stmt, tuple[Buffer, ...]]:
    """Return the statement and the workspaces of the function, in order."""
    found: dict[Buffer, Buffer] = {}
    room = _Room(target.stack_bytes, target.vector_registers * target.vector_bytes)
    body = _walk(_sunk(s), None, room, found)
    return Rewrite(buffers=found).stmt(body), tuple(b for b in found.values() if b.scope is Scope.WORKSPACE)


def _sunk(s: Stmt) -> Stmt:
    """Allocate what is allocated at the top around the statements that use it, and no others.

    Runs of statements that share a buffer are kept together, each run with its allocations.
    """
    buffers: list[Buffer] = []
    while isinstance(s, Alloc):
        buffers.append(s.buffer)
        s = s.body
    stmts = s.stmts if isinstance(s, Seq) else (s,)
    uses: list[tuple[int, int, list[Buffer]]] = []
    for b in buffers:
        at = [i for i, x in enumerate(stmts) if _uses(x, b)]
        if at:
            uses.append((at[0], at[-1], [b]))
    runs: list[tuple[int, int, list[Buffer]]] = []
    for first, last, own in sorted(uses, key=lambda x: x[0]):
        if runs and first <= runs[-1][1]:
            start, end, before = runs[-1]
            runs[-1] = (start, max(end, last), before + own)
        else:
            runs.append((first, last, own))
    result: list[Stmt] = []
    done = 0
    for first, last, own in runs:
        result.extend(stmts[done:first])
        run = seq(*stmts[first : last + 1])
        for b in sorted(own, key=buffers.index, reverse=True):
            run = Alloc(b, run)
        result.append(run)
        done = last + 1
    return seq(*result, *stmts[done:])


def _uses(s: Stmt, b: Buffer) -> bool:
    return any(x.buffer is b for x in stores_of(s)) or any(x.buffer is b for x in loads_of(s))


@dataclass(frozen=True, slots=True)
class _Room:
    """Where temporaries may be: bytes of the stack that are left, and of all registers."""

    stack: int
    registers: int

    def scope(self, asked: Scope, size: int) -> Scope:
        """Return where a buffer of a known size goes: where it asks to be, if there is room."""
        if asked is Scope.REGISTER and size <= self.registers:
            return asked
        if asked is Scope.WORKSPACE:
            return Scope.STACK if size <= min(STACK_BYTES, self.stack) else asked
        return asked if size <= self.stack else Scope.WORKSPACE

    def behind(self, scope: Scope, size: int) -> _Room:
        """Return what a buffer leaves for those inside it."""
        on_stack = scope is Scope.STACK or (scope is Scope.REGISTER and size > self.registers)
        return replace(self, stack=self.stack - size) if on_stack else self


def _walk(s: Stmt, loop: LoopKind | None, room: _Room, found: dict[Buffer, Buffer]) -> Stmt:
    """Take out allocations; `loop` is the kind of the outermost loop around, if there is one."""
    if isinstance(s, For):
        inner = s.kind if loop is None else loop
        return map_children(s, lambda child: _walk(child, inner, room, found))
    if not isinstance(s, Alloc):
        return map_children(s, lambda child: _walk(child, loop, room, found))
    b, size = s.buffer, bytes_of(s.buffer).value
    scope = Scope.WORKSPACE
    if size is not None and not (loop is None and _has_parallel(s.body)):
        scope = room.scope(b.scope, size)
        room = room.behind(scope, size)
    per_part = scope is Scope.WORKSPACE and loop is LoopKind.PARALLEL
    if scope is not b.scope or per_part:
        found[b] = Buffer(b.name, b.shape, b.dtype, scope, b.strides, per_part=per_part)
    elif scope is Scope.WORKSPACE:
        found[b] = b
    body = _walk(s.body, loop, room, found)
    return body if scope is Scope.WORKSPACE else Alloc(b, body)


def _has_parallel(s: Stmt) -> bool:
    return any(isinstance(x, For) and x.kind is LoopKind.PARALLEL for x in stmts_below(s))


def bytes_of(b: Buffer) -> Int:
    """Return the size of a dense buffer in bytes."""
    size = lit(b.dtype.itemsize)
    for n in b.shape:
        size = size * n
    return size
