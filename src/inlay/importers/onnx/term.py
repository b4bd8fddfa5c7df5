"""Arithmetic on tensors of the program, written as arithmetic: what composed rules are made of.

    x = term(node, 0)
    y = (x - x.min()) * 2.0

A `Term` is an expression and the node whose scope it is emitted into. Numbers become constants of
the term's own format.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from inlay.arith import dtype as dt
from inlay.arith.expr import Int, to_int
from inlay.importers.onnx.node import Node
from inlay.importers.onnx.values import OnnxValue, known
from inlay.ir import make
from inlay.ir.expr import Expr

Operand: TypeAlias = "Term | float | int | bool"


@dataclass(frozen=True, slots=True, eq=False)
class Term:
    """A tensor under construction."""

    node: Node
    expr: Expr

    @property
    def dtype(self) -> dt.DType:
        """The element format."""
        return self.node.type_of(self.expr).dtype

    @property
    def shape(self) -> tuple[Int, ...]:
        """The dims."""
        return self.node.type_of(self.expr).shape

    @property
    def rank(self) -> int:
        """How many dims."""
        return len(self.shape)

    @property
    def value(self) -> OnnxValue:
        """The term as the result of a rule."""
        return OnnxValue(self.expr)

    def op(self, name: str, *others: Operand, **attrs: object) -> Term:
        """Apply an operator to this and others; numbers take this format."""
        args = [self._expr(o) for o in others]
        return Term(self.node, self.node.emit(name, self.expr, *args, **attrs))

    def _expr(self, other: Operand) -> Expr:
        if isinstance(other, Term):
            return other.expr
        return make.const(np.array(other, self.dtype.numpy))

    # ------------------------------------------------------------------ arithmetic

    def __add__(self, other: Operand) -> Term:
        return self.op("add", other)

    def __sub__(self, other: Operand) -> Term:
        return self.op("sub", other)

    def __mul__(self, other: Operand) -> Term:
        return self.op("mul", other)

    def __truediv__(self, other: Operand) -> Term:
        return self.op("div", other)

    def __neg__(self) -> Term:
        return self.op("neg")

    def __lt__(self, other: Operand) -> Term:
        return self.op("less", other)

    def __le__(self, other: Operand) -> Term:
        return self.op("less_equal", other)

    def __gt__(self, other: Operand) -> Term:
        return self.op("greater", other)

    def __ge__(self, other: Operand) -> Term:
        return self.op("greater_equal", other)

    def __and__(self, other: Operand) -> Term:
        return self.op("logical_and", other)

    def __or__(self, other: Operand) -> Term:
        return self.op("logical_or", other)

    def __invert__(self) -> Term:
        return self.op("logical_not")

    def equals(self, other: Operand) -> Term:
        """Compare element by element."""
        return self.op("equal", other)

    def clamp(self, low: Operand, high: Operand) -> Term:
        """Limit to a range; NaN stays."""
        return self.op("maximum", low).op("minimum", high)

    def where(self, yes: Operand, no: Operand) -> Term:
        """Choose by this truth value; one of the two is a term."""
        model = yes if isinstance(yes, Term) else no
        assert isinstance(model, Term), "one branch says what format the other has"
        return Term(self.node, self.node.emit("select", self.expr, model._expr(yes), model._expr(no)))

    # ------------------------------------------------------------------ form

    def cast(self, dtype: dt.DType) -> Term:
        """Convert to a format."""
        return Term(self.node, self.node.cast(self.expr, dtype))

    def reshape(self, *shape: Int | int) -> Term:
        """Give another shape."""
        return Term(self.node, self.node.reshape(self.expr, shape))

    def broadcast(self, shape: Sequence[Int | int]) -> Term:
        """Repeat to a shape."""
        target = make.shape_const(shape)
        return Term(self.node, self.node.emit("broadcast_to", self.expr, target))

    def transpose(self, *perm: int) -> Term:
        """Order the axes anew."""
        return self if perm == tuple(range(self.rank)) else self.op("transpose", perm=perm)

    def move(self, source: int, target: int) -> Term:
        """Let one axis take another position."""
        return Term(self.node, self.node.move_axis(self.expr, source, target))

    def along(self, axis: int, rank: int) -> Term:
        """Lay a vector along an axis of a higher rank."""
        return self.reshape(*[self.shape[0] if d == axis else 1 for d in range(rank)])

    def part(self, axis: int, begin: Int | int, end: Int | int) -> Term:
        """Cut a range out of an axis."""
        bounds = (make.shape_const((v,)) for v in (begin, end, 1))
        return Term(self.node, self.node.emit("slice", self.expr, *bounds, axes=(axis,)))

    def at(self, axis: int, index: Int | int) -> Term:
        """Take one index of an axis, which goes away."""
        dims = self.shape
        return self.part(axis, index, index + 1).reshape(*dims[:axis], *dims[axis + 1 :])

    def gather(self, indices: Term, axis: int = 0, *, clamp: bool = False) -> Term:
        """Take slices; an index outside stops the program, or with `clamp` means the nearest.

        Indices that are inside by construction say `clamp`: then nothing is checked.
        """
        return self.op("gather", indices, axis=axis, clamp=clamp)

    def over(self, name: str, *axes: int, keep: bool = False) -> Term:
        """Reduce: `x.over("sum", 1)`; no axes mean all."""
        chosen = axes or tuple(range(self.rank))
        return self.op(f"reduce_{name}", axes=chosen, keepdims=keep)

    def controls(self) -> tuple[Int, ...]:
        """Wait for a vector of integers of static length; return them as control values."""
        return self.node.controls(self.expr)

    def control(self) -> Int:
        """Wait for one integer; return it as a control value."""
        return self.reshape(1).controls()[0]

    def checked_zero(self, number: Term, why: str) -> Term:
        """Return this, after checking at run time that a number (i64) is 0."""
        value, zero = make.int_const(number.control()), make.int_const(0)
        return Term(self.node, self.node.emit("check_equal", self.expr, value, zero, why=why))

    def checked_least(self, number: Int, least: int, why: str) -> Term:
        """Return this, after checking at run time that a number is not below another."""
        value = make.int_const(number)
        return Term(self.node, self.node.emit("check_at_least", self.expr, value, low=least, why=why))


def term(node: Node, i: int) -> Term:
    """Return an input of a node."""
    return Term(node, node.tensor(i))


def constant(node: Node, content: object, dtype: dt.DType) -> Term:
    """Return a constant."""
    return Term(node, make.const(np.array(content, dtype.numpy)))


def integers(node: Node, dims: Sequence[Int | int]) -> Term:
    """Return control integers as a vector (i64)."""
    return Term(node, node.as_tensor(known(tuple(to_int(d) for d in dims))))


def arange(node: Node, count: Int | int, dtype: dt.DType = dt.I64) -> Term:
    """Return 0, 1, ... as a vector."""
    ends = (make.int_const(0), make.int_const(count), make.int_const(1))
    return Term(node, node.emit("range", *ends, dtype=dt.I64)).cast(dtype)


def filled(node: Node, value: float, shape: Sequence[Int | int], dtype: dt.DType) -> Term:
    """Return a tensor of one value."""
    return constant(node, value, dtype).broadcast(shape)


def concat(parts: Sequence[Term], axis: int) -> Term:
    """Join terms along an axis."""
    first, *rest = parts
    return first.op("concat", *rest, axis=axis) if rest else first
