"""Index axes of one element by the axis of the block they run along."""

from __future__ import annotations

from inlay.arith.expr import Int, to_int
from inlay.loop.buffer import Buffer
from inlay.loop.stmt import Block
from inlay.loop.walk import Rewrite, stores_of
from inlay.schedule.state import Schedule, illegal, primitive


@primitive
def index_unit_axes(s: Schedule, block: str) -> None:
    """Replace the index 0 of an axis of extent 1 by the axis of the block in the same position.

    Before:

        for i in 0..1 { for j in 0..4 {
          block b(u: spatial 1 = i, v: spatial 4 = j) { y[u, v] = x[0, v] } } }

    After `index_unit_axes(s, "b")`:

        for i in 0..1 { for j in 0..4 {
          block b(u: spatial 1 = i, v: spatial 4 = j) { y[u, v] = x[u, v] } } }

    Both are 0. Broadcasting writes the number; with the axis, one iteration of a loop over it is
    seen to touch what the same iteration of another loop does.

    Raises:
        Illegal: `schedule.kind`.
    """
    place, old = s.block_place(block), s.block(block)
    targets = [x.indices for x in stores_of(old.body)]
    units = {to_int(i.sym) for i in old.iters if i.extent == 1}
    if not targets:
        raise illegal("kind", f"found no store in block {block}")
    at = targets[0]

    def access(b: Buffer, indices: tuple[Int, ...]) -> tuple[Buffer, tuple[Int, ...]]:
        if len(indices) != len(at):
            return b, indices
        axes = zip(indices, at, b.shape, strict=True)
        return b, tuple(a if e == 0 and n == 1 and a in units else e for e, a, n in axes)

    body = Rewrite(access=access).stmt(old.body)
    s.replace(place, Block(old.name, old.iters, old.bindings, body, old.init, old.predicate))
