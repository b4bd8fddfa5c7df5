"""Where a rule looks: one call of an operator, what its operands are, and what may be built instead.

A rule returns an expression of the same type (or a more exact one) whose value is the same up to
rounding, or None. It may bind values on the way; if the answer is not used in the end they are dead.
Operands are looked through only on the same place as the call itself, so that no rule moves work
between devices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from inlay.ir.expr import Call, Const, Expr, OpRef, Var
from inlay.ir.op import Op, OpTable
from inlay.ir.types import TensorType
from inlay.passes.contract import Evaluator
from inlay.transforms._blocks import BlockWriter
from inlay.transforms._constants import computed

A = TypeVar("A")
Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class RewriteContext:
    """What all matches of a run share.

    Attributes:
        ops: finds operators.
        evaluate: computes constants; None where there is none.
        uses: how often variables are read, at most; those that are not in it may be read often.
        simplify: what all rules together make of a value.
    """

    ops: OpTable
    evaluate: Evaluator | None
    uses: dict[Var, int]
    simplify: Callable[[RewriteContext, BlockWriter, Expr], Expr]


@dataclass(frozen=True, slots=True, eq=False)
class RuleMatch:
    """A call of an operator in the block that is being written.

    Attributes:
        context: what all matches share.
        block: the block.
        call: the call.
    """

    context: RewriteContext
    block: BlockWriter
    call: Call

    @property
    def args(self) -> tuple[Expr, ...]:
        """The operands: atoms."""
        return self.call.args

    @property
    def name(self) -> str:
        """The name of the operator."""
        assert isinstance(self.call.callee, OpRef), "matches are calls of operators"
        return self.call.callee.op.name

    @property
    def type(self) -> TensorType | None:
        """The type of the result, if it is a tensor."""
        return self.call.type if isinstance(self.call.type, TensorType) else None

    def attrs(self, kind: type[A]) -> A:
        """Return the attributes of the call, which are of this record type."""
        return attrs_of(self.call, kind)

    def producer(self, atom: Expr, name: str) -> Call | None:
        """Return the call that an atom is bound to, if it is of that operator on this place."""
        made = self.block.definition(atom)
        if (
            isinstance(made, Call)
            and isinstance(made.callee, OpRef)
            and made.callee.op.name == name
            and made.place == self.call.place
        ):
            return made
        return None

    def only_producer(self, atom: Expr, name: str) -> Call | None:
        """Return such a call if nothing else reads its result, so that it disappears."""
        if isinstance(atom, Var) and self.context.uses.get(atom, 2) > 1:
            return None
        return self.producer(atom, name)

    def op(self, name: str) -> Op:
        """Return an operator."""
        found = self.context.ops.find(name)
        assert found is not None, f"there is no operator {name}"
        return found

    def make(self, name: str, args: Sequence[Expr], attrs: object = None) -> Expr:
        """Return a call, computed at once if all operands are constants."""
        made = self.block.make(self.op(name), args, attrs)
        if self.context.evaluate is None:
            return made
        value = computed(made, self.context.evaluate)
        return made if value is None else value

    def bind(self, name: str, args: Sequence[Expr], attrs: object = None) -> Expr:
        """Return an atom for such a call, itself simplified."""
        made = self.context.simplify(self.context, self.block, self.make(name, args, attrs))
        atom = self.block.bind(made, name)
        if isinstance(atom, Var) and atom is not made:
            self.context.uses[atom] = 1
        return atom


Rule = Callable[[RuleMatch], Expr | None]


def attrs_of(call: Call, kind: type[A]) -> A:
    """Return the attributes of a call of an operator, which are of this record type."""
    assert isinstance(call.callee, OpRef), "only operators have attributes"
    attrs = call.callee.attrs
    assert isinstance(attrs, kind), f"{call.callee.op.name} has {type(attrs).__name__}"
    return attrs


def array(atom: Expr) -> np.ndarray | None:
    """Return the value of a constant tensor."""
    return atom.value if isinstance(atom, Const) and isinstance(atom.value, np.ndarray) else None


def scalar(atom: Expr) -> float | None:
    """Return the number that every element of a constant tensor is, where there is just one."""
    value = array(atom)
    if value is None or value.size != 1 or value.dtype == object:
        return None
    return float(value.reshape(()).astype(np.float64))


def is_exactly(atom: Expr, number: float) -> bool:
    """Whether an atom is a constant of one element that is this number."""
    return scalar(atom) == number


def is_about(atom: Expr, number: float) -> bool:
    """Whether an atom is a constant of one element that is this number rounded to f32."""
    found = scalar(atom)
    return found is not None and abs(found - number) <= 2.0**-23 * abs(number)


def shape_of(atom: Expr) -> tuple[object, ...]:
    """Return the shape of a tensor, for comparison."""
    assert isinstance(atom.type, TensorType), "only tensors have shapes"
    return atom.type.shape


def rank(atom: Expr) -> int:
    """Return the rank of a tensor."""
    return len(shape_of(atom))
