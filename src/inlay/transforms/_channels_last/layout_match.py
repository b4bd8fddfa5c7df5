"""Where a rule looks: one call, and which of its operands are at hand with their channels last."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from inlay.arith.deferred import DeferredArray, transposed
from inlay.ir import make
from inlay.ir.expr import Call, Const, Expr, OpRef
from inlay.ir.types import TensorType
from inlay.ops._define import OpDef
from inlay.ops.layout import PermAttrs
from inlay.ops.table import OperatorTable
from inlay.transforms._blocks import BlockWriter
from inlay.transforms._same import operand_key


def to_last(rank: int) -> tuple[int, ...]:
    """Return the permutation that moves axis 1 to the end."""
    return (0, *range(2, rank), 1)


def to_second(rank: int) -> tuple[int, ...]:
    """Return the permutation that moves the last axis to position 1."""
    return (0, rank - 1, *range(1, rank - 1))


@dataclass(frozen=True, slots=True)
class LayoutMatch:
    """A call under consideration.

    Attributes:
        operators: that there are.
        block: the block that is being written.
        definition, call, attrs: the call, its operator and its attributes.
        has_lines: whether something has windows over one spatial axis.
        made: constants that were transposed for other calls.
    """

    operators: OperatorTable
    block: BlockWriter
    definition: OpDef
    call: Call
    attrs: Any
    has_lines: bool
    made: dict[Hashable, Const]

    @property
    def rank(self) -> int:
        """The rank of the first operand."""
        return self.rank_of(self.call.args[0])

    def rank_of(self, e: Expr) -> int:
        """Return the rank of a tensor."""
        assert isinstance(e.type, TensorType), "operands of tensor operators are tensors"
        return len(e.type.shape)

    def twin(self, e: Expr) -> Expr | None:
        """Return the same value with channels last, where it is at hand."""
        found = self.made_by_transpose(e)
        return found[0] if found is not None and found[1] == to_second(len(found[1])) else None

    def made_by_transpose(self, e: Expr) -> tuple[Expr, tuple[int, ...]] | None:
        """Return what a value is the transpose of, and how; None where that is of no use."""
        found = self.block.definition(e)
        if not isinstance(found, Call) or not isinstance(found.callee, OpRef):
            return None
        attrs = found.callee.attrs
        if not isinstance(attrs, PermAttrs) or found.place != self.call.place:
            return None
        if len(attrs.perm) == 3 and not (self.has_lines and attrs.perm == to_second(3)):
            return None
        return found.args[0], attrs.perm

    def transposed(self, e: Expr, perm: tuple[int, ...]) -> Expr:
        """Return a value with its axes in another order; constants are rewritten."""
        if isinstance(e, Const) and isinstance(e.held, np.ndarray | DeferredArray):
            key = operand_key(e), perm
            if key not in self.made:
                self.made[key] = make.const(transposed(e.held, perm), span=e.span)
            return self.made[key]
        return self.op("transpose", (e,), PermAttrs(perm))

    def last(self, e: Expr) -> Expr:
        """Return a value with channels last."""
        found = self.twin(e)
        return self.transposed(e, to_last(self.rank_of(e))) if found is None else found

    def op(self, name: str, args: Sequence[Expr], attrs: object) -> Expr:
        """Bind another operation in front of this one."""
        return self.block.call(self.operators.definition(name).op, args, attrs)

    def instead(self, args: Sequence[Expr], attrs: object, name: str = "") -> Expr:
        """Return the answer: the operation on channels-last operands, transposed."""
        made = self.op(name or self.definition.name, args, attrs)
        return self.back(made)

    def back(self, e: Expr) -> Expr:
        """Return the transpose that stands for a channels-last value."""
        perm = PermAttrs(to_second(self.rank_of(e)))
        return self.block.make(self.operators.definition("transpose").op, (e,), perm)


def moved_axis(axis: int, rank: int) -> int:
    """Return where an axis of `[n, c, *s]` is in `[n, *s, c]`."""
    return to_last(rank).index(axis % rank)


Rule = Callable[[LayoutMatch], "Expr | None"]
