"""Factors that are no constants, packed by the kernel that reads them.

The columns of a matrix in rows are far apart: the rows of a panel share sets of the first cache and use
a page each. So a group of panels is copied before it is used, to where it is contiguous:

    for group of panels            parallel
      for k: packed[panels, k, panel] = w[k, columns]
      for panel of group
        for tile of rows           as with packed constants

It costs a load and a store for each element, where the product has as many multiply-adds for it as
there are rows. Behind the last column are zeros, so that sums there need no mask: a matrix whose columns
do not fill vectors is packed however small it is.

A factor that is used transposed lies along the terms, and columns are far apart. It is packed in any case, as
tiles that are transposed in registers (`transposed.py`), a run of a few columns at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from inlay.loop.buffer import Scope
from inlay.loop.scalar import Load, Select
from inlay.loop.stmt import Block, IterKind
from inlay.loop.walk import loads_of, stores_of
from inlay.machine.target import Target
from inlay.schedule.primitives.annotate import annotate
from inlay.schedule.primitives.cache_read import cache_read
from inlay.schedule.primitives.clip import clip
from inlay.schedule.primitives.distribute import distribute
from inlay.schedule.primitives.merge import merge
from inlay.schedule.primitives.reorder import reorder
from inlay.schedule.primitives.set_scope import set_scope
from inlay.schedule.primitives.split import split
from inlay.schedule.primitives.split_cascade import split_cascade
from inlay.schedule.primitives.split_cases import split_cases
from inlay.schedule.primitives.unroll import unroll
from inlay.schedule.primitives.vectorize import vectorize
from inlay.schedule.rules.groups import packed_panel, symbols_in, transposed_factor, written
from inlay.schedule.rules.transposed import LINE, PIECE
from inlay.schedule.state import Schedule

RUN = 32 * LINE
"""Bytes of a column that are transposed before those of the next ones: caches are fetched ahead along them
(Zen 4, us, with 1, 4, 16 and 64 lines: 32 x 1,024 x 1,024 904, 787, 736, 704; 32 x 2,048 x 2,048 4,970,
4,480, 3,680, 3,240)."""
SIDE_BY_SIDE = 4 * LINE
"""Bytes of a row that are copied together, to panels side by side. One line of each row at a time is slow,
above all where rows lie a power of two apart (Zen 4, AVX2, us, with 1, 2, 4 and 8 lines: 32 x 1,024 x 1,024
984, 830, 758, 746; 32 x 1,000 x 1,000 666, 655, 656, 654; 32 x 128 x 2,048 240, 198, 182, 183)."""
FEWEST_ROWS = 24
"""Rows for which packing pays: each element is copied once and multiplied so many times."""
WIDE, FEWEST_ROWS_OF_WIDE = 3 * LINE, 97
"""Bytes of a panel whose rows are read as they are, where they are near, by fewer rows than these (Zen 4,
AVX-512, us, packed and as they are: 32 x 1,000 x 1,000 673 and 570, 64 x 1,024 x 1,024 1,293 and 1,203, 128 x
1,024 x 1,024 2,465 and 2,444, 128 x 1,024 x 2,048 5,245 and 5,743; with AVX2 746 and 1,274 for 32 x 1,024 x
1,024)."""
FEW_PANELS = 4
"""With fewer panels than these, the mask of a last one that is not full costs more than packing them."""
FAR = 4
"""A factor that takes more than this part of the last cache comes from memory, for its results at least.
Panels of nearer ones are read as fast as rows (Zen 4, us, panels and streams: 8 x 1,000 x 1,000 145 and 168,
8 x 2,000 x 2,000 2,720 and 806; 16 x 700 x 900 181 and 212, 16 x 1,500 x 1,500 953 and 976)."""


@dataclass(frozen=True, slots=True)
class Packing:
    """What is packed, and how much at once.

    Attributes:
        buffer: name of the factor.
        group: panels that are packed before they are used.
        is_transposed: whether it lies along the terms.
        is_whole: whether all of it is packed before anything is multiplied: threads share the rows then.
    """

    buffer: str
    group: int
    is_transposed: bool = False
    is_whole: bool = False


def packing(s: Schedule, block: str, panel: int, target: Target) -> Packing | None:
    """Return how the factor with the columns is packed; None where that does not pay.

    Where rows are known and there are a few, the schedule leaves it open.
    """
    b = s.block(block)
    if (transposed := transposed_factor(b)) is not None:
        return Packing(transposed.buffer.name, 1, is_transposed=True)
    spatial = [i for i in b.iters if i.kind is IterKind.SPATIAL]
    column = spatial[-1]
    columns = column.extent.value
    factors = [x for x in loads_of(b.body) if x.buffer is not written(b)]
    if columns is None or len(factors) != 2 or packed_panel(b) is not None:
        return None
    is_partial = columns % target.lanes(written(b).dtype.itemsize) != 0 and columns != panel
    if columns <= panel and not is_partial:
        return None
    second = [x for x in factors if column.sym in symbols_in(x.indices)]
    if len(second) != 1 or not written(b).dtype.is_float or b.predicate is not None:
        return None
    bytes_ = second[0].buffer.dtype.itemsize * columns * _terms(b)
    rows = rows_of(b, second[0])
    is_near = bytes_ <= target.last_bytes // FAR and (not is_partial or columns >= FEW_PANELS * panel)
    is_wide = panel * second[0].buffer.dtype.itemsize >= WIDE
    fewest = FEWEST_ROWS_OF_WIDE if is_wide and is_near else FEWEST_ROWS
    pays = rows >= fewest and (bytes_ > target.l1_bytes or is_partial)
    if FEWEST_ROWS // 4 <= rows <= 16 * FEWEST_ROWS:
        pays = s.asked.switch(f"{block}.pack", default=pays)
    return Packing(second[0].buffer.name, 1) if pays else None


def rows_of(b: Block, second: Load) -> int:
    """Return how often an element is used, 0 where that is not known."""
    own = symbols_in(second.indices)
    return prod(i.extent.value or 0 for i in b.iters if i.kind is IterKind.SPATIAL and i.sym not in own)


def _terms(b: Block) -> int:
    return prod(i.extent.value or 1 for i in b.iters if i.kind is IterKind.REDUCE)


def pack(s: Schedule, block: str, how: Packing, panel: int) -> str:
    """Let a block read packed panels; returns the block that packs."""
    return cache_read(s, block, how.buffer, panel)


def pack_before(s: Schedule, block: str, how: Packing, panel: int) -> None:
    """Let a block read panels that are packed by a nest in front of it."""
    vectorize(s, s.loops_of(pack(s, block, how, panel))[-1])


def pack_inside(
    s: Schedule, copy: str, block: str, how: Packing, before: Sequence[int], target: Target
) -> None:
    """Pack each group of panels where it is used.

    Args:
        s: the schedule.
        copy: the block that packs.
        block: the contraction, whose loops are those of `before` and then one over groups of panels.
        how: what is packed.
        before: the order of the axes outside the panels.
        target: the machine.
    """
    loops = s.loops_of(copy)
    count = len(before)
    is_short = (s.loop(loops[count]).extent % how.group) != 0
    group, inside = split(s, loops[count], how.group)
    if is_short:
        clip(s, copy, inside)
    ordered = [loops[i] for i in _ranks(before)]
    reorder(s, [*ordered, group, inside])
    shared = [*ordered, group]
    for x, y in zip(shared, s.loops_of(block)[: len(shared)], strict=True):
        merge(s, x, y)
    set_scope(s, written(s.block(copy)).name, Scope.WORKSPACE, at=group)
    if how.is_transposed:
        _transpose(s, copy, target)
    else:
        _copy_side_by_side(s, copy, inside)


def _copy_side_by_side(s: Schedule, copy: str, panel: str) -> None:
    """Copy a few panels together, row by row."""
    loops = s.loops_of(copy)
    *terms, lane = loops[loops.index(panel) + 1 :]
    together = SIDE_BY_SIDE // ((s.loop(lane).extent.value or 1) * written(s.block(copy)).dtype.itemsize)
    count = s.loop(panel).extent.value or 0
    if together > 1 and count > together and count % together == 0:
        _, panel = split(s, panel, together)
    if s.loop(panel).extent != 1:
        reorder(s, [*terms, panel])
    if 1 < (s.loop(panel).extent.value or 0) <= together:
        unroll(s, panel)
    vectorize(s, lane)


def _transpose(s: Schedule, copy: str, target: Target) -> None:
    """Copy a panel in tiles of 16 bytes of each column, one tile after the other along a run of columns."""
    *_, terms, column = s.loops_of(copy)
    size = written(s.block(copy)).dtype.itemsize
    lanes, piece = target.lanes(size), PIECE // size
    if isinstance(next(stores_of(s.block(copy).body)).value, Select):
        column, behind = split_cases(s, copy, column, varies=True)
        terms, others = distribute(s, terms)
        reorder(s, [behind, others])
    vectors, lane = split(s, column, lanes)
    for part in split_cascade(s, terms, _runs(s.loop(terms).extent.value, RUN // size, piece)):
        own_vectors, own_lane = (part.names[x] for x in (vectors, lane))
        if part.tile % piece:
            reorder(s, [own_vectors, part.inner])
        else:
            pieces, step = split(s, part.inner, piece)
            reorder(s, [own_vectors, pieces, step])
            unroll(s, step)
            annotate(s, step, "loads", "transposed")
        vectorize(s, own_lane)


def _runs(terms: int | None, run: int, piece: int) -> list[int]:
    """Return how many terms are copied at a time: a run, what is left of whole pieces, and the rest."""
    left = piece if terms is None else terms % run // piece * piece
    last = 1 if terms is None else terms % run % piece
    return [n for n in (run, left, last) if n]


def _ranks(before: Sequence[int]) -> list[int]:
    return [sorted(before).index(i) for i in before]
