"""Compute a temporary where it is read instead of storing it."""

from __future__ import annotations

from inlay.arith.expr import Int, Sym, to_int
from inlay.loop.buffer import Buffer, Scope
from inlay.loop.scalar import Load, Scalar
from inlay.loop.stmt import Alloc, Block, For, Seq, Stmt, Store
from inlay.loop.walk import Rewrite, blocks_of, loads_of, map_children, seq, stores_of
from inlay.schedule.state import Schedule, illegal, primitive


@primitive
def inline(s: Schedule, block: str) -> None:
    """Put what a block computes in the place of each load of its result, and drop the block.

    Before:

        alloc t: f32[n] workspace
        for i in 0..n { block a(v: spatial n = i) { t[v] = x[v] * 2.0:f32 } }
        for j in 0..n { block b(w: spatial n = j) { y[w] = t[w] + 1.0:f32 } }

    After `inline(s, "a")`:

        for j in 0..n { block b(w: spatial n = j) { y[w] = (x[w] * 2.0:f32) + 1.0:f32 } }

    Legal if the block writes each element of a temporary once, in a nest of its own, from what
    nothing writes later.

    Raises:
        Illegal: `schedule.kind`, `schedule.dependence`.
    """
    old = s.block(block)
    store = old.body
    plain = tuple(to_int(i.sym) for i in old.iters)
    if not isinstance(store, Store) or old.init is not None or store.indices != plain:
        raise illegal("kind", f"found {block} not to write one element of each index")
    target = store.buffer
    if target.scope is Scope.PARAM or old.predicate is not None:
        raise illegal("kind", f"found {block} to write {target.name} for others, or not always")
    _require_stable(s, old, target)
    at = {i.sym: position for position, i in enumerate(old.iters)}
    s.set_body(_replaced(_without(s.body, old, target), store, at))


def _require_stable(s: Schedule, old: Block, target: Buffer) -> None:
    sources = {x.buffer for x in loads_of(old)}
    later = False
    for b in blocks_of(s.body):
        if b is old:
            later = True
        elif later and any(x.buffer in sources or x.buffer is target for x in stores_of(b)):
            raise illegal("dependence", f"found {b.name} to write what {old.name} reads or writes")


def _without(s: Stmt, old: Block, target: Buffer) -> Stmt:
    """Drop the nest of a block and the allocation of its buffer."""
    if isinstance(s, Alloc) and s.buffer is target:
        return _without(s.body, old, target)
    if isinstance(s, Seq):
        kept = [x for x in s.stmts if not _is_nest_of(x, old)]
        return seq(*(_without(x, old, target) for x in kept))
    return map_children(s, lambda child: _without(child, old, target))


def _is_nest_of(s: Stmt, block: Block) -> bool:
    while isinstance(s, For):
        s = s.body
    return s is block


def _replaced(s: Stmt, store: Store, at: dict[Sym, int]) -> Stmt:
    made: dict[tuple[Int, ...], Scalar] = {}

    def load(x: Load, indices: tuple[Int, ...]) -> Scalar | None:
        if x.buffer is not store.buffer:
            return None
        found = made.get(indices)
        if found is None:
            ints = {sym: indices[position] for sym, position in at.items()}
            found = made[indices] = Rewrite(ints).scalar(store.value)
        return found

    return Rewrite(load=load).stmt(s)
