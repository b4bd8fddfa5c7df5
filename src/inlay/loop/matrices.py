"""What a nest of matrix loops computes: which instruction of a matrix unit it is, if it is one.

A nest is two or three loops of constant extents around one store, in the order rows, columns, steps:

    for r, l        { c[.., r, l] = 0:i32 }                                              MatrixZero
    for r, l, k     { c[.., r, l] = dot(j < g, c[.., r, l], a[.., r, k, j], b[k, l, j]) } MatrixAdd
    for r, l        { y[.., r, l] = c[.., r, l] }                                         MatrixCopy

Neighboring columns are next to each other in `c` and `y`, the terms of a row in `a`, the groups of terms
of neighboring columns in `b`. Rows of `c`, `a` and `y`, and steps of `b`, are at any distance that no
loop of the nest changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from inlay.arith.dtype import I32
from inlay.arith.expr import Int, Sym, coefficient, substitute
from inlay.loop.buffer import Buffer, Scope, flat_index
from inlay.loop.scalar import Dot, Lit, Load, Scalar
from inlay.loop.stmt import For, LoopKind, Stmt, Store


@dataclass(frozen=True, slots=True)
class Operand:
    """A matrix in a buffer.

    Attributes:
        buffer: where it is.
        start: its first element, as a distance from the first of the buffer.
        pitch: the distance from row to row, in elements.
    """

    buffer: Buffer
    start: Int
    pitch: Int


@dataclass(frozen=True, slots=True)
class MatrixZero:
    """Sums become zero."""

    rows: int
    columns: int
    sums: Operand


@dataclass(frozen=True, slots=True)
class MatrixAdd:
    """A product of `a`, rows by steps, and `b`, steps by columns, is added to sums."""

    rows: int
    columns: int
    steps: int
    width: int
    sums: Operand
    a: Operand
    b: Operand


@dataclass(frozen=True, slots=True)
class MatrixCopy:
    """Sums are copied."""

    rows: int
    columns: int
    sums: Operand
    to: Operand


MatrixNest = MatrixZero | MatrixAdd | MatrixCopy


def matrix_loops(s: Stmt) -> tuple[tuple[For, ...], Stmt]:
    """Return the matrix loops directly inside one another from a statement on, and what is in them."""
    loops: list[For] = []
    while isinstance(s, For) and s.kind is LoopKind.MATRIX:
        loops.append(s)
        s = s.body
    return tuple(loops), s


def match_matrix(loops: Sequence[For], store: Store) -> MatrixNest | str:
    """Return what a nest computes, or why it is no instruction of a matrix unit."""
    extents = [x.extent.value for x in loops if x.lo == 0]
    sizes = [n for n in extents if n]
    if len(sizes) != len(loops) or len(sizes) not in (2, 3):
        return "found not two or three loops of constant extents that begin at 0"
    nest = _Nest([x.var for x in loops])
    row, column = nest.loops[:2]
    to = nest.operand(store.buffer, store.indices, rows=row, along=((column, 1),))
    if to is None or store.buffer.dtype is not I32:
        return f"found {store.buffer.name} not to have sums of neighboring columns next to each other"
    rows, columns, *steps = sizes
    value = store.value
    if steps:
        return _addition(nest, (rows, columns, steps[0]), to, store, value)
    if isinstance(value, Lit) and value.value == 0:
        return MatrixZero(rows, columns, to)
    if isinstance(value, Load) and value.buffer.scope == Scope.MATRIX:
        sums = nest.operand(value.buffer, value.indices, rows=row, along=((column, 1),))
        return "found sums not in rows" if sums is None else MatrixCopy(rows, columns, sums, to)
    return "found a value that is neither 0 nor sums of a matrix unit"


def _addition(
    nest: _Nest, sizes: tuple[int, int, int], sums: Operand, store: Store, value: Scalar
) -> MatrixAdd | str:
    row, column, step = nest.loops
    if not isinstance(value, Dot):
        return "found a value that is no dot product"
    if value.saturates:
        return "found sums of pairs that saturate"
    acc = value.acc
    if not isinstance(acc, Load) or acc.buffer is not store.buffer or acc.indices != store.indices:
        return "found a dot product that is not added to where it is stored"
    if not isinstance(value.a, Load) or not isinstance(value.b, Load):
        return "found a factor that is not in memory"
    term, width = value.sym, value.width
    inner = _Nest([*nest.loops, term])
    a = inner.operand(value.a.buffer, value.a.indices, rows=row, along=((step, width), (term, 1)))
    b = inner.operand(value.b.buffer, value.b.indices, rows=step, along=((column, width), (term, 1)))
    if a is None:
        return f"found terms of a row of {value.a.buffer.name} not next to each other"
    if b is None:
        return f"found groups of neighboring columns of {value.b.buffer.name} not next to each other"
    return MatrixAdd(*sizes, width, sums, a, b)


class _Nest:
    """The variables of a nest, outermost first."""

    def __init__(self, loops: Sequence[Sym]) -> None:
        self.loops = loops

    def operand(
        self, buffer: Buffer, indices: tuple[Int, ...], *, rows: Sym, along: tuple[tuple[Sym, int], ...]
    ) -> Operand | None:
        """Return the matrix that an access walks; None if it does not walk one as it should."""
        flat = flat_index(buffer, indices)
        steps = dict(along)
        pitch = coefficient(flat, rows)
        if pitch is None:
            return None
        for x in self.loops:
            if x != rows and coefficient(flat, x) != steps.get(x, 0):
                return None
        zero = dict.fromkeys(self.loops, flat - flat)
        return Operand(buffer, substitute(flat, zero), pitch)
