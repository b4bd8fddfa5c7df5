"""Let a matrix unit compute a nest of loops."""

from __future__ import annotations

from inlay.loop.matrices import MatrixAdd, MatrixZero, match_matrix
from inlay.loop.ranges import Bounds
from inlay.loop.stmt import Block, For, LoopKind, Stmt, Store
from inlay.loop.walk import Rewrite
from inlay.machine.matrix_units import MATRIX_PRODUCTS, MatrixProduct
from inlay.schedule.primitives.split import require_serial
from inlay.schedule.state import Schedule, illegal, primitive


@primitive
def use_matrix_unit(s: Schedule, loop: str, kind: str) -> None:
    """Mark a nest of loops over rows, columns and steps of sums as one matrix instruction.

    Before:

        alloc c: i32[4, 16] @matrix
        for i in 0..4 { for l in 0..16 { block zero(u: spatial 4 = i, v: spatial 16 = l) {
          c[u, v] = 0:i32 } } }
        for i_1 in 0..4 { for l_1 in 0..16 { for k in 0..2 {
          block sum(u: spatial 4 = i_1, v: spatial 16 = l_1, r: reduce 2 = k) {
            c[u, v] = dot(j < 4, c[u, v], x[u, 4*r + j], w[r, v, j]) } } } }
        for i_2 in 0..4 { for l_2 in 0..16 { block copy(u: spatial 4 = i_2, v: spatial 16 = l_2) {
          y[u, v] = c[u, v] } } }

    After `use_matrix_unit(s, "i_1", "u8i8")`:

        alloc c: i32[4, 16] @matrix
        for i in 0..4 { for l in 0..16 { block zero(u: spatial 4 = i, v: spatial 16 = l) {
          c[u, v] = 0:i32 } } }
        for i_1 in 0..4 matrix { for l_1 in 0..16 matrix { for k in 0..2 matrix {
          block sum(u: spatial 4 = i_1, v: spatial 16 = l_1, r: reduce 2 = k) {
            c[u, v] = dot(j < 4, c[u, v], x[u, 4*r + j], w[r, v, j]) } } } }
        for i_2 in 0..4 { for l_2 in 0..16 { block copy(u: spatial 4 = i_2, v: spatial 16 = l_2) {
          y[u, v] = c[u, v] } } }

    The nests that set sums to zero and that copy them are instructions too, and are marked by calls of
    their own. The meaning stays that of the loops: what has no such unit runs them.

    Args:
        s: the schedule.
        loop: that over rows, the outermost of the nest.
        kind: of the instruction (`machine/matrix_units.py`).

    Raises:
        Illegal: `schedule.not-nested`, `schedule.not-constant`, `schedule.kind`.
    """
    place, old = s.loop_place(loop), s.loop(loop)
    unit = MATRIX_PRODUCTS.get(kind)
    if unit is None:
        raise illegal("kind", f"found matrix instruction '{kind}', needed one of {sorted(MATRIX_PRODUCTS)}")
    loops: list[For] = []
    inner: Stmt = old
    while isinstance(inner, For):
        require_serial(inner)
        loops.append(inner)
        inner = inner.body
    if not isinstance(inner, Block) or inner.init is not None or not isinstance(inner.body, Store):
        raise illegal("not-nested", f"found not just loops and a block of one store inside {loop}")
    if inner.predicate is not None:
        raise illegal("kind", f"found {inner.name} to run in some iterations only")
    bounds = Bounds()
    for x in (*(p.stmt for p in reversed([*place.above()])), *loops):
        if isinstance(x, For):
            bounds = bounds.inside(x.var, x.lo, x.extent)
    _require_fit(loops, inner, unit, bounds)
    result: Stmt = inner
    for x in reversed(loops):
        result = For(x.var, x.lo, x.extent, LoopKind.MATRIX, result, x.note)
    s.replace(place, result)


def _require_fit(loops: list[For], block: Block, unit: MatrixProduct, bounds: Bounds) -> None:
    """Refuse what is none of the unit's instructions, or larger than they are."""
    values = {i.sym: e for i, e in zip(block.iters, block.bindings, strict=True)}
    simplified = Rewrite(values).stmt(block.body)
    store = Rewrite(access=lambda b, at: (b, tuple(map(bounds.simplify, at)))).stmt(simplified)
    assert isinstance(store, Store), "a store stays one"
    nest = match_matrix(loops, store)
    if isinstance(nest, str):
        raise illegal("kind", f"{block.name}: {nest}")
    sizes = [("rows", nest.rows, unit.rows), ("columns", nest.columns, unit.columns)]
    if isinstance(nest, MatrixAdd):
        sizes.append(("steps", nest.steps, unit.steps))
        formats = (nest.a.buffer.dtype, nest.b.buffer.dtype)
        if formats != (unit.first, unit.second) or nest.width != unit.width:
            here = f"{nest.width} terms of {formats[0]} and {formats[1]}"
            needed = f"{unit.width} of {unit.first} and {unit.second}"
            raise illegal("kind", f"found {here}, needed {needed} for {unit.name}")
    for what, found, most in sizes:
        if found > most:
            raise illegal("not-constant", f"found {found} {what}, needed at most {most} for {unit.name}")
    if isinstance(nest, MatrixAdd | MatrixZero) and nest.sums.buffer.scope != "matrix":
        raise illegal("kind", f"found sums in {nest.sums.buffer.scope}, needed the scope matrix")
