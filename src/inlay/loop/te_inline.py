"""Inlining of tensor expressions into each other: how a group becomes few nests.

A group is a graph of tensors. Some become **roots**, computed by a nest of their own: outputs,
reductions, and what would be computed too often otherwise. All others are replaced, where they are
loaded, by their body at those indices. How often is too often:

* What an operator asks to have stored (an operand converted once for all its readers) is a root.
* A *plain* body (an access, perhaps a cast) is inlined everywhere.
* What a contraction reads (a reduction whose load leaves out one of its axes, so that each element
  is read many times) is inlined only if it is plain.
* What a broadcast reads (a load that leaves out an axis of the reader), or a window, is inlined
  unless it has a costly operation: a division, a root, a function such as `exp`.
* Otherwise it is inlined if all its readers end up in one root, or if it has few operations and no
  costly one, so that computing it again costs no more than storing and loading it. But what is made,
  element by element, of a sum that has to be stored otherwise is stored in its place.

Bodies that would grow too large stay roots, so that the work is linear in the size of the group.

Loads of one element are one object afterwards, as are bodies inlined twice at the same indices:
`lets.linearize` then computes them once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from inlay.arith.expr import Int, Sym, fresh, from_atom, symbols
from inlay.loop.buffer import Buffer
from inlay.loop.scalar import (
    Binary,
    BinaryOp,
    Bind,
    Cast,
    Dot,
    Index,
    Intrinsic,
    Lit,
    Load,
    Name,
    Reduce,
    Scalar,
    Select,
    Unary,
    UnaryOp,
)
from inlay.loop.te import Tensor
from inlay.loop.walk import Rewrite, scalars_below

CHEAP_OPERATIONS = 4
"""A body with at most so many operations is computed again rather than stored."""
LARGEST_BODY = 200
"""A tensor whose body has more nodes than this is stored."""

_COSTLY = {BinaryOp.DIV, BinaryOp.REM, BinaryOp.FLOORDIV, BinaryOp.FLOORMOD}


@dataclass(frozen=True, slots=True)
class Root:
    """A tensor with a nest of its own, and its body after inlining.

    Attributes:
        tensor: which tensor.
        body: loads placeholders and other roots only.
        reads: the roots it loads, in order of first use.
    """

    tensor: Tensor
    body: Scalar
    reads: tuple[Tensor, ...]


class _Reuse(IntEnum):
    """How often one element is read."""

    ONCE = 0
    BROADCAST = 1
    CONTRACTION = 2


@dataclass(slots=True)
class _Size:
    """How large a body is; for roots, with all that is inlined into it."""

    nodes: int = 0
    operations: int = 0
    costly: bool = False
    plain: bool = True


@dataclass(slots=True)
class _Group:
    """A group while its roots are chosen.

    Attributes:
        order: the computes, producers first.
        ends: for each tensor the roots it is part of; a root is part of itself.
        reuse: how often an element of a tensor is read.
    """

    order: list[Tensor]
    outputs: set[Tensor]
    sizes: dict[Tensor, _Size]
    readers: dict[Tensor, list[Tensor]]
    ends: dict[Tensor, set[Tensor]] = field(default_factory=dict[Tensor, "set[Tensor]"])
    reuse: dict[Tensor, _Reuse] = field(default_factory=dict[Tensor, _Reuse])
    roots: set[Tensor] = field(default_factory=set[Tensor])


def inline(outputs: Sequence[Tensor]) -> tuple[Root, ...]:
    """Return the roots of a group in an order in which they can be computed."""
    order = _topological(outputs)
    readers: dict[Tensor, list[Tensor]] = {t: [] for t in order}
    for t in order:
        for x in t.inputs:
            if x.body is not None:
                readers[x].append(t)
    group = _Group(order, set(outputs), {t: _size(t) for t in order}, readers)
    _choose_roots(group)
    inliner = _Inliner(group)
    return tuple([inliner.root(t) for t in group.order if t in group.roots])


def _topological(outputs: Sequence[Tensor]) -> list[Tensor]:
    """Return the computes below the outputs, producers first."""
    order: list[Tensor] = []
    done: set[Tensor] = set()
    pending: list[tuple[Tensor, bool]] = [(t, False) for t in reversed(outputs)]
    while pending:
        t, finished = pending.pop()
        if finished:
            order.append(t)
        elif t not in done and t.body is not None:
            done.add(t)
            pending.append((t, True))
            pending.extend((x, False) for x in reversed(t.inputs))
    return order


def _size(t: Tensor) -> _Size:
    size = _Size()
    assert t.body is not None, "placeholders are not in the order"
    for x in scalars_below(t.body):
        size.nodes += 1
        match x:
            case Load() | Lit() | Index() | Name() | Bind() | Dot() | Reduce():
                pass
            case Cast():
                size.operations += 1
            case Select():
                size.operations += 1
                size.plain = False
            case Intrinsic():
                size.costly, size.plain = True, False
            case Binary(op=op):
                size.operations += 1
                size.plain = False
                size.costly = size.costly or op in _COSTLY
            case Unary(op=op):
                size.operations += 1
                size.plain = False
                size.costly = size.costly or op is UnaryOp.SQRT
    return size


def _choose_roots(group: _Group) -> None:
    """Walk from the outputs to the inputs; a tensor's readers are decided before it is."""
    for t in reversed(group.order):
        ends = {end: None for reader in group.readers[t] for end in group.ends[reader]}
        group.reuse[t] = max((_reuse(r, t, group) for r in group.readers[t]), default=_Reuse.ONCE)
        stays = t in group.outputs or t.stored or isinstance(t.body, Reduce)
        if stays or not _can_inline(t, ends, group):
            group.roots.add(t)
            group.ends[t] = {t}
            continue
        group.ends[t] = set(ends)
        for end in ends:
            group.sizes[end].nodes += group.sizes[t].nodes


def _can_inline(t: Tensor, ends: Mapping[Tensor, None], group: _Group) -> bool:
    size, reuse = group.sizes[t], group.reuse[t]
    if any(group.sizes[r].nodes + size.nodes > LARGEST_BODY for r in ends):
        return False
    if size.plain and size.operations <= CHEAP_OPERATIONS:
        return True
    if reuse is _Reuse.CONTRACTION or (reuse is _Reuse.BROADCAST and size.costly):
        return False
    if len(ends) == 1:
        return True
    return size.operations <= CHEAP_OPERATIONS and not size.costly and not _follows_product(t, group)


def _follows_product(t: Tensor, group: _Group) -> bool:
    """Whether a tensor is made element by element of sums of products that nothing else reads."""
    while t.body is not None and not isinstance(t.body, Reduce):
        own = [x for x in t.inputs if x.shape == t.shape and group.readers.get(x) == [t]]
        if len(own) != 1:
            return False
        (t,) = own
    if not isinstance(t.body, Reduce):
        return False
    axes = {a for a, n in zip(t.axes, t.shape, strict=True) if n != 1}
    factors = [
        {s for e in x.indices for s in symbols(e)} for x in scalars_below(t.body) if isinstance(x, Load)
    ]
    return len(factors) > 1 and all(not axes <= found for found in factors)


def _reuse(reader: Tensor, t: Tensor, group: _Group) -> _Reuse:
    """Return how often an element of `t` is read, through one reader and beyond."""
    assert reader.body is not None, "a reader is computed"
    beyond = _Reuse.ONCE if reader in group.roots else group.reuse[reader]
    axes = [a for a, n in zip(reader.axes, reader.shape, strict=True) if n != 1]
    reduces = isinstance(reader.body, Reduce)
    if isinstance(reader.body, Reduce):
        axes += [a.sym for a in reader.body.axes if a.extent != 1]
    own = _Reuse.ONCE
    for x in scalars_below(reader.body):
        if isinstance(x, Load) and x.buffer is t.buffer:
            used = [s for e in x.indices for s in symbols(e)]
            if any(a not in used for a in axes):
                own = max(own, _Reuse.CONTRACTION if reduces else _Reuse.BROADCAST)
            elif reduces and any(len(symbols(e)) > 1 for e in x.indices):
                own = max(own, _Reuse.BROADCAST)
    return max(own, beyond)


class _Inliner:
    """Makes the bodies of roots. Elements of a root are memoized by tensor and indices."""

    def __init__(self, group: _Group) -> None:
        self._roots = group.roots
        self._by_buffer = {t.buffer: t for t in group.order}

    def root(self, t: Tensor) -> Root:
        assert t.body is not None, "a root is computed"
        reads: dict[Tensor, None] = {}
        elements: dict[tuple[Buffer, tuple[Int, ...]], Scalar] = {}

        def element(load: Load, indices: tuple[Int, ...]) -> Scalar:
            key = (load.buffer, indices)
            found = elements.get(key)
            if found is None:
                found = elements[key] = made(load.buffer, indices)
            return found

        def made(buffer: Buffer, indices: tuple[Int, ...]) -> Scalar:
            tensor = self._by_buffer.get(buffer)
            if tensor is None or tensor in self._roots:
                if tensor is not None:
                    reads[tensor] = None
                return Load(buffer, indices)
            assert tensor.body is not None, "placeholders are not inlined"
            mapping: dict[Sym, Int] = dict(zip(tensor.axes, indices, strict=True))
            for x in scalars_below(tensor.body):
                if isinstance(x, Bind):
                    mapping[x.sym] = from_atom(fresh(x.sym.name))
            return Rewrite(mapping, load=element).scalar(tensor.body)

        body = Rewrite(load=element).scalar(t.body)
        return Root(t, body, tuple(reads))
