"""Tensor expressions: what an operator computes, one element at a time.

A tensor is a placeholder (an input) or a compute: a shape and a scalar for each index. Compute rules
of operators build them; `lower.ops_to_loops` turns a group of them into schedulable blocks.

    def matmul(a: Tensor, b: Tensor) -> Tensor:
        k = reduce_axis("k", a.shape[1])
        return compute((a.shape[0], b.shape[1]),
                       lambda i, j: sum_over(k, a[i, k] * b[k, j]), name="matmul")

Scalars support the Python operators, through `Value`, a thin wrapper used only while building; the
stored form is `loop.scalar`. An index may itself be a scalar that loads (gather): it is bound by a
`Let` where it is used.
"""

from __future__ import annotations

from dataclasses import dataclass

from inlay.arith.expr import Sym
from inlay.loop.buffer import Buffer
from inlay.loop.scalar import Scalar


@dataclass(frozen=True, slots=True, eq=False)
class Tensor:
    """A tensor of a tensor expression. Identity is the object.

    Attributes:
        buffer: names it, and gives shape and dtype; loads in bodies refer to it.
        axes: index symbols of a compute, one per dimension; empty for placeholders and rank 0.
        body: the element at `axes`; None for a placeholder.
        inputs: tensors whose buffers the body loads.
        tag: what kind of computation it is, for schedule rules (`"matmul"`); may be empty.
    """

    buffer: Buffer
    axes: tuple[Sym, ...] = ()
    body: Scalar | None = None
    inputs: tuple[Tensor, ...] = ()
    tag: str = ""
