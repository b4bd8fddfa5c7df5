"""Equality of loop functions up to the names of bound variables and buffers.

Two functions are equal when one becomes the other by renaming. The comparison walks both at once and
pairs binders as they come; what is bound in neighboring scopes may be one symbol on one side and two
on the other. Integers are compared as normal forms after renaming.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import cast

from inlay.arith.expr import Int, Sym, substitute, to_int
from inlay.loop.buffer import Buffer
from inlay.loop.func import LoopFunction
from inlay.loop.scalar import Lit, Name, Scalar
from inlay.loop.stmt import Stmt


def equal(a: LoopFunction, b: LoopFunction) -> bool:
    """Whether two functions differ in names only; the functions' own names count."""
    match = _Match()
    return (
        a.name == b.name
        and a.n_reads == b.n_reads
        and a.stage is b.stage
        and match.same(a.dims, b.dims)
        and match.same(a.params, b.params)
        and match.same(a.workspaces, b.workspaces)
        and match.same(a.body, b.body)
    )


class _Match:
    def __init__(self) -> None:
        self._syms: dict[Sym, Int] = {}  # of b, to integers of a
        self._buffers: dict[Buffer, Buffer] = {}
        self._buffers_taken: dict[Buffer, Buffer] = {}

    def same(self, a: object, b: object) -> bool:
        """Compare anything that stands in a field of a node."""
        if isinstance(a, Int):
            return isinstance(b, Int) and a == substitute(b, self._syms)
        if isinstance(a, Sym):
            assert isinstance(b, Sym), "a symbol stands where a symbol stands"
            self._syms[b] = to_int(a)
            return True
        if isinstance(a, Buffer):
            return isinstance(b, Buffer) and self._pair_buffers(a, b)
        if type(a) is not type(b):
            return False
        if isinstance(a, tuple):
            return self._same_items(cast("tuple[object, ...]", a), cast("tuple[object, ...]", b))
        if isinstance(a, Lit):
            assert isinstance(b, Lit), "types were compared"
            return a.dtype == b.dtype and repr(a.value) == repr(b.value)
        if isinstance(a, Name):
            assert isinstance(b, Name), "types were compared"
            return a.dtype == b.dtype and self._syms.get(b.sym, to_int(b.sym)) == to_int(a.sym)
        if isinstance(a, (Scalar, Stmt)) or dataclasses.is_dataclass(a):
            return self._same_fields(a, b)
        return a == b

    def _same_items(self, a: Sequence[object], b: Sequence[object]) -> bool:
        return len(a) == len(b) and all(map(self.same, a, b))

    def _same_fields(self, a: object, b: object) -> bool:
        names: Iterable[str] = getattr(type(a), "__dataclass_fields__")  # noqa: B009
        return all(self.same(getattr(a, n), getattr(b, n)) for n in names)

    def _pair_buffers(self, a: Buffer, b: Buffer) -> bool:
        if b in self._buffers:
            return self._buffers[b] is a
        if a in self._buffers_taken:
            return False
        self._buffers[b] = a
        self._buffers_taken[a] = b
        return (
            a.dtype == b.dtype
            and a.scope == b.scope
            and a.per_part == b.per_part
            and self.same(a.shape, b.shape)
            and self.same(a.strides, b.strides)
        )
