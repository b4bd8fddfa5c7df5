"""Operators of a block as grouping sees them: nodes, and what is asked of one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from inlay.arith.expr import Int, lit
from inlay.ir.expr import Call, Let, OpRef
from inlay.ir.place import Place
from inlay.ir.types import TensorType, Type
from inlay.ops._define import Cost, FusionPattern, OpDef
from inlay.ops.normalization import AxisAttrs, LayerNormAttrs, LpNormAttrs
from inlay.ops.reduction import ReduceAttrs


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """An operator of the block.

    Attributes:
        index: position among the lets of the block.
        let: the let.
        call: its value.
        definition: the record of the operator.
        type: the type of the result.
    """

    index: int
    let: Let
    call: Call
    definition: OpDef
    type: Type

    @property
    def place(self) -> Place | None:
        """Where it runs."""
        return self.call.place

    @property
    def name(self) -> str:
        """The name of the operator."""
        return self.definition.name

    @property
    def is_pointwise(self) -> bool:
        """Whether an element of the result reads its operands at that element only."""
        return self.definition.pattern in (FusionPattern.ELEMENTWISE, FusionPattern.BROADCAST)

    @property
    def is_costly(self) -> bool:
        """Whether computing an element twice is to be avoided."""
        return self.is_pointwise and self.definition.cost is not Cost.CHEAP


def element_bytes(node: Node) -> int:
    """Return the size of an element of what a node computes; 0 for no tensor."""
    return node.type.dtype.itemsize if isinstance(node.type, TensorType) else 0


def result_shape(node: Node) -> tuple[Int, ...] | None:
    """Return the shape of a result, None where there are several results."""
    return node.type.shape if isinstance(node.type, TensorType) else None


def may_precede(node: Node) -> bool:
    """Whether a node may be computed element by element where its result is read."""
    if node.definition.stands_alone or not node.definition.is_injective:
        return False
    if node.name == "gather":  # rows of a table are read in order, scattered elements are not
        operand = operand_type(node, 0)
        assert operand is not None, "gather reads a tensor"
        assert isinstance(node.call.callee, OpRef), "gather is an operator"
        axis = getattr(node.call.callee.attrs, "axis", 0)
        return axis % len(operand.shape) < len(operand.shape) - 1
    return True


def row_axis(node: Node) -> int | None:
    """Return the first of the trailing axes that a node reduces over, None for other operators."""
    operand = operand_type(node, 0)
    if operand is None or not isinstance(node.call.callee, OpRef):
        return None
    rank = len(operand.shape)
    match node.call.callee.attrs:
        case AxisAttrs(axis=axis) | LpNormAttrs(axis=axis):
            is_last = node.definition.pattern is FusionPattern.REDUCTION and axis % rank == rank - 1
            return rank - 1 if is_last else None
        case LayerNormAttrs(axis=axis):
            return axis % rank
        case ReduceAttrs(axes=axes):
            found = sorted(a % rank for a in axes)
            is_trailing = bool(found) and found == list(range(rank - len(found), rank))
            return found[0] if is_trailing else None
        case _:
            return None


def operand_type(node: Node, index: int) -> TensorType | None:
    if index >= len(node.call.args):
        return None
    t = node.call.args[index].type
    return t if isinstance(t, TensorType) else None


def ones(row: Sequence[Int]) -> tuple[Int, ...]:
    return (lit(1),) * len(row)
