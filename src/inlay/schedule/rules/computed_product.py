"""Products of a few rows whose factors are both computed: what the rules for them ask first."""

from __future__ import annotations

from dataclasses import dataclass

from inlay.analysis.register_tiles import panel_widths
from inlay.loop.scalar import Load
from inlay.loop.stmt import BlockIter, IterKind
from inlay.loop.walk import loads_of
from inlay.machine.target import Target
from inlay.schedule.rules.contraction_class import epilogue_of, no_contraction
from inlay.schedule.rules.contraction_plan import Plan, row_tiles, tile_options
from inlay.schedule.rules.groups import is_product, packed_panel, symbols_in, written
from inlay.schedule.rules.loops import divisors
from inlay.schedule.rules.packing import FEWEST_ROWS, rows_of
from inlay.schedule.state import Schedule, illegal

BLOCK, LEAST_BLOCK = 8, 4
"""Rows of the second factor that are read side by side, at most and at least. Rows of whole pages share the
sets of the first cache, which has eight ways (Zen 3, ms with 16, 8 and 4: 1 x 1,024 x 1,024 0.16, 0.07, 0.07;
16 x 2,048 x 2,048 2.9, 2.4, 4.2)."""
RUN = 64
"""Columns that a row is read for at least."""


@dataclass(frozen=True, slots=True)
class ComputedProduct:
    """A product of matrices as they are; the only nest of a function but for its epilogue.

    Attributes:
        block: its name.
        epilogue: the block that makes something of each sum; None for none.
        spatial: its axes of the result, the columns last.
        terms: the axis that it sums over.
        second: how it reads the factor with the columns.
        rows: how often each element of that is used: too rarely for packing to pay.
        itemsize: bytes of an element.
    """

    block: str
    epilogue: str | None
    spatial: tuple[BlockIter, ...]
    terms: BlockIter
    second: Load
    rows: int
    itemsize: int

    @property
    def batch(self) -> tuple[int, ...]:
        """Positions of the axes of which each element has a factor of its own."""
        own = symbols_in(self.second.indices)
        axes = enumerate(self.spatial[:-1])
        return tuple(i for i, x in axes if x.sym in own and x.extent != 1)


def rows_together(terms: int | None) -> int:
    """Return how many rows of the second factor are read side by side: a divisor, if there is one.

    A block with fewer rows than the others is a loop, and makes loops of all (1 x 900 x 1,000 with AVX2
    66 us, 1 x 904 x 1,000 50).
    """
    found = [] if terms is None else divisors(terms, LEAST_BLOCK, BLOCK)
    return found[-1] if found else BLOCK


def computed_product(s: Schedule) -> ComputedProduct:
    """Return the product of a function.

    Raises:
        Illegal: `schedule.class`.
    """
    reductions = [b for b in s.block_names() if s.block(b).init is not None]
    if len(reductions) != 1 or no_contraction(s, reductions[0]):
        raise illegal("class", "found no single sum of products along columns")
    block, b = reductions[0], s.block(reductions[0])
    terms = [i for i in b.iters if i.kind is IterKind.REDUCE]
    factors = [x for x in loads_of(b.body) if x.buffer is not written(b)]
    spatial = tuple(i for i in b.iters if i.kind is IterKind.SPATIAL)
    second = [x for x in factors if spatial[-1].sym in symbols_in(x.indices)]
    is_plain = is_product(b) and len(terms) == 1 and packed_panel(b) is None and b.predicate is None
    if (
        not is_plain
        or len(factors) != 2
        or len(second) != 1
        or second[0].buffer.dtype is not written(b).dtype
    ):
        raise illegal("class", f"found '{block}', which is no product of two matrices as they are")
    rows = rows_of(b, second[0])
    if not 0 < rows < FEWEST_ROWS:
        raise illegal("class", f"found {rows or 'any number of'} rows, needed 1 to {FEWEST_ROWS - 1}")
    epilogue = epilogue_of(s, block)
    if list(s.block_names()) != [block, *([] if epilogue is None else [epilogue])]:
        raise illegal("class", "found something else beside a product, needed one alone")
    return ComputedProduct(block, epilogue, spatial, terms[0], second[0], rows, written(b).dtype.itemsize)


def require_large(product: ComputedProduct, target: Target) -> None:
    """Refuse factors that the first cache holds, and those whose rows are short.

    Raises:
        Illegal: `schedule.class`.
    """
    columns, size = product.spatial[-1].extent.value, product.terms.extent.value
    if columns is None or columns < 2 * RUN:
        raise illegal("class", f"found {columns or 'any number of'} columns, needed {2 * RUN} or more")
    if size is not None and (size <= BLOCK or size * columns * product.itemsize <= target.l1_bytes):
        raise illegal("class", f"found a factor of {size} x {columns}, needed one that fills the first cache")


def plan_of(s: Schedule, product: ComputedProduct, target: Target) -> Plan:
    """Return the order and sizes of tiles.

    Raises:
        Illegal: `schedule.class`.
    """
    spatial, before = product.spatial, product.batch
    others = [i for i in range(len(spatial) - 1) if i not in before]
    wide = [i for i in others if spatial[i].extent != 1]
    if len(wide) > 1:
        raise illegal("class", f"found rows on {len(wide)} axes, needed one")
    row = wide[0] if wide else next(iter(others), None)
    dtype, columns = product.second.buffer.dtype, spatial[-1].extent.value or 0
    lanes = target.lanes(dtype.itemsize)
    # Three registers of columns take half as long again (Zen 4, us: 8 x 1,024 x 1,024 281, with four 169).
    widths = panel_widths(target, columns, None, product.rows, sum_bytes=dtype.itemsize)
    ranked = [n for n in widths if n // lanes & (n // lanes - 1) == 0]
    panel = s.asked.pick(f"{product.block}.panel", ranked[0], ranked[1:4])
    options = [] if row is None else tile_options(target, dtype, panel, product.rows)
    tiles = row_tiles(s, product.block, options) if options else ()
    return Plan(before, tuple(i for i in others if i != row), row, panel, tiles, None, None)
