"""Which rows of a product stay in a cache while panels pass them, and which panels while rows do.

A tile of rows multiplies one panel of columns. Where rows stay in a cache, all of them pass a panel before
the next one comes, and each panel comes from memory once. Else rows would come anew for each panel, which
may be more than a cache gives; so they are cut into blocks:

    a block passes           where                                    what comes again
    all panels               no cache near enough holds all rows      panels, for each block
    all panels, as one tile  sums have few terms: results are slow    panels, from the second cache
    a group of panels        panels are packed at run time            rows, for each group

Blocks and groups need divide nothing; the last one has less then. Few panels are shared by threads in blocks
of rows as well, however near the rows are.
"""

from __future__ import annotations

from dataclasses import replace

from inlay.analysis.register_tiles import most_rows, row_cost
from inlay.arith.expr import Int
from inlay.loop.stmt import Block, IterKind
from inlay.loop.walk import loads_of
from inlay.machine.target import Target
from inlay.schedule.rules.groups import symbols_in, terms_of, written
from inlay.schedule.rules.loops import divisors
from inlay.schedule.rules.nests import SHARED
from inlay.schedule.rules.packing import SIDE_BY_SIDE, Packing
from inlay.schedule.rules.transposed import LINE
from inlay.schedule.state import Schedule

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


def block_of_rows(
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


def _rows_held(b: Block, count: int, target: Target) -> int:
    """Return how many of so many rows pass all panels before the next ones do; 0 for all of them at once.

    Rows that do not stay in the last cache come from memory for each panel, and panels that are read for
    each block of rows come from that cache. Rows that do not stay in the second one come from the last.
    """
    terms = terms_of(b)
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
    terms = terms_of(b) or MORE_TERMS + 1
    columns = [i for i in b.iters if i.kind is IterKind.SPATIAL][-1].extent.value or 0
    row = columns * written(b).dtype.itemsize
    most = FEW_TERMS if shape[0] <= NARROW and row % LINE == 0 else MORE_TERMS
    if terms > most or 4 * terms * row > target.l2_bytes or count * row <= target.l2_bytes:
        return []
    return divisors(count, FEWEST_WRITTEN, MOST_WRITTEN) or [most_rows(*shape)]


def group_of_panels(
    b: Block, packs: Packing, panel: int, rows: Int, shape: tuple[int, int], target: Target
) -> tuple[Packing, int | None]:
    """Return how many panels are packed before they are used, and the rows of a block that passes them.

    Rows come from far for each panel where they do not stay in the last cache, half of it taken; or in the
    second one, if a panel is used up so fast that the last one cannot follow. Then they come for each group
    of panels instead, and pass it in blocks that stay in the second cache.
    """
    terms, count, last = terms_of(b), rows.value, target.last_bytes
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
