"""Products between nests that make a factor and nests that read the result, block by block.

Winograd's form of a convolution is nests over temporaries with axes in common, the *blocks*:

    for b in blocks { lines[b, ..] = .. x .. }
    for b in blocks { halves[b, ..] = .. lines[b, ..] .. }
    for b in blocks { tiles[b, f, t, c] = .. halves[b, ..] .. }
    for b in blocks { products[b, f, t, o] = sum of tiles[b, f, t, c] * w[f, c, o] }
    for y in rows   { y[y, ..] = .. products[y / h, ..] .. }

They are run as one loop over blocks, whose temporaries hold one block and stay in the second cache:

    for b in blocks parallel { lines; halves; tiles; products; for y in h rows of y: .. }

With fewer than `FEWEST_BLOCKS` blocks, nests stay apart, and threads share each of them by itself: its
temporaries are small anyway.
"""

from __future__ import annotations

from dataclasses import dataclass

from inlay.analysis.winograd import FEWEST_BLOCKS
from inlay.arith.expr import FloorDiv, Int, coefficient, symbols, to_int
from inlay.loop.buffer import Scope
from inlay.loop.scalar import Load
from inlay.loop.stmt import IterKind, LoopKind
from inlay.loop.walk import loads_of
from inlay.machine.target import Target
from inlay.schedule.primitives.reorder import reorder
from inlay.schedule.primitives.set_scope import set_scope
from inlay.schedule.primitives.split import split
from inlay.schedule.rules.choices import write_out_choices
from inlay.schedule.rules.groups import symbols_in, written
from inlay.schedule.rules.loops import merge_all
from inlay.schedule.rules.nests import vectorize_nest
from inlay.schedule.state import Schedule


@dataclass(frozen=True, slots=True)
class Stages:
    """Nests around a product that are run block by block.

    Attributes:
        makers: blocks that make the factor, in order.
        product: the block that multiplies.
        reader: the block that reads the result.
        temporaries: names of what the makers write and of the result, in order.
        axes: leading axes that temporaries have in common, in the order of the loops over them.
    """

    makers: tuple[str, ...]
    product: str
    reader: str
    temporaries: tuple[str, ...]
    axes: tuple[int, ...]


def stages(s: Schedule, product: str) -> Stages | None:
    """Return the nests that are run block by block with a product; None where there is no such axis.

    The product is one of many, one for each index of the weights' first axes, of a factor that is made in
    this function.
    """
    b = s.block(product)
    spatial = [i for i in b.iters if i.kind is IterKind.SPATIAL]
    factors = [x for x in loads_of(b.body) if x.buffer is not written(b)]
    names = s.block_names()
    following = names[names.index(product) + 1 :]
    if len(factors) != 2 or written(b).scope == Scope.PARAM or not following:
        return None
    made = [x for x in factors if spatial[-1].sym not in symbols_in(x.indices)]
    if len(made) != 1 or made[0].buffer.scope == Scope.PARAM:
        return None
    weights = next(symbols_in(x.indices) for x in factors if x is not made[0])
    count = 0
    for axis, e in zip(spatial, made[0].indices, strict=False):
        if e != to_int(axis.sym) or axis.sym in weights:
            break
        count += 1
    if count == 0 or count + 3 > len(spatial) or spatial[count].sym not in weights:
        return None
    readers = [n for n in names if any(x.buffer is written(b) for x in loads_of(s.block(n))) and n != product]
    makers = _makers(s, made[0], product, count)
    if readers != [*following[:1]] or names.index(product) < len(makers) or not makers:
        return None
    extents = [i.extent.value for i in spatial[:count]]
    axes = [i for i in range(count) if extents[i] != 1]
    axes.sort(key=lambda i: (extents[i] or 0) < FEWEST_BLOCKS)
    # An open number of images may be one, which is no block for each thread.
    known = [n for i in axes if (n := extents[i]) is not None]
    if not known or (known[0] < FEWEST_BLOCKS and None not in extents):
        return None
    temporaries = (*(written(s.block(name)).name for name in makers), written(b).name)
    return Stages(makers, product, readers[0], temporaries, tuple(axes))


def _makers(s: Schedule, factor: Load, reader: str, count: int) -> tuple[str, ...]:
    """Return the blocks right in front of a reader that make what it reads, with the same leading axes."""
    names = s.block_names()
    found: list[str] = []
    at, load = names.index(reader) - 1, factor
    while at >= 0:
        b = s.block(names[at])
        if b.init is not None or written(b) is not load.buffer or written(b).scope == Scope.PARAM:
            break
        found.insert(0, names[at])
        leading = [to_int(i.sym) for i in b.iters[:count]]
        loads = [x for x in loads_of(b.body) if list(x.indices[:count]) == leading]
        if not loads:
            break
        load, at = loads[0], at - 1
    return tuple(found)


def vectorize_stages(s: Schedule, found: Stages, target: Target) -> None:
    """Put vectors into the nests around a product, and loops over blocks outside."""
    for name in found.makers:
        loops = [_axis_loop(s, name, axis) for axis in found.axes]
        _vectorize(s, name, target)
        reorder(s, [*loops, *(x for x in s.loops_of(name) if x not in loops)])
    _vectorize(s, found.reader, target)
    loops = [_block_loop(s, found, axis) for axis in found.axes]
    reorder(s, [*loops, *(x for x in s.loops_of(found.reader) if x not in loops)])


def _vectorize(s: Schedule, name: str, target: Target) -> None:
    vectorize_nest(s, s.loops_of(name)[-1], target)
    write_out_choices(s, name)
    b = s.block(name)
    for e in {e for x in loads_of(b) for e in x.indices}:
        for atom in {a for monomial, _ in e.terms for a in monomial if isinstance(a, FloorDiv)}:
            at = next((i for i, x in enumerate(b.iters) if atom.numerator == to_int(x.sym)), None)
            loop = None if at is None else _own_loop(s, name, b.bindings[at])
            size = atom.denominator.value
            if loop is not None and size is not None and s.loop(loop).kind is LoopKind.SERIAL:
                split(s, loop, size)


def join(s: Schedule, found: Stages) -> None:
    """Run nests as one loop over blocks, with temporaries of one block.

    Requires: the outermost loops of the nests are those over blocks; rows of the product are not yet tiled.
    """
    nests = [s.loops_of(name)[: len(found.axes)] for name in (*found.makers, found.product, found.reader)]
    merge_all(s, nests)
    for name in found.temporaries:
        set_scope(s, name, Scope.WORKSPACE, at=nests[0][-1])


def _axis_loop(s: Schedule, block: str, axis: int) -> str:
    """Return the loop over an axis of a block, which is not split."""
    found = _own_loop(s, block, s.block(block).bindings[axis])
    assert found is not None, "a nest begins with a loop for each axis"
    return found


def _own_loop(s: Schedule, block: str, binding: Int) -> str | None:
    return next((x for x in s.loops_of(block) if binding.atom == s.loop(x).var), None)


def _block_loop(s: Schedule, found: Stages, axis: int) -> str:
    """Return the reader's loop over an axis of the result, split off where it passes that in steps."""
    b = s.block(found.reader)
    e = next(x.indices[axis] for x in loads_of(b) if x.buffer.name == found.temporaries[-1])
    step = e.atom.denominator.value if isinstance(e.atom, FloorDiv) else 1
    at = next(i for i, x in enumerate(b.iters) if x.sym in symbols(e))
    strides = [(coefficient(b.bindings[at], s.loop(x).var), x) for x in s.loops_of(found.reader)]
    stride, outer = max((c.value, x) for c, x in strides if c is not None and c.value)
    return outer if step is None or stride == step else split(s, outer, step // stride)[0]
