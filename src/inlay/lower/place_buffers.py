"""Decide where the bytes of temporaries are.

* REGISTER and STACK buffers stay where they are allocated.
* A WORKSPACE buffer allocated inside a loop goes on the stack if its size is a small number. Else it
  becomes a workspace of the function, one for each part when the loop is parallel.
* A buffer allocated outside all loops connects phases, so it is always a workspace of the function.

Requires that buffers have been compacted; establishes that every allocation left has a constant
shape, and that the statements at the top of the function are its phases.
"""

from __future__ import annotations

from inlay.arith.expr import Int, lit
from inlay.base.diagnostics import InternalError
from inlay.loop.buffer import Buffer, Scope
from inlay.loop.stmt import Alloc, For, LoopKind, Stmt
from inlay.loop.walk import Rewrite, map_children

STACK_BYTES = 4096
"""Largest temporary that goes on the stack without being asked to."""


def place_buffers(s: Stmt) -> tuple[Stmt, tuple[Buffer, ...]]:
    """Return the statement and the workspaces of the function, in order."""
    found: dict[Buffer, Buffer] = {}
    body = _walk(s, None, found)
    return Rewrite(buffers=found).stmt(body), tuple(
        b for b in found.values() if b.scope is Scope.WORKSPACE
    )


def _walk(s: Stmt, loop: LoopKind | None, found: dict[Buffer, Buffer]) -> Stmt:
    """Take out allocations; `loop` says whether a loop, and a parallel one, is around."""
    if isinstance(s, For):
        inner = s.kind if loop is None else loop
        return map_children(s, lambda child: _walk(child, inner, found))
    if not isinstance(s, Alloc):
        return map_children(s, lambda child: _walk(child, loop, found))
    b = s.buffer
    size = bytes_of(b).value
    if loop is None:
        scope = Scope.WORKSPACE
    elif b.scope is not Scope.WORKSPACE:
        scope = b.scope
    else:
        scope = Scope.STACK if size is not None and size <= STACK_BYTES else Scope.WORKSPACE
    if scope in (Scope.STACK, Scope.REGISTER) and size is None:
        raise InternalError(
            f"{scope} buffer {b.name} of shape [{', '.join(map(str, b.shape))}] has no constant size",
            where="lower.place_buffers",
        )
    per_part = scope is Scope.WORKSPACE and loop is LoopKind.PARALLEL
    if scope is not b.scope or per_part:
        found[b] = Buffer(b.name, b.shape, b.dtype, scope, b.strides, per_part=per_part)
    elif scope is Scope.WORKSPACE:
        found[b] = b
    body = _walk(s.body, loop, found)
    return body if scope is Scope.WORKSPACE else Alloc(b, body)


def bytes_of(b: Buffer) -> Int:
    """Return the size of a dense buffer in bytes."""
    size = lit(b.dtype.itemsize)
    for n in b.shape:
        size = size * n
    return size
