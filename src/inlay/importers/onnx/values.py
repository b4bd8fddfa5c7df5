"""What an ONNX value is during import: a tensor expression, and its content where that is known.

Exporters compute shapes with tensors (`Shape`, `Gather`, `Concat`, ...). A value whose content is
known as integers over dims is kept as those integers and becomes a tensor only when an operator
needs one; so shape arithmetic disappears during import and a reshape has a known type.
"""

from __future__ import annotations

from dataclasses import dataclass

from inlay.arith.dtype import I64, DType
from inlay.arith.expr import Int
from inlay.ir.expr import Expr
from inlay.ir.types import Type


@dataclass(frozen=True, slots=True)
class OnnxValue:
    """A value of an ONNX graph.

    Attributes:
        expr: the tensor, None while only `ints` is needed.
        ints: the content over dims in scope, when known: of rank 1, or of rank 0 if `is_scalar`.
        is_scalar: whether `ints` (of length 1) is the content of a rank-0 tensor.
        dtype: the element format of the tensor that `ints` stands for.
        items: the elements of a sequence in known form; it has neither `expr` nor `ints`.
        stored: the element type of ONNX where it is narrower than any here: a constant that was stored so, or
            what a quantize to it gives. What may take it, `narrow.py` says. 0 for all others.
        hole: of a sequence that stands for an input whose rank is not declared, while it is looked
            for: the types of what is inserted are written down here.
    """

    expr: Expr | None = None
    ints: tuple[Int, ...] | None = None
    is_scalar: bool = False
    dtype: DType = I64
    items: tuple[OnnxValue, ...] | None = None
    stored: int = 0
    hole: list[Type] | None = None

    @property
    def scalar(self) -> Int | None:
        """The single known integer of a one-element value."""
        return self.ints[0] if self.ints is not None and len(self.ints) == 1 else None


def known(ints: tuple[Int, ...], *, dtype: DType = I64) -> OnnxValue:
    """Return a rank-1 value with known content."""
    return OnnxValue(ints=ints, dtype=dtype)


def known_scalar(value: Int, *, dtype: DType = I64) -> OnnxValue:
    """Return a rank-0 value with known content."""
    return OnnxValue(ints=(value,), is_scalar=True, dtype=dtype)


ABSENT = OnnxValue()
"""What stands for an input that the caller of a function left out."""

NOTHING = OnnxValue()
"""An optional without content."""
