"""Compute a value where it is used."""

from __future__ import annotations

from inlay.arith.expr import Int, Sym, fresh, from_atom, to_int
from inlay.loop.buffer import Buffer, Scope
from inlay.loop.lets import bind_lets, linearize
from inlay.loop.reduction import combine, match_update, with_lets
from inlay.loop.scalar import Bind, Load, Scalar
from inlay.loop.stmt import Alloc, Block, For, IterKind, Seq, Stmt, Store
from inlay.loop.unlet import stored_value
from inlay.loop.walk import Rewrite, loads_of, map_children, scalars_below
from inlay.schedule.state import Schedule, illegal, primitive


@primitive
def inline(s: Schedule, block: str) -> None:
    """Replace what a block writes by its value, wherever it is read, and drop the block.

    Before:

        alloc t: f32[n] @workspace
        for i in 0..n { block a(v: spatial n = i) { t[v] = x[v] * 2.0:f32 } }
        for j in 0..n { block b(w: spatial n = j) { y[w] = t[w] + 1.0:f32 } }

    After `inline(s, "a")`:

        for j in 0..n { block b(w: spatial n = j) { y[w] = (x[w] * 2.0:f32) + 1.0:f32 } }

    Legal for a block that does not reduce and alone writes a whole temporary. A value used twice at
    one element is bound by a let.

    Raises:
        Illegal: `schedule.kind`, `schedule.dependence`.
    """
    producer = s.block(block)
    target, element = element_of(producer, block)
    if target.scope == Scope.PARAM:
        raise illegal("kind", f"found {block} to write parameter {target.name}")
    others = [x for x in s.accesses(s.body, target) if x.block is not producer]
    if any(x.writes for x in others):
        raise illegal("dependence", f"found another block that writes {target.name}")
    if any(_has_init_load(x.block, target) for x in others):
        raise illegal("kind", f"found an init that reads {target.name}")
    require_stable(s, producer)
    for name in dict.fromkeys(x.block.name for x in others):
        s.require_in_scope(producer, s.block_place(name))
        reader = s.block(name)
        s.replace(s.block_place(name), with_values(reader, {target: element}))
    s.replace(s.block_place(block), Seq(()))
    s.set_body(without_empty(s.body, target))


def require_stable(s: Schedule, producer: Block) -> None:
    """Refuse if something that the block reads is written after it.

    Raises:
        Illegal: `schedule.dependence`.
    """
    sources = {x.buffer for x in loads_of(producer.body)}
    later = False
    for x in s.accesses(s.body):
        later = later or x.block is producer
        if later and x.writes and x.block is not producer and x.buffer in sources:
            raise illegal("dependence", f"found {x.block.name} to write {x.buffer.name} afterwards")


Element = tuple[tuple[Sym, ...], Scalar]
"""The iters of a block in the order of the indices it stores at, and the value."""


def element_of(block: Block, name: str) -> tuple[Buffer, Element]:
    """Return the buffer that a block writes, and its element.

    Raises:
        Illegal: `schedule.kind`.
    """
    found = stored_value(block.body)
    if found is None or block.init is not None or block.predicate is not None:
        raise illegal("kind", f"found {name}, which is not one store at each point")
    store, value = found
    spatial = [to_int(i.sym) for i in block.iters if i.kind is IterKind.SPATIAL]
    if len(spatial) != len(block.iters) or sorted(store.indices, key=_key) != sorted(spatial, key=_key):
        raise illegal("kind", f"found {name} to write a part of {store.buffer.name}")
    return store.buffer, (tuple(_sym(e) for e in store.indices), value)


def _key(e: Int) -> tuple[object, ...]:
    return e.key


def _sym(e: Int) -> Sym:
    atom = e.atom
    assert isinstance(atom, Sym), "the index is an iter"
    return atom


def with_values(reader: Block, elements: dict[Buffer, Element]) -> Block:
    """Return a block that computes elements instead of loading them.

    Raises:
        Illegal: `schedule.kind`.
    """
    memo: dict[tuple[Buffer, tuple[Int, ...]], Scalar] = {}

    def load(x: Load, indices: tuple[Int, ...]) -> Scalar | None:
        element = elements.get(x.buffer)
        if element is None:
            return None
        key = (x.buffer, indices)
        if key not in memo:
            memo[key] = _at(element, indices)
        return memo[key]

    update = match_update(reader)
    rewrite = Rewrite(load=load)
    if update is None:
        found = stored_value(reader.body)
        if found is None:
            raise illegal("kind", f"found {reader.name} with a body that is not one store")
        store, value = found
        lets, value = linearize(rewrite.scalar(value))
    else:
        # The accumulator stays the left operand of the update.
        store = update.store
        operand = stored_value(with_lets(update.lets, Store(store.buffer, store.indices, update.value)))
        if operand is None:
            raise illegal("kind", f"found {reader.name} to write where a let says")
        lets, value = linearize(rewrite.scalar(operand[1]))
        value = combine(update.op, Load(store.buffer, store.indices), value)
    body = bind_lets(lets, Store(store.buffer, store.indices, value))
    return Block(reader.name, reader.iters, reader.bindings, body, reader.init, reader.predicate)


def _at(element: Element, indices: tuple[Int, ...]) -> Scalar:
    iters, value = element
    mapping: dict[Sym, Int] = dict(zip(iters, indices, strict=True))
    for x in scalars_below(value):
        if isinstance(x, Bind):
            mapping[x.sym] = from_atom(fresh(x.sym.name))
    return Rewrite(mapping).scalar(value)


def _has_init_load(block: Block, target: Buffer) -> bool:
    if block.init is None:
        return False
    found = stored_value(block.init)
    return found is None or any(isinstance(x, Load) and x.buffer is target for x in scalars_below(found[1]))


def without_empty(s: Stmt, gone: Buffer | None) -> Stmt:
    """Return a statement without loops around nothing, and without the allocation of a buffer."""
    if isinstance(s, Alloc) and s.buffer is gone:
        return without_empty(s.body, gone)
    s = map_children(s, lambda child: without_empty(child, gone))
    if isinstance(s, For) and isinstance(s.body, Seq) and not s.body.stmts:
        return s.body
    return s
