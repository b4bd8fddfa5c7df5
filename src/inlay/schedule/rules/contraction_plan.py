"""Order and sizes for contractions: see `contraction.py`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from inlay.analysis.register_tiles import most_rows, panel_widths, ranked_heights
from inlay.arith.dtype import DType
from inlay.arith.expr import Int, Mod, Sym, symbols
from inlay.loop.buffer import Scope
from inlay.loop.inits import mentioned
from inlay.loop.scalar import Load
from inlay.loop.stmt import Block, IterKind, Store
from inlay.loop.walk import loads_of
from inlay.machine.dot_products import DotProduct
from inlay.machine.target import Target
from inlay.schedule.rules.cache_blocks import MIN_PARALLEL_PANELS, OWN_SHARE, block_of_rows, group_of_panels
from inlay.schedule.rules.contraction_class import group_widths
from inlay.schedule.rules.groups import (
    dot_kind,
    packed_panel,
    sums_one_axis,
    symbols_in,
    terms_of,
    widens_by_line,
    written,
)
from inlay.schedule.rules.packing import Packing, packing
from inlay.schedule.state import Schedule

MAX_UNROLLED_DOTS = 4
"""Dot products of a sum that are written out: where windows overlap, more groups would not fit registers."""
PANELS, LINES = "panels", "lines"
"""What the outermost loops are over."""
REST = (4, 3, 2, 1)
"""Rows of the tiles behind the last full one, where nobody knows how many rows are left. Each tile reads
the panel anew: without tiles of 4, MiniLM with 4 and 20 words takes 1.45 and 1.05 times as long on Zen 4
(with AVX2 1.75 and, for 16 words, 1.17). Tiles of 5 and 6 rows would save as much for 5 and 6 words, but
compiling would take half as long again.
"""
MOST_OPTIONS = 4
"""Shapes of tiles that are worth measuring, by their estimated costs."""


def tile_options(
    target: Target,
    dtype: DType,
    panel: int,
    rows: int | None,
    registers: int | None = None,
    *,
    dots: bool = False,
) -> list[tuple[int, ...]]:
    """Return the rows of tiles that cover so many rows, in order of estimated cost.

    Args:
        target: the machine.
        dtype: of the sums.
        panel: columns of a tile.
        rows: of a line; None where their number is not known.
        registers: for sums and factors; None for all that there are.
        dots: whether many dot products are summed.
    """
    registers = target.vector_registers if registers is None else registers
    vectors = max(1, -(-panel // target.lanes(dtype.itemsize)))
    if rows is not None:
        return list(ranked_heights(rows, vectors, registers, dots=dots))
    most = most_rows(vectors, registers)
    return [(n, *(k for k in REST if k < n)) for n in range(most, 0, -1)]


def row_tiles(s: Schedule, block: str, options: list[tuple[int, ...]]) -> tuple[int, ...]:
    """Return the rows of the tiles of a contraction, of some options; how many the first has is left open."""
    by_first = {sizes[0]: sizes for sizes in options}
    first, *others = list(by_first)[:MOST_OPTIONS]
    return by_first[s.asked.pick(f"{block}.rows", first, others)]


@dataclass(frozen=True, slots=True)
class Plan:
    """Order and sizes for one contraction; axes are positions among its spatial iters.

    Attributes:
        before: axes outside the panels.
        after: axes inside the panels, except the rows.
        row: axis of the rows, None if there are none.
        panel: columns in a panel.
        tiles: rows of the tiles.
        packing: of the factor with the columns, None where it is read as it is.
        block: rows that a thread takes at once, None where threads share panels or other axes.
        lines: of the outermost axis that are computed together, None for one after the other.
        blocks_first: whether blocks of rows are outside of all else.
        terms: that all rows add up before the next ones come, None for all.
    """

    before: tuple[int, ...]
    after: tuple[int, ...]
    row: int | None
    panel: int
    tiles: tuple[int, ...]
    packing: Packing | None
    block: int | None
    lines: int | None = None
    blocks_first: bool = False
    terms: int | None = None


def plan_contraction(s: Schedule, block: str, target: Target, outermost: tuple[int, ...] = ()) -> Plan:
    """Choose order and sizes; axes that are `outermost` are outside of all others."""
    b = s.block(block)
    dtype = written(b).dtype
    spatial = [i for i in b.iters if i.kind is IterKind.SPATIAL]
    columns = spatial[-1].extent.value
    batch = _batch(b)
    mixes = batch is not None
    panel = packed_panel(b) or _own_panel(s, block, target, columns, mixes=mixes)
    panel = _narrowed(panel, columns, target.lanes(dtype.itemsize))
    packs = packing(s, block, panel, target) if mixes else None
    few = columns is not None and columns < MIN_PARALLEL_PANELS * panel
    before, free, row = _axes(b, batch or set(), outermost)
    if packs is None and not before and any(spatial[i].extent != 1 for i in free):
        lines_first = few or not mixes or widens_by_line(b, free, target)
        default, other = (LINES, PANELS) if lines_first else (PANELS, LINES)
        # Panels of channels that do not mix have nothing in common.
        order = s.asked.pick(f"{block}.order", default, (other,)) if mixes else default
        if order == LINES:
            # From the inside out, so that neighbors are computed one after the other.
            before, free = free[::-1], []
    # The outermost loop is shared by threads: not one that is known to run once.
    before.sort(key=lambda i: spatial[i].extent == 1)
    before = [*outermost, *before]
    kind = dot_kind(b, target)
    registers = target.vector_registers if dtype.is_float else target.tile_registers(kind)
    shape = max(panel // target.lanes(dtype.itemsize), 1), registers
    rows = None if row is None else spatial[row].extent
    is_product_of_rows = sums_one_axis(b) and mixes and not free
    # Of a batch that nobody knows the size of, threads share rows as of one sample.
    is_alone = not before or (few and [spatial[i].extent.value for i in before] == [None])
    at_once = None
    if packs is not None and not packs.is_transposed and not before and columns is not None:
        packs = replace(packs, is_whole=columns <= panel)
    if packs is not None and not packs.is_whole and rows is not None and is_product_of_rows:
        packs, at_once = group_of_panels(b, packs, panel, rows, shape, target)
    elif is_product_of_rows and is_alone:
        at_once = block_of_rows(s, block, rows, shape, target, few=few)
    tiles: tuple[int, ...] = ()
    if rows is not None and _is_last_short(rows, at_once):
        # Blocks are whole tiles, but for the last one.
        tile = most_rows(*shape)
        tiles = row_tiles(s, block, [tuple(n for n in (tile, (rows % tile).value) if n)])
    elif rows is not None:
        dots = _sums_many_dots(b, kind)
        options = tile_options(target, dtype, panel, at_once or rows.value, registers, dots=dots)
        tiles = row_tiles(s, block, options)
    return Plan(tuple(before), tuple(free), row, panel, tiles, packs, at_once)


def _batch(b: Block) -> set[Sym] | None:
    """Return the symbols of what has the columns as well; None where each factor has these: nothing mixes."""
    column = [i for i in b.iters if i.kind is IterKind.SPATIAL][-1].sym
    read = [symbols_in(x.indices) for x in loads_of(b.body) if x.buffer is not written(b)]
    if all(column in found for found in read):
        return None
    return {y for found in read if column in found for y in found}


def _axes(b: Block, batch: set[Sym], outermost: Sequence[int]) -> tuple[list[int], list[int], int | None]:
    """Return the axes outside the panels, those that are free, and the one of the rows."""
    spatial = [i for i in b.iters if i.kind is IterKind.SPATIAL]
    others = range(len(spatial) - 1)
    before = [i for i in others if spatial[i].sym in batch]
    free = [i for i in others if i not in before and i not in outermost]
    wide = [i for i in free if spatial[i].extent != 1]
    row = (wide or free or [None])[-1]
    return before, [i for i in free if i != row], row


def _is_last_short(rows: Int, block: int | None) -> bool:
    return block is not None and (rows % block) != 0


def is_short(b: Block, plan: Plan) -> bool:
    """Whether rows are cut into blocks of which the last has fewer."""
    spatial = [i.extent for i in b.iters if i.kind is IterKind.SPATIAL]
    return plan.row is not None and _is_last_short(spatial[plan.row], plan.block)


def computed_weights(b: Block, plan: Plan, target: Target) -> str | None:
    """Return the packed buffer that the factor with the columns is computed of, where rows are not known.

    Where they are, few rows compute it as they go, and for many it was computed before. None as well where
    the last cache does not hold the factor of some panels, or where a term has several.
    """
    spatial = [i for i in b.iters if i.kind is IterKind.SPATIAL]
    packed = [x for x in loads_of(b.body) if x.buffer.scope == Scope.PARAM and _is_packed(x, spatial[-1].sym)]
    is_open = plan.row is not None and spatial[plan.row].extent.value is None
    is_cut = plan.packing is not None or plan.block is not None
    if not is_open or len(packed) < 2 or is_cut or not isinstance(b.body, Store):
        return None
    pairs = [(i, x) for i, x in zip(b.iters, b.bindings, strict=True) if i.kind is IterKind.REDUCE]
    tested: set[Sym] = set() if b.predicate is None else mentioned(b.predicate)
    if not tested.isdisjoint(y for _, x in pairs for y in symbols(x)):
        return None
    terms = terms_of(b)
    held = target.last_bytes // OWN_SHARE
    fits = terms is not None and terms * plan.panel * written(b).dtype.itemsize <= held
    return packed[0].buffer.name if fits else None


def _is_packed(load: Load, column: Sym) -> bool:
    """Whether a load is along the columns of a panel."""
    atom = load.indices[-1].atom if load.indices else None
    return isinstance(atom, Mod) and column in symbols(load.indices[-1])


def _narrowed(panel: int, columns: int | None, one: int) -> int:
    """Return a panel no wider than the columns, unless they fill vectors badly: those are masked."""
    if columns is None or columns >= panel:
        return panel
    return columns if columns % one == 0 or columns & (columns - 1) == 0 else panel


def _sums_many_dots(b: Block, kind: DotProduct | None) -> bool:
    """Whether a sum is of more dot products than are written out: short ones run beside the next tile's."""
    terms = terms_of(b)
    return kind is not None and (terms is None or terms > MAX_UNROLLED_DOTS * kind.width)


def _own_panel(s: Schedule, block: str, target: Target, columns: int | None, *, mixes: bool) -> int:
    """Return the panel where nothing is packed."""
    itemsize = written(s.block(block)).dtype.itemsize
    one = target.lanes(itemsize)
    group = max(group_widths(s.block(block)), default=one)
    if 0 < group < one and one // 2 % group == 0:
        # Wider panels shuffle what more groups read, and keep it on the stack.
        default, *others = panel_widths(target, group, None, None, sum_bytes=itemsize)
    elif columns is None:
        default, others = 2 * one, [one, 4 * one] if mixes else [one]
    elif mixes:
        ranked = panel_widths(target, columns, None, None, sum_bytes=itemsize)
        default, *others = ranked[:MOST_OPTIONS]
    else:
        default, other = (2 * one, one) if columns % (2 * one) == 0 else (one, 2 * one)
        others = [other, 4 * one]
    return s.asked.pick(f"{block}.panel", default, [n for n in others if columns is None or n <= columns])
