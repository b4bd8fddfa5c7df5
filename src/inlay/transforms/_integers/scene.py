"""Where rules about integers look: a block that is being written, its constants, what is known of sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from inlay.arith.dtype import DType
from inlay.ir import make
from inlay.ir.expr import Call, Const, Expr, OpRef, Var
from inlay.ir.op import Op
from inlay.ir.types import TensorType
from inlay.ops.quantized import DequantizeAttrs
from inlay.ops.table import OperatorTable
from inlay.passes.contract import Evaluator
from inlay.transforms._blocks import BlockWriter
from inlay.transforms._constants import computed, is_closed
from inlay.transforms._integers.numbers import ends_of, type_of
from inlay.transforms._rules.rule_match import attrs_of

_MOST_BYTES = 1 << 28
"""Bytes of the largest constant that is computed on the way: weights that are turned, tables."""
_DEEPEST = 24
"""Operators that are looked through, one behind another."""


@dataclass(slots=True)
class Known:
    """What is known of a function beyond its text.

    Attributes:
        operators: what names mean.
        evaluate: computes constants.
        bytes: the format of bytes that devices take, where they take one of both.
        constants: what variables are that depend on constants alone; None for those that do not.
        sums: the ends of integers that this pass made.
        made: operators that stand for the value that is shown now.
        ends: of its accumulator, where it has one.
    """

    operators: OperatorTable
    evaluate: Evaluator
    bytes: DType | None = None
    constants: dict[Var, Const | None] = field(default_factory=dict[Var, Const | None])
    sums: dict[Var, tuple[int, int]] = field(default_factory=dict[Var, tuple[int, int]])
    made: list[str] = field(default_factory=list[str])
    ends: tuple[int, int] = (0, 0)

    def begin(self) -> None:
        """Forget what stood for the value before."""
        self.made.clear()
        self.ends = (0, 0)


@dataclass(frozen=True, slots=True, eq=False)
class Scene:
    """A block that is being written, and what is known.

    Attributes:
        known: of the function.
        block: the block.
        depth: how many operators were looked through to come here.
    """

    known: Known
    block: BlockWriter
    depth: int = 0

    # ------------------------------------------------------------------ looking

    def deeper(self) -> Scene | None:
        """Return the scene for an operand; None where that would be too deep."""
        return None if self.depth >= _DEEPEST else Scene(self.known, self.block, self.depth + 1)

    def call(self, atom: Expr) -> tuple[str, Call] | None:
        """Return the call of an operator that an atom is bound to, by name."""
        made = self.block.definition(atom)
        if isinstance(made, Call) and isinstance(made.callee, OpRef):
            return made.callee.op.name, made
        return None

    def constant(self, atom: Expr) -> Const | None:
        """Return the constant that an atom is, or that operators make of constants alone."""
        if isinstance(atom, Const):
            return atom if is_closed(atom) else None
        if not isinstance(atom, Var):
            return None
        known = self.known.constants
        if atom not in known:
            known[atom] = self._compute(atom)
        return known[atom]

    def _compute(self, atom: Var) -> Const | None:
        found, inner = self.call(atom), self.deeper()
        if found is None or inner is None:
            return None
        _, call = found
        args = [inner.constant(a) for a in call.args]
        if any(a is None for a in args):
            return None
        closed = Call(
            call.callee, tuple([a for a in args if a is not None]), call.type, call.span, call.place
        )
        made = computed(closed, self.known.evaluate, _MOST_BYTES)
        return made if isinstance(made, Const) else None

    def array(self, atom: Expr) -> np.ndarray | None:
        """Return the constant tensor that an atom is."""
        found = self.constant(atom)
        value = None if found is None else found.value
        return value if isinstance(value, np.ndarray) else None

    def reals(self, atom: Expr) -> np.ndarray | None:
        """Return the constant tensor that an atom is, in f64: so are integers scaled that stand for reals."""
        found = self.call(atom)
        if found is not None and found[0] == "dequantize":
            values = [self.array(a) for a in found[1].args]
            if all(v is not None for v in values):
                q, scale, *zero = [v.astype(np.float64) for v in values if v is not None]
                axis = attrs_of(found[1], DequantizeAttrs).axis
                at = [1] * q.ndim
                if scale.ndim:
                    at[axis % q.ndim] = -1
                less = q - zero[0].reshape(at if zero[0].ndim else ()) if zero else q
                return less * scale.reshape(at if scale.ndim else ())
        value = self.array(atom)
        return None if value is None or value.dtype.kind not in "fiu" else value.astype(np.float64)

    # ------------------------------------------------------------------ making

    def op(self, name: str) -> Op:
        """Return an operator."""
        found = self.known.operators.find(name)
        assert found is not None, f"there is no operator {name}"
        return found

    def bind(self, name: str, args: Sequence[Expr], attrs: object = None) -> Expr:
        """Return an atom for a call, computed at once if all operands are constants."""
        made = self.block.make(self.op(name), args, attrs)
        if isinstance(made, Call) and all(isinstance(a, Const) for a in made.args):
            value = computed(made, self.known.evaluate, _MOST_BYTES)
            made = made if value is None else value
        if not isinstance(made, Const):
            self.known.made.append(name)
        return self.block.bind(made, name)

    def number(self, values: object, dtype: DType) -> Expr:
        """Return a constant tensor."""
        return make.const(np.asarray(values, dtype.numpy))

    def keep(self, atom: Expr, low: int, high: int) -> Expr:
        """Note the ends of integers, and return them."""
        if isinstance(atom, Var):
            self.known.sums[atom] = (low, high)
        return atom

    def ends(self, atom: Expr) -> tuple[int, int]:
        """Return the ends of integers: as noted, else those of their format."""
        known = self.known.sums.get(atom) if isinstance(atom, Var) else None
        return ends_of(type_of(atom).dtype) if known is None else known

    def is_tensor(self, atom: Expr) -> bool:
        """Whether an atom is a tensor of reals."""
        return isinstance(atom.type, TensorType) and atom.type.dtype.is_float
