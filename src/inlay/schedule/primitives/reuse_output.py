"""Put a temporary where what is made of it will be."""

from __future__ import annotations

from inlay.arith.expr import to_int
from inlay.loop.buffer import Buffer, Scope
from inlay.loop.deps import BlockAccess
from inlay.loop.stmt import IterKind
from inlay.loop.walk import Rewrite, stores_of
from inlay.schedule.primitives.inline import without_empty
from inlay.schedule.state import Schedule, illegal, primitive


@primitive
def reuse_output(s: Schedule, buffer: str, output: str) -> None:
    """Let blocks work on a result, or a temporary, in the place of a temporary whose elements it replaces.

    Before:

        alloc t: f32[n] @workspace
        for i in 0..n { block a(v: spatial n = i) { t[v] = x[v] * 2.0:f32 } }
        for j in 0..n { block b(w: spatial n = j) { y[w] = t[w] + 1.0:f32 } }

    After `reuse_output(s, "t", "y")`:

        for i in 0..n { block a(v: spatial n = i) { y[v] = x[v] * 2.0:f32 } }
        for j in 0..n { block b(w: spatial n = j) { y[w] = y[w] + 1.0:f32 } }

    The memory of the result is then fetched while `a` computes, and no other memory is touched. Legal if
    one block writes the result, each element of it once, reads the temporary at that element alone, and
    comes after all others that touch the temporary and before all that read the result.

    Raises:
        Illegal: `schedule.kind`, `schedule.dependence`.
    """
    old, new = s.buffer(buffer), s.buffer(output)
    if old.scope == Scope.PARAM or (new.scope == Scope.PARAM and new not in s.outputs):
        raise illegal("kind", f"found {buffer} and {output}, needed a temporary, and a result or another one")
    if old.shape != new.shape or old.dtype != new.dtype or old.strides != new.strides:
        raise illegal("kind", f"found {buffer} of another shape or format than {output}")
    _require_last(s, old, new)
    s.set_body(without_empty(Rewrite(buffers={old: new}).stmt(without_empty(s.body, old)), None))


def _require_last(s: Schedule, old: Buffer, new: Buffer) -> None:
    everything = s.accesses(s.body)
    found = [x for x in everything if x.buffer is new and x.writes]
    blocks = {x.block for x in found}
    if len(blocks) != 1:
        raise illegal("dependence", f"found {new.name} written by {len(blocks)} blocks, needed one")
    (last,) = blocks
    iters = [to_int(i.sym) for i in last.iters]
    (store,) = [*stores_of(last.body)][:1]
    if last.predicate is not None or any(i.kind is not IterKind.SPATIAL for i in last.iters):
        raise illegal("kind", f"found {last.name} not to write each element of {new.name} once")
    if sorted(store.indices, key=str) != sorted(iters, key=str) or len(found) != 1:
        raise illegal("kind", f"found {last.name} to write a part of {new.name}")
    if any(x.buffer is new and not x.writes and not x.order > found[0].order for x in everything):
        raise illegal("dependence", f"found {new.name} read before {last.name}")
    if new.scope != Scope.PARAM and new not in s.temporaries:
        raise illegal("dependence", f"found {new.name} allocated further inside")
    touched = [x for x in everything if x.buffer is old]
    own = [x for x in touched if x.block is last]
    if any(x.writes or x.indices != found[0].indices for x in own):
        raise illegal("dependence", f"found {last.name} to touch other elements of {old.name}")
    if not own or any(not _is_before(x, found[0]) for x in touched if x.block is not last):
        raise illegal("dependence", f"found {old.name} in use after {last.name}")


def _is_before(x: BlockAccess, last: BlockAccess) -> bool:
    """Whether an access is over before a block runs: none of their loops is the same."""
    return x.order < last.order and not any(loop in last.loops for loop in x.loops)
