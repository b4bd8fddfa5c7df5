"""Blocks to plain statements.

A block's body and init get the bindings in place of the iters. A predicate becomes an `If` around
both. An init that was not decomposed runs under the condition that all reduce iters are at 0.
"""

from __future__ import annotations

from inlay.arith.dtype import BOOL
from inlay.arith.expr import lit
from inlay.loop.scalar import Binary, BinaryOp, Index, Scalar
from inlay.loop.stmt import Block, If, IterKind, Stmt
from inlay.loop.walk import Rewrite, map_children, seq


def flatten_blocks(s: Stmt) -> Stmt:
    """Return a statement without blocks.

    Establishes: no `Block`.
    """
    if not isinstance(s, Block):
        return map_children(s, flatten_blocks)
    at = Rewrite({i.sym: b for i, b in zip(s.iters, s.bindings, strict=True)})
    body = at.stmt(s.body)
    if s.init is not None:
        start = _at_start(s)
        init = at.stmt(s.init)
        body = seq(init if start is None else If(start, init), body)
    return body if s.predicate is None else If(s.predicate, body)


def _at_start(s: Block) -> Scalar | None:
    """Return the condition that every reduce iter is at 0, None if it always holds."""
    result: Scalar | None = None
    for i, b in zip(s.iters, s.bindings, strict=True):
        if i.kind is IterKind.REDUCE and b != 0:
            here = Binary(BinaryOp.EQ, Index(b), Index(lit(0)), BOOL)
            result = here if result is None else Binary(BinaryOp.AND, result, here, BOOL)
    return result
