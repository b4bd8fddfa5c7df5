"""Axes that only the running program knows.

ONNX gives axes as tensors. Nearly always they are constants; where they are not, the rank of the
result is still known when their number is, and everything can be decided at run time:

* `choose`: a branch for each axis there is; for operators whose result has one type whichever the
  axis is;
* `chosen`: a truth value for each axis, for operators that treat every axis on its own;
* `full`: bounds of some axes as bounds of all.
"""

from __future__ import annotations

from collections.abc import Callable

from inlay.arith import dtype as dt
from inlay.arith.expr import Int
from inlay.importers.onnx.node import Node
from inlay.importers.onnx.term import Term, arange, constant, integers, term
from inlay.ir.expr import Expr


def given(node: Node, i: int, rank: int) -> Term:
    """Return the axes of an input as a vector of i64, counted from the front."""
    axes = term(node, i).cast(dt.I64)
    axes = axes.reshape(1) if axes.rank == 0 else axes
    return (axes < 0).where(axes + rank, axes)


def chosen(axes: Term, rank: int) -> Term:
    """Return for each axis of a rank whether it is among some (a vector of truth values)."""
    same = axes.reshape(axes.shape[0], 1).equals(arange(axes.node, rank).reshape(1, rank))
    return same.over("any", 0)


def choose(node: Node, axis: Term, rank: int, make: Callable[[Node, int], Expr]) -> Expr:
    """Return what `make` gives for the axis that a one-element vector names at run time."""
    index = axis.reshape()

    def among(inside: Node, first: int) -> Expr:
        if first == rank - 1:
            return make(inside, first)
        here = Term(inside, index.expr).equals(first)
        condition = inside.emit("to_control", here.expr)
        return inside.b.if_(
            condition, lambda s: make(inside.within(s), first), lambda s: among(inside.within(s), first + 1)
        )

    return among(node, 0)


def left(x: Term, gone: Term, count: int) -> tuple[Int, ...]:
    """Return the dims of a tensor that stay when `count` axes go, as control values."""
    node = x.node
    order = Term(node, node.b.unpack(gone.cast(dt.I32).op("sort").expr)[1])
    stay = order.part(0, 0, x.rank - count)
    return integers(node, x.shape).gather(stay, clamp=True).controls()


def full(axes: Term, values: Term, rank: int, otherwise: int) -> Term:
    """Return a vector with a value for every axis: those given, and `otherwise`."""
    blank = constant(axes.node, [otherwise] * rank, dt.I64)
    return blank.op("scatter_elements", axes, values.cast(dt.I64), axis=0)
