"""Drawn attention: products, masks and softmax of many shapes and spellings, with inputs.

Dims are numbers or symbols, heads are one axis, two (with keys and values that several heads share) or
none, operands are transposed or as they are, masks have any shape that broadcasts and hide whole rows. As
exporters write it, shared keys and values are copied for each head, by a broadcast or as tiles, queries and
keys are scaled each, and matrices are transposed with all outer axes in one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from inlay.arith.dtype import BF16, BOOL, F16, F32, F64, DType
from inlay.arith.expr import Int, fresh, lit, product, to_int
from inlay.ir import make
from inlay.ir.expr import Expr
from inlay.ir.module import Module
from tests.property.gen_ir import Draw
from tests.unit.transforms.programs import Program


@dataclass(frozen=True)
class Attention:
    """A program and inputs for it.

    Attributes:
        module: with one entry.
        args: its inputs.
        dtype: of its tensors.
    """

    module: Module
    args: tuple[np.ndarray, ...]
    dtype: DType


@dataclass
class _Drawing:
    """A program while it is drawn."""

    draw: Draw
    dtype: DType
    program: Program
    args: list[np.ndarray]
    rng: np.random.Generator

    def dim(self, name: str, size: int) -> tuple[Int, int]:
        """Return a dim that is a number or a symbol, and its size."""
        known = size == 1 or self.draw(st.booleans())
        return (lit(size) if known else to_int(fresh(name))), size

    def input(self, name: str, dims: list[tuple[Int, int]], dtype: DType | None = None) -> Expr:
        """Return an input of random numbers."""
        shape, sizes = [d for d, _ in dims], [n for _, n in dims]
        if dtype == BOOL:
            array = self.rng.random(sizes) < 0.7
        else:
            array = self.rng.standard_normal(sizes).astype(self.dtype.numpy)
        self.args.append(array)
        return self.program.input(name, *shape, dtype=dtype or self.dtype)

    def heads(self, name: str, outer: list[tuple[Int, int]], inner: list[tuple[Int, int]]) -> Expr:
        """Return matrices of heads, which a transpose puts outside where the input has rows outside."""
        if not outer or self.draw(st.booleans()):
            return self.input(name, [*outer, *inner])
        rank = len(outer) + 2
        x = self.input(name, [*outer[:-1], inner[0], outer[-1], inner[1]])
        perm = (*range(rank - 3), rank - 2, rank - 3, rank - 1)
        return self.program.op("transpose", x, perm=perm)

    def copied(self, name: str, outer: list[tuple[Int, int]], inner: list[tuple[Int, int]]) -> Expr:
        """Return matrices that several heads share, one for each head; these are the last of the outer axes."""
        *rest, (groups, m), (each, n) = outer
        once, op = self.input(name, [*rest, (groups, m), *inner]), self.program.op
        sizes = [d for d, _ in inner]
        one = op("reshape", once, make.shape_const([*(d for d, _ in rest), groups, lit(1), *sizes]))
        wide = [*(d for d, _ in rest), groups, each, *sizes]
        if self.draw(st.booleans()):
            copies = op("broadcast_to", one, make.shape_const(wide))
        else:
            copies = op("tile", one, make.shape_const([*[1] * len(rest), 1, n, 1, 1]))
        return op("reshape", copies, make.shape_const([*(d for d, _ in rest), lit(m * n), *sizes]))

    def swapped(self, x: Expr, outer: list[tuple[Int, int]], inner: list[tuple[Int, int]]) -> Expr:
        """Return transposed matrices, which may be one behind the other for that."""
        op, rank = self.program.op, len(outer) + 2
        if not outer or self.draw(st.booleans()):
            return op("transpose", x, perm=(*range(rank - 2), rank - 1, rank - 2))
        (rows, _), (columns, _) = inner
        flat = op("reshape", x, make.shape_const([product([d for d, _ in outer]), rows, columns]))
        moved = op("transpose", flat, perm=(0, 2, 1))
        return op("reshape", moved, make.shape_const([*(d for d, _ in outer), columns, rows]))

    def scaled(self, x: Expr) -> Expr:
        """Return a tensor, or a part of it."""
        return self.program.op("mul", x, self.number(0.5)) if self.draw(st.booleans()) else x

    def number(self, value: float) -> Expr:
        """Return a number of the format."""
        return make.const(np.array(value, self.dtype.numpy))


def _masked(d: _Drawing, scores: Expr, dims: list[tuple[Int, int]]) -> Expr:
    """Add a mask, or choose by one, or do neither."""
    kind = d.draw(st.sampled_from(("none", "add", "select", "both")))
    if kind in ("add", "both"):
        shape = [x if d.draw(st.booleans()) else (lit(1), 1) for x in dims]
        scores = d.program.op("add", scores, d.input("bias", shape))
    if kind in ("select", "both"):
        kept = d.input("kept", [(lit(1), 1)] * (len(dims) - 2) + dims[-2:], BOOL)
        hidden = d.draw(st.sampled_from((-np.inf, -1e4)))
        scores = d.program.op("select", kept, scores, d.number(hidden))
    return scores


def _shares(d: _Drawing, scores: Expr, axis: int) -> Expr:
    """Return softmax, as one operator or spelled out."""
    op = d.program.op
    if d.draw(st.booleans()):
        return op("softmax", scores, axis=-1)
    top = op("reduce_max", scores, axes=(axis,), keepdims=True)
    e = op("exp", op("sub", scores, top))
    return op("div", e, op("reduce_sum", e, axes=(axis,), keepdims=True))


@st.composite
def attentions(draw: Draw) -> Attention:
    """Draw a program."""
    dtype = draw(st.sampled_from((F32, F32, F32, F64, F16, BF16)))
    program = Program()
    d = _Drawing(draw, dtype, program, [], np.random.default_rng(draw(st.integers(0, 99))))
    counts = draw(st.lists(st.sampled_from((2, 1, 3, 5)), max_size=3))
    outer = [d.dim("h", n) for n in counts]
    shared = [*outer[:-1], (lit(1), 1)] if outer and draw(st.booleans()) else outer
    rows, keys = (d.dim(n, draw(st.sampled_from((2, 7, 16, 33, 70, 130, 1)))) for n in "ts")
    inner, columns = ((lit(n), n) for n in draw(st.tuples(*[st.sampled_from((3, 16, 20, 40, 1))] * 2)))
    if len(outer) > 1 and draw(st.booleans()):
        whole = [*outer[:-2], *((lit(n), n) for _, n in outer[-2:])]
        k, v = d.copied("k", whole, [keys, inner]), d.copied("v", whole, [keys, columns])
        heads = outer[-2][1] * outer[-1][1]
        outer = shared = [*outer[:-2], (lit(heads), heads)]
    else:
        k, v = d.heads("k", shared, [keys, inner]), d.heads("v", shared, [keys, columns])
    q = d.heads("q", outer, [rows, inner])
    rank = len(outer) + 2
    swapped = d.scaled(d.swapped(k, shared, [keys, inner]))
    scores = program.op("matmul", d.scaled(q), swapped)
    if draw(st.booleans()):
        scores = program.op("mul", scores, d.number(0.25))
    scores = _masked(d, scores, [*outer, rows, keys])
    y = program.op("matmul", _shares(d, scores, rank - 1), v)
    if draw(st.booleans()):
        y = program.op("mul", y, d.input("gate", [*outer, rows, columns]))
    return Attention(program.module(y), tuple(d.args), dtype)
