"""Decide where the bytes of temporaries are.

* A buffer that connects phases (a parallel loop is among the statements that use it) is a workspace of
  the function.
* REGISTER and STACK buffers of a constant size stay where they are allocated, at the top of the
  function around just the statements that use them, as far as the stack of the target goes: a function
  of the code has bytes for all of its buffers at once, also for those that are not in use together. Each
  parallel loop is a function. A REGISTER buffer needs the stack only where it needs an address.
* Other WORKSPACE buffers go on the stack too if their size is a small number. What does not become
  workspaces of the function, one for each part inside a parallel loop.
* A buffer of a named memory is there, or the function is refused. All workspaces of a function are one
  block, so that one memory can be named for them.

Requires that buffers have been compacted; establishes that every allocation left has a constant
shape, and that the statements at the top of the function are its phases.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from inlay.arith.expr import Int, Sym, lit, symbols
from inlay.base.diagnostics import InlayError, error
from inlay.loop.buffer import Buffer, Scope
from inlay.loop.stmt import Alloc, For, LoopKind, Seq, Stmt
from inlay.loop.walk import Rewrite, child_stmts, loads_of, map_children, seq, stmts_below, stores_of
from inlay.machine.target import Target

STACK_BYTES = 4096
"""Largest temporary that goes on the stack without being asked to."""


def place_buffers(s: Stmt, target: Target) -> tuple[Stmt, tuple[Buffer, ...]]:
    """Return the statement and the workspaces of the function, in order.

    Raises:
        CompileError: `loop.no-memory` for a buffer that cannot be in the memory it names.
    """
    found: dict[Buffer, Buffer] = {}
    registers = target.vector_registers * target.vector_bytes
    room = _Room(target, _Frame(target.stack_bytes), registers, _written_out(s))
    body = _walk(_sunk(s), None, room, found)
    scratch = tuple(b for b in found.values() if b.scope.is_scratch)
    named = {b.scope: b for b in scratch if b.scope.is_memory}
    if len(named) > 1:
        one, other, *_ = named.values()
        raise _refusal(other, f"'{one.name}' is in {one.scope}, and workspaces of a function are one block")
    return Rewrite(buffers=found).stmt(body), scratch


def stack_taken(body: Stmt, target: Target) -> int:
    """Return the bytes that buffers have on the stack of one caller, in the function with most of them.

    Args:
        body: of a lowered function.
        target: that it was lowered for.
    """
    registers, numbers = target.vector_registers * target.vector_bytes, _written_out(body)
    serial = 0
    pending: list[tuple[Stmt, bool]] = [(body, False)]
    taken: list[int] = []
    while pending:
        s, inside = pending.pop()
        if isinstance(s, For) and s.kind is LoopKind.PARALLEL and not inside:
            inside = True
            taken.append(0)
        if isinstance(s, Alloc) and _has_address(s, registers, numbers):
            size = bytes_of(s.buffer).value or 0
            if inside:
                taken[-1] += size
            else:
                serial += size
        pending += [(child, inside) for child in reversed(child_stmts(s))]
    return max([serial, *taken])


def _has_address(s: Alloc, registers: int, numbers: frozenset[Sym]) -> bool:
    """Whether the buffer of an allocation in code is on the stack, and not in registers."""
    if s.buffer.scope != Scope.REGISTER:
        return s.buffer.scope == Scope.STACK
    return (bytes_of(s.buffer).value or 0) > registers or _is_addressed(s, numbers)


def _written_out(s: Stmt) -> frozenset[Sym]:
    """Return the variables of loops that are numbers in code, or lanes of a vector."""
    plain = (LoopKind.UNROLL, LoopKind.VECTOR)
    loops = (x for x in stmts_below(s) if isinstance(x, For))
    return frozenset(x.var for x in loops if x.kind in plain or x.extent.value == 1)


def _refusal(b: Buffer, why: str) -> InlayError:
    return error("loop.no-memory", f"found buffer '{b.name}' in {b.scope}: {why}")


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


@dataclass(slots=True)
class _Frame:
    """Bytes of the stack that a function of the code may still take."""

    left: int


@dataclass(frozen=True, slots=True)
class _Room:
    """Where temporaries may be.

    Attributes:
        target: what there is.
        frame: of the function that the statements are in.
        registers: bytes of all registers.
        numbers: variables that are numbers in code.
    """

    target: Target
    frame: _Frame
    registers: int
    numbers: frozenset[Sym]

    def place(self, s: Alloc, *, connects: bool) -> Scope:
        """Return where a buffer goes, and take its bytes of the stack.

        Args:
            s: its allocation.
            connects: whether it connects phases.

        Raises:
            CompileError: `loop.no-memory`.
        """
        b, size = s.buffer, bytes_of(s.buffer).value
        if b.scope.is_memory:
            scope = self._named(b, size, connects=connects)
        elif size is None or connects:
            scope = Scope.WORKSPACE
        elif b.scope == Scope.REGISTER and not _has_address(s, self.registers, self.numbers):
            return b.scope
        elif b.scope == Scope.WORKSPACE:
            scope = Scope.STACK if size <= min(STACK_BYTES, self.frame.left) else b.scope
        else:
            scope = b.scope if size <= self.frame.left else Scope.WORKSPACE
        if not scope.is_scratch and size is not None:
            self.frame.left -= size
        return scope

    def _named(self, b: Buffer, size: int | None, *, connects: bool) -> Scope:
        if b.scope not in self.target.stacks:
            if b.scope in self.target.memories:
                return b.scope
            known = ", ".join((*self.target.memories, *self.target.stacks)) or "none by name"
            raise _refusal(b, f"its device has {known}")
        if connects:
            raise _refusal(b, "it outlives a parallel loop, and a stack is of one thread")
        if size is None or size > self.frame.left:
            raise _refusal(b, f"it needs {bytes_of(b)} bytes, and {self.frame.left} are left there")
        return Scope.STACK


def _is_addressed(s: Alloc, numbers: frozenset[Sym]) -> bool:
    """Whether an index of a buffer is no number in code."""
    accesses = (x for found in (stores_of(s.body), loads_of(s.body)) for x in found)
    used = (i for x in accesses if x.buffer is s.buffer for i in x.indices)
    return any(not numbers.issuperset(symbols(i)) for i in used)


def _walk(s: Stmt, loop: LoopKind | None, room: _Room, found: dict[Buffer, Buffer]) -> Stmt:
    """Take out allocations; `loop` is the kind of the outermost loop around, if there is one."""
    if isinstance(s, For):
        inner = s.kind if loop is None else loop
        if loop is None and s.kind is LoopKind.PARALLEL:
            room = replace(room, frame=_Frame(room.target.stack_bytes))
        return map_children(s, lambda child: _walk(child, inner, room, found))
    if not isinstance(s, Alloc):
        return map_children(s, lambda child: _walk(child, loop, room, found))
    b = s.buffer
    scope = room.place(s, connects=loop is None and _has_parallel(s.body))
    per_part = scope.is_scratch and loop is LoopKind.PARALLEL
    if scope != b.scope or per_part:
        found[b] = replace(b, scope=scope, per_part=per_part)
    elif scope.is_scratch:
        found[b] = b
    body = _walk(s.body, loop, room, found)
    return body if scope.is_scratch else Alloc(b, body)


def _has_parallel(s: Stmt) -> bool:
    return any(isinstance(x, For) and x.kind is LoopKind.PARALLEL for x in stmts_below(s))


def bytes_of(b: Buffer) -> Int:
    """Return the size of a dense buffer in bytes."""
    size = lit(b.dtype.itemsize)
    for n in b.shape:
        size = size * n
    return size
