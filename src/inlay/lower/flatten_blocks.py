"""Blocks to plain statements.

Inits go where they run (see `loop.inits`). A block's body gets the bindings in place of the iters, and
a predicate becomes an `If` around it.
"""

from __future__ import annotations

from inlay.loop.inits import hoist_inits
from inlay.loop.stmt import Block, If, Stmt
from inlay.loop.walk import Rewrite, map_children


def flatten_blocks(s: Stmt) -> Stmt:
    """Return a statement without blocks.

    Establishes: no `Block`.
    """
    return _flat(hoist_inits(s))


def _flat(s: Stmt) -> Stmt:
    if not isinstance(s, Block):
        return map_children(s, _flat)
    at = Rewrite({i.sym: b for i, b in zip(s.iters, s.bindings, strict=True)})
    body = at.stmt(s.body)
    return body if s.predicate is None else If(s.predicate, body)
