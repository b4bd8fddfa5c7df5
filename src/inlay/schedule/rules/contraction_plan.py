"""Order and sizes for contractions, and what one is: see `contraction.py`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from inlay.analysis.register_tiles import most_rows, panel_widths, ranked_heights, row_cost
from inlay.arith.dtype import DType
from inlay.arith.expr import FloorDiv, Int, Mod, Sym, from_atom, symbols, to_int
from inlay.loop.buffer import Scope
from inlay.loop.inits import mentioned
from inlay.loop.scalar import Binary, BinaryOp, Load
from inlay.loop.stmt import Block, IterKind, Store
from inlay.loop.walk import loads_of, stores_of
from inlay.machine.dot_products import DotProduct
from inlay.machine.target import Target
from inlay.schedule.primitives.index_unit_axes import index_unit_axes
from inlay.schedule.rules.groups import (
    columns_of,
    dot_kind,
    is_contiguous,
    is_product,
    neighbors_in,
    packed_panel,
    sums_one_axis,
    symbols_in,
    widens_by_line,
    written,
)
from inlay.schedule.rules.loops import divisors
from inlay.schedule.rules.nests import SHARED
from inlay.schedule.rules.packing import SIDE_BY_SIDE, Packing, packing
from inlay.schedule.rules.transposed import LINE
from inlay.schedule.state import Schedule

MAX_UNROLLED_DOTS = 4
"""Dot products of a sum that are written out: where windows overlap, more groups would not fit registers."""
PANELS, LINES = "panels", "lines"
"""What the outermost loops are over."""
MIN_PARALLEL_PANELS = 4
"""With fewer panels than this, threads share lines instead."""
FEWEST_HELD, MOST_HELD = 64, 512
"""Rows of a block that passes all panels, where rows do not stay in the last cache: a panel comes from that
cache for each block (12,544 x 512 x 256 on Zen 3, GFLOP/s: 34 without blocks; 53, 83, 70, 69 with blocks of
32, 64, 128, 448 rows; 3,136 x 2,048 x 512: 64; 54, 66, -, 72)."""
ENOUGH_HELD = 256
"""Rows of a block that passes all panels from the second cache, where all of them do not stay there: a last
cache that is far gives 13 GB/s, which is what tiles of 6 x 16 ask for. Fewer rows ask for panels too often (
128 of 2048 terms on a Xeon: 6 % slower); where `MOST_HELD` of them take little, nothing is gained."""
FEWEST_BESIDE_PACKED, MOST_BESIDE_PACKED, FEWEST_BLOCKS = 24, 128, 4
"""Rows of a block that passes a group of panels which were packed at run time (256 x 8,192 x 512 with AVX2 is
4 % slower in blocks of 12 rows; Zen 5, ms, all rows and blocks of 512, 256, 128: 2,048 x 2,048 x 2,048 72.0,
71.5, 73.1, 70.5; 3,072 x 3,072 x 3,072 269, 251, 253, 245), and how many blocks there are at least."""
FEWEST_GROUPS = 8
"""Groups of panels, at least: threads share them."""
NARROW = 2
"""Vectors of a panel of which each cycle asks for four bytes of rows: more than a far cache gives."""
EVEN = 1.01
"""Cost of a row of a block in that of one in the best block, up to which there may be more blocks."""
OWN_SHARE = 8
"""Into how many parts other cores and other tensors divide the last cache."""
FEW_TERMS, MORE_TERMS = 16, 128
"""Terms of sums up to which it is the result that memory is busy with, where the panels of all columns stay
in the second cache. Then one tile of rows passes all panels before the next one does, so that rows are
written from left to right (Zen 3, ms: 1,024 x 1 x 1,024 0.23 -> 0.08, 1,024 x 4 x 1,024 0.25 -> 0.11,
512 x 5 x 1,024 0.12 -> 0.07, 2,048 x 8 x 2,048 1.4 -> 1.2). Of more terms it is so for wide panels, and where
rows of the result end within lines, so that panels share these (Zen 4, two threads, us: AVX-512 4,096 x 16 x
256 231 -> 151, 4,096 x 32 x 256 301 -> 291, 3,000 x 128 x 500 1,766 -> 1,686; AVX2 3,000 x 24 x 500 465 ->
342, 3,000 x 128 x 500 1,881 -> 1,683, but 2,048 x 64 x 512 585 -> 614)."""
FEWEST_WRITTEN, MOST_WRITTEN = 4, 16
"""Rows of such a tile: 1,024 x 1 x 1,024 takes 0.075, 0.083, 0.15 and 0.16 ms with 4, 8, 16 and 32."""
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
    column = spatial[-1]
    columns = column.extent.value
    second = [x for x in loads_of(b.body) if x.buffer is not written(b)]
    mixes = any(column.sym not in symbols_in(x.indices) for x in second)
    panel = packed_panel(b) or _own_panel(s, block, target, columns, mixes=mixes)
    panel = _narrowed(panel, columns, target.lanes(dtype.itemsize))
    by_column = [x for x in second if column.sym in symbols_in(x.indices)]
    batch = {y for x in by_column for y in symbols_in(x.indices)} if mixes else set[Sym]()
    others = range(len(spatial) - 1)
    before = [i for i in others if spatial[i].sym in batch]
    free = [i for i in others if i not in before and i not in outermost]
    wide = [i for i in free if spatial[i].extent != 1]
    row = (wide or free or [None])[-1]
    free = [i for i in free if i != row]
    packs = packing(s, block, panel, target) if mixes else None
    few = columns is not None and columns < MIN_PARALLEL_PANELS * panel
    has_lines = any(spatial[i].extent != 1 for i in free)
    if packs is None and not before and has_lines:
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
    rows = None if row is None else spatial[row].extent
    is_product_of_rows = sums_one_axis(b) and mixes and not free
    # Of a batch that nobody knows the size of, threads share rows as of one sample.
    is_alone = not before or (few and [spatial[i].extent.value for i in before] == [None])
    shape = max(panel // target.lanes(dtype.itemsize), 1), registers
    at_once = None
    if packs is not None and not packs.is_transposed and not before and columns is not None:
        packs = replace(packs, is_whole=columns <= panel)
    if packs is not None and not packs.is_whole and rows is not None and is_product_of_rows:
        packs, at_once = _group_of_panels(b, packs, panel, rows, shape, target)
    elif is_product_of_rows and is_alone:
        at_once = _block_of_rows(s, block, rows, shape, target, few=few)
    dots = _sums_many_dots(b, kind)
    line = at_once or (None if rows is None else rows.value)
    options = [] if rows is None else tile_options(target, dtype, panel, line, registers, dots=dots)
    if at_once is not None and rows is not None and rows.value is not None and rows.value % at_once:
        tile = most_rows(*shape)
        # Blocks are whole tiles, but for the last one.
        options = [tuple(n for n in (tile, rows.value % tile) if n)]
    tiles = row_tiles(s, block, options) if options else ()
    return Plan(tuple(before), tuple(free), row, panel, tiles, packs, at_once)


def is_short(b: Block, plan: Plan) -> bool:
    """Whether rows are cut into blocks of which the last has fewer."""
    spatial = [i.extent for i in b.iters if i.kind is IterKind.SPATIAL]
    return plan.row is not None and plan.block is not None and (spatial[plan.row] % plan.block) != 0


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
    terms = _terms(b)
    held = target.last_bytes // OWN_SHARE
    fits = terms is not None and terms * plan.panel * written(b).dtype.itemsize <= held
    return packed[0].buffer.name if fits else None


def _is_packed(load: Load, column: Sym) -> bool:
    """Whether a load is along the columns of a panel."""
    atom = load.indices[-1].atom if load.indices else None
    return isinstance(atom, Mod) and column in symbols(load.indices[-1])


def lines_of_rows(b: Block) -> bool | None:
    """Return whether the rows of a product are on several axes that are known; None if not on several.

    Axes of which one is known and another is not stay: what they are merged to would not be known.
    """
    lines = [i.extent.value for i in b.iters if i.kind is IterKind.SPATIAL and i.extent != 1][:-1]
    known = sum(n is not None for n in lines)
    if not is_product(b) or len(lines) < 2 or known == 1:
        return None
    return known > 1


def _rows_held(b: Block, count: int, target: Target) -> int:
    """Return how many of so many rows pass all panels before the next ones do; 0 for all of them at once.

    Rows that do not stay in the last cache come from memory for each panel, and panels that are read for
    each block of rows come from that cache. Rows that do not stay in the second one come from the last.
    """
    terms = _terms(b)
    column = [i for i in b.iters if i.kind is IterKind.SPATIAL][-1].sym
    first = [
        x for x in loads_of(b.body) if x.buffer is not written(b) and column not in symbols_in(x.indices)
    ]
    if terms is None or len(first) != 1:
        return 0
    row = terms * first[0].buffer.dtype.itemsize
    near, last = target.l2_bytes, target.last_bytes
    if count * row > near and ENOUGH_HELD <= (held := near // 2 // max(row, 1)) <= MOST_HELD:
        return held
    return min(MOST_HELD, last // OWN_SHARE // max(row, 1)) if count * row > last // OWN_SHARE else 0


def _written_by_row(b: Block, count: int, shape: tuple[int, int], target: Target) -> list[int]:
    """Return how many of so many rows may pass all panels at a time; none where results take no time."""
    terms = _terms(b) or MORE_TERMS + 1
    columns = [i for i in b.iters if i.kind is IterKind.SPATIAL][-1].extent.value or 0
    row = columns * written(b).dtype.itemsize
    most = FEW_TERMS if shape[0] <= NARROW and row % LINE == 0 else MORE_TERMS
    if terms > most or 4 * terms * row > target.l2_bytes or count * row <= target.l2_bytes:
        return []
    return divisors(count, FEWEST_WRITTEN, MOST_WRITTEN) or [most_rows(*shape)]


def _block_of_rows(
    s: Schedule, block: str, rows: Int | None, shape: tuple[int, int], target: Target, *, few: bool
) -> int | None:
    """Return into how many rows at a time rows are cut; None where they are not.

    Args:
        s: the schedule, which leaves it open.
        block: the product.
        rows: how many there are.
        shape: vectors of a tile, and the registers that there are.
        target: the machine.
        few: whether they pass few panels: then they are cut for threads to share.
    """
    count, tile = None if rows is None else rows.value, most_rows(*shape)
    if count is None or count < 2 * MIN_PARALLEL_PANELS * tile:
        return None
    if written_by_row := [] if few else _written_by_row(s.block(block), count, shape, target):
        return s.asked.pick(f"{block}.block", written_by_row[0], (*written_by_row[1:3], 0)) or None
    held = None if few else _rows_held(s.block(block), count, target)
    if held == 0:
        return None
    least = 2 * tile if held is None else FEWEST_HELD
    sizes = divisors(count, least, count // MIN_PARALLEL_PANELS)
    costs = {d: row_cost(d, *shape) for d in sizes if held is None or d <= held}
    even = [d for d in costs if costs[d] <= EVEN * min(costs.values())]
    default = next((d for d in reversed(even) if held or d * SHARED <= count), min(even, default=0))
    if held is not None and not even:
        whole = _whole_tiles(min(held, count // SHARED), tile)
        default = whole if whole >= FEWEST_HELD else 0  # the last block has fewer rows
    others = [d for d in sizes if 2 * d <= default]
    return s.asked.pick(f"{block}.block", default, (*others[-1:-3:-1], 0), of_threads=few) or None


def _group_of_panels(
    b: Block, packs: Packing, panel: int, rows: Int, shape: tuple[int, int], target: Target
) -> tuple[Packing, int | None]:
    """Return how many panels are packed before they are used, and the rows of a block that passes them.

    Rows come from far for each panel where they do not stay in the last cache, half of it taken; or in the
    second one, if a panel is used up so fast that the last one cannot follow. Then they come for each group
    of panels instead, and pass it in blocks that stay in the second cache.
    """
    terms, count, last = _terms(b), rows.value, target.last_bytes
    columns = [i for i in b.iters if i.kind is IterKind.SPATIAL][-1].extent.value
    if columns is None:
        return packs, None
    itemsize = written(b).dtype.itemsize
    panels, side = -(-columns // panel), -(-SIDE_BY_SIDE // (panel * itemsize))
    if not packs.is_transposed:
        packs = replace(packs, group=_side_by_side(panels, side))
    if terms is None or count is None:
        return packs, None
    row = terms * itemsize
    held = target.l2_bytes if shape[0] <= NARROW else last // 2
    groups = max(FEWEST_GROUPS, -(-panels * panel * row * OWN_SHARE // max(last, 1)))
    block = _whole_tiles(min(MOST_BESIDE_PACKED, target.l2_bytes // 2 // max(row, 1)), most_rows(*shape))
    is_few = block < FEWEST_BESIDE_PACKED or block * FEWEST_BLOCKS > count or panels < 2 * groups
    if is_few or count * row < held:
        return packs, None
    return replace(packs, group=-(-panels // groups)), block


def _side_by_side(panels: int, side: int) -> int:
    """Return how many panels are packed together: about so many, and threads have equal shares."""
    equal = divisors(panels, 2, 2 * side) if side > 1 else []
    shared = [n for n in equal if panels // n >= SHARED or panels // n % MIN_PARALLEL_PANELS == 0]
    return min(shared, key=lambda n: abs(n - side), default=1)


def _whole_tiles(rows: int, tile: int) -> int:
    return rows // tile * tile


def _terms(b: Block) -> int | None:
    """Return how many terms each sum has; None where that is not known."""
    extents = [i.extent.value for i in b.iters if i.kind is IterKind.REDUCE]
    known = [n for n in extents if n is not None]
    return prod(known) if len(known) == len(extents) else None


def _narrowed(panel: int, columns: int | None, one: int) -> int:
    """Return a panel no wider than the columns, unless they fill vectors badly: those are masked."""
    if columns is None or columns >= panel:
        return panel
    return columns if columns % one == 0 or columns & (columns - 1) == 0 else panel


def _sums_many_dots(b: Block, kind: DotProduct | None) -> bool:
    """Whether a sum is of more dot products than are written out: short ones run beside the next tile's."""
    terms = _terms(b)
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
