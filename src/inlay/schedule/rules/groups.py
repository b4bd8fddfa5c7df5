"""Contractions of narrow numbers: groups of terms, dot products, and what widens the other factor.

Packed weights have a few terms of the sum next to each other behind the columns of a panel, a *group*,
`w[o // panel, *k, c, o % panel, j]` with `j < g`. An instruction adds up a group. The other factor is
brought to what the instruction reads by a nest in front, `x[.., c * g + j]`, contiguous in `j`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from math import prod

from inlay.arith.expr import Int, Mod, Sym, coefficient, symbols, to_int
from inlay.loop.buffer import Buffer
from inlay.loop.scalar import Dot, Load
from inlay.loop.stmt import Block, BlockIter, IterKind
from inlay.loop.walk import loads_of, scalars_below, stores_of
from inlay.machine.dot_products import DotProduct
from inlay.machine.target import Target
from inlay.schedule.primitives.reorder import reorder
from inlay.schedule.primitives.tensorize import tensorize
from inlay.schedule.state import Illegal, Schedule

LONG_ROW = 4
"""Vectors in rows that are worth adding up by vectors."""


def group_of(b: Block) -> BlockIter | None:
    """Return the part of the sum whose terms panels of packed weights have behind their columns."""
    last = next((i for i in reversed(b.iters) if i.kind is IterKind.REDUCE), None)
    if last is None or last.extent.value is None:
        return None
    found = [x.indices for x in loads_of(b.body) if last.sym in symbols_in(x.indices)]
    if any(last.sym in symbols_in(e[:-1]) or coefficient(e[-1], last.sym) != 1 for e in found):
        return None
    packed = [e for e in found if e[-1] == to_int(last.sym) and _panel_of(e[:-1])]
    return last if packed else None


def columns_of(load: Load, neighbors: Collection[Sym]) -> tuple[Int, ...]:
    """Return the indices of a load, without one that counts `neighbors_in` a group behind the columns."""
    inside = bool(load.indices) and load.indices[-1].atom in neighbors
    return load.indices[:-1] if inside else load.indices


def neighbors_in(b: Block) -> frozenset[Sym]:
    """Return the symbols that count the terms of a group: of a loop, or of dot products of the expression."""
    group = group_of(b)
    own = {x.sym for x in _dots_of(b)}
    return frozenset(own if group is None else {*own, group.sym})


def _dots_of(b: Block) -> Iterator[Dot]:
    return (x for store in stores_of(b.body) for x in scalars_below(store.value) if isinstance(x, Dot))


def packed_panel(b: Block) -> int | None:
    """Return the panel of packed weights."""
    neighbors = neighbors_in(b)
    found = (_panel_of(columns_of(load, neighbors)) for load in loads_of(b.body))
    return next((panel for panel in found if panel), None)


def _panel_of(indices: tuple[Int, ...]) -> int | None:
    """Return the divisor in the last index."""
    atom = indices[-1].atom if indices else None
    return atom.denominator.value if isinstance(atom, Mod) else None


def dot_kind(b: Block, target: Target) -> DotProduct | None:
    """Return the kind of dot product that sums the terms of a group, if there is one."""
    group = group_of(b)
    factors = [x.buffer.dtype for x in loads_of(b.body) if x.buffer is not written(b)]
    if group is None or len(factors) != 2:
        return None
    first, second = factors
    kind = target.dot_product(first, second) or target.dot_product(second, first)
    return kind if kind is not None and group.extent == kind.width else None


def use_dots(s: Schedule, block: str, target: Target) -> None:
    """Let a dot-product instruction sum the terms of a group, if the target has the one for it."""
    b = s.block(block)
    group = group_of(b)
    kind = dot_kind(b, target)
    if group is None or kind is None:
        return
    loop = next(x for x in s.loops_of(block) if s.loop(x).var in symbols(_binding(b, group.sym)))
    reorder(s, [s.loops_of(block)[-1], loop])
    try:
        tensorize(s, loop, saturates=kind.saturates)
    except Illegal:
        reorder(s, [loop, s.loops_of(block)[-2]])


def _binding(b: Block, sym: Sym) -> Int:
    return next(e for i, e in zip(b.iters, b.bindings, strict=True) if i.sym == sym)


def sums_dots(b: Block) -> bool:
    """Whether a block sums by dot products."""
    return any(True for _ in _dots_of(b))


def widens_by_line(b: Block, free: Sequence[int], target: Target) -> bool:
    """Whether lines read nothing in common that is widened, and all weights stay in the second cache.

    Then it costs least to widen a line at a time.
    """
    if group_of(b) is None:
        return False
    spatial = [i for i in b.iters if i.kind is IterKind.SPATIAL]
    wide = [i for i in free if spatial[i].extent != 1]
    line = spatial[wide[-1]].sym if wide else None
    units = {i.sym for i in b.iters if i.extent == 1}
    for load in loads_of(b.body):
        if load.buffer is written(b):
            continue
        if spatial[-1].sym in symbols_in(load.indices):
            extents = [e.value for e in load.buffer.shape]
            size = prod(e for e in extents if e is not None) * load.buffer.dtype.itemsize
            if None in extents or 4 * size > 3 * target.l2_bytes:
                return False
        elif not any({line} <= set(symbols(e)) <= {line, *units} for e in load.indices):
            return False
    return True


def written(b: Block) -> Buffer:
    """Return the buffer that a block stores to."""
    return next(stores_of(b.body)).buffer


def symbols_in(indices: Sequence[Int]) -> set[Sym]:
    """Return the symbols in some integers."""
    return {x for e in indices for x in symbols(e)}


def terms_of(b: Block) -> int | None:
    """Return how many terms each sum has; None where that is not known."""
    extents = [i.extent.value for i in b.iters if i.kind is IterKind.REDUCE]
    known = [n for n in extents if n is not None]
    return prod(known) if len(known) == len(extents) else None


def is_product(b: Block) -> bool:
    """Whether a block sums floats over one axis, as products of matrices and convolutions of 1 x 1 do.

    A group of terms is a part of an axis.
    """
    return written(b).dtype.is_float and _summed_axes(b) == 1


def sums_one_axis(b: Block) -> bool:
    """Whether a block sums floats over one axis, or over axes of one element."""
    return written(b).dtype.is_float and _summed_axes(b) <= 1


def _summed_axes(b: Block) -> int:
    """Return over how many axes of more than one element a block sums; a group of terms counts for none."""
    group = group_of(b)
    return sum(i.kind is IterKind.REDUCE and i.extent != 1 and i is not group for i in b.iters)


def is_contiguous(indices: Sequence[Int], column: Sym) -> bool:
    """Whether an axis occurs as the last index, or as the last index of whole panels."""
    last = indices[-1]
    atom = last.atom
    if isinstance(atom, Mod) and atom.numerator == to_int(column):
        return True
    outside = column in symbols_in(indices[:-1])
    return not outside and coefficient(last, column) == 1


def transposed_factor(b: Block) -> Load | None:
    """Return the factor with the columns of a product of matrices if it lies along the terms; else None."""
    spatial, terms = ([i for i in b.iters if i.kind is kind] for kind in (IterKind.SPATIAL, IterKind.REDUCE))
    factors = [x for x in loads_of(b.body) if x.buffer is not written(b)]
    if not (spatial and is_product(b)) or len(terms) != 1 or len(factors) != 2 or b.predicate is not None:
        return None
    column = spatial[-1]
    found = [x for x in factors if column.sym in symbols_in(x.indices)]
    if len(found) != 1 or column.extent.value is None or found[0].buffer.dtype is not written(b).dtype:
        return None
    *before, last = found[0].indices
    along = coefficient(last, terms[0].sym) == 1 and column.sym not in symbols(last)
    return found[0] if along and terms[0].sym not in symbols_in(before) else None


def multiplies_vectors(b: Block, target: Target) -> bool:
    """Whether results are sums along two rows, long enough to be added by vectors.

    Columns would be one lane of a tile: 512 rows of 512 elements by a vector take four times as long.
    """
    spatial, terms = ([i for i in b.iters if i.kind is kind] for kind in (IterKind.SPATIAL, IterKind.REDUCE))
    if not is_product(b) or spatial[-1].extent != 1 or b.predicate is not None or len(terms) != 1:
        return False
    lanes = target.lanes(written(b).dtype.itemsize)
    if (terms[0].extent.value or LONG_ROW * lanes) < LONG_ROW * lanes:
        return False
    factors = [x for x in loads_of(b.body) if x.buffer is not written(b)]
    return len(factors) == 2 and all(is_contiguous(_wide(x), terms[0].sym) for x in factors)


def _wide(x: Load) -> tuple[Int, ...]:
    """Return the indices of a load without last axes of one element."""
    indices = list(x.indices)
    while len(indices) > 1 and x.buffer.shape[len(indices) - 1] == 1:
        indices.pop()
    return tuple(indices)
