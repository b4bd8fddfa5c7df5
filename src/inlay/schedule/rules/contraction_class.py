"""What a contraction is: a sum of products whose last axis is contiguous, and what reads its results.

Rules ask this before they change anything; `contraction_plan.py` says in which order and sizes it runs.
"""

from __future__ import annotations

from collections.abc import Sequence

from inlay.arith.expr import FloorDiv, Int, Sym, from_atom, symbols, to_int
from inlay.loop.buffer import Scope
from inlay.loop.scalar import Binary, BinaryOp
from inlay.loop.stmt import Block, IterKind
from inlay.loop.walk import loads_of, stores_of
from inlay.schedule.primitives.index_unit_axes import index_unit_axes
from inlay.schedule.rules.groups import (
    columns_of,
    is_contiguous,
    is_product,
    neighbors_in,
    packed_panel,
    symbols_in,
    written,
)
from inlay.schedule.state import Schedule


def no_contraction(s: Schedule, block: str) -> str:
    """Return why a block is no sum of products whose last axis is contiguous wherever it occurs."""
    b = s.block(block)
    stores = list(stores_of(b.body))
    spatial = [i for i in b.iters if i.kind is IterKind.SPATIAL]
    if len(stores) != 1 or not any(i.kind is IterKind.REDUCE for i in b.iters):
        return "which computes several values at once"
    if not spatial:
        return "whose result is one number"
    value = stores[0].value
    products = (
        [x for x in (value.lhs, value.rhs) if isinstance(x, Binary) and x.op is BinaryOp.MUL]
        if isinstance(value, Binary) and value.op is BinaryOp.ADD
        else []
    )
    if not products:
        return "which sums no products"
    column = spatial[-1].sym
    factors = [x for x in loads_of(b.body) if x.buffer is not written(b)]
    found = [x for x in factors if column in symbols_in(x.indices)]
    neighbors = neighbors_in(b)
    for load in found:
        indices = columns_of(load, neighbors)
        if not (is_contiguous(indices, column) or _by_groups(indices, column)):
            return f"which reads '{load.buffer.name}' across the last axis of the result"
    return "" if found else "no operand of which has the last axis of the result"


def _by_groups(indices: Sequence[Int], column: Sym) -> bool:
    """Whether an axis only says which group of the last index is meant, as in grouped convolutions."""
    if column in symbols_in(indices[:-1]):
        return False
    atoms = {a for monomial, _ in indices[-1].terms for a in monomial}
    return all(
        isinstance(a, FloorDiv) and a.numerator == to_int(column) and a.denominator.value is not None
        for a in atoms
        if column in symbols(from_atom(a))
    )


def group_widths(b: Block) -> set[int]:
    """Return how many columns in a row read the same channels, in a grouped convolution; none in others."""
    column = [i for i in b.iters if i.kind is IterKind.SPATIAL][-1].sym
    panel = packed_panel(b)
    return {
        a.denominator.value or 0
        for load in loads_of(b.body)
        for index in load.indices
        for monomial, _ in index.terms
        for a in monomial
        if isinstance(a, FloorDiv) and a.numerator == to_int(column) and a.denominator != panel
    }


def epilogue_of(s: Schedule, block: str) -> str | None:
    """Return the block that reads each result of a contraction once, at its own place."""
    names = s.block_names()
    at = names.index(block)
    result = written(s.block(block))
    if at + 1 >= len(names) or result.scope == Scope.PARAM:
        return None
    index_unit_axes(s, names[at + 1])
    following = s.block(names[at + 1])
    if any(i.kind is IterKind.REDUCE for i in following.iters):
        return None
    spatial = [i.extent for i in s.block(block).iters if i.kind is IterKind.SPATIAL]
    if [i.extent for i in following.iters] != spatial:
        return None
    here = tuple(to_int(i.sym) for i in following.iters)
    loads = [x for x in loads_of(following) if x.buffer is result]
    if any(x.indices != here for x in loads) or _write_indices(following) != here:
        return None
    readers = [n for n in names if any(x.buffer is result for x in loads_of(s.block(n)))]
    return names[at + 1] if readers in ([block, names[at + 1]], [names[at + 1]]) else None


def _write_indices(b: Block) -> tuple[Int, ...]:
    return next(stores_of(b.body)).indices


def lines_of_rows(b: Block) -> bool | None:
    """Return whether the rows of a product are on several axes that are known; None if not on several.

    Axes of which one is known and another is not stay: what they are merged to would not be known.
    """
    lines = [i.extent.value for i in b.iters if i.kind is IterKind.SPATIAL and i.extent != 1][:-1]
    known = sum(n is not None for n in lines)
    if not is_product(b) or len(lines) < 2 or known == 1:
        return None
    return known > 1
