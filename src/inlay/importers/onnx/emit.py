"""Operations of a model become operations of a program: folded, stretched, or emitted.

What importers work out from shapes are small constants; folding them on the way keeps sizes known.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import numpy as np

from inlay.arith.dtype import I64
from inlay.arith.expr import Int, Sym
from inlay.base.diagnostics import RunError, error, unsupported
from inlay.base.span import Span
from inlay.importers.limits import MAX_DIM, MAX_RANK
from inlay.importers.onnx.broadcast import stretched
from inlay.importers.onnx.values import MAX_KNOWN
from inlay.ir import make
from inlay.ir.builder import Builder
from inlay.ir.expr import Const, Expr
from inlay.ir.types import TensorType
from inlay.ops._define import FusionPattern, OpDef
from inlay.ops.table import OperatorTable


@dataclass(frozen=True, slots=True)
class Emitter:
    """Makes operations by name; folds those whose operands are small constants.

    Attributes:
        operators: what names mean.
        unnamed: symbols of axes of inputs that have no name, which may turn out to be 1 (`broadcast`).
    """

    operators: OperatorTable
    unnamed: AbstractSet[Sym]

    def emit(
        self, b: Builder, name: str, args: Sequence[Expr], attrs: Mapping[str, object], result: str
    ) -> Expr:
        """Emit an operation into a scope and return its variable, or the constant it folds to."""
        definition = self.operators.definition(name)
        if self.unnamed and definition.pattern is FusionPattern.BROADCAST:
            args = stretched(
                args, frozenset(self.unnamed), lambda e, back, size: self._stretch(b, e, back, size)
            )
        record = definition.op.attrs_type(**attrs)
        # Integers that stand for reals stay: what reads them may compute in integers.
        folded = None if name == "dequantize" else _folded(definition, record, args)
        if folded is not None:
            return folded
        made = b.emit(definition.op, args, record, name=result)
        if isinstance(made.type, TensorType):
            _check_size(made.type, b.span)
        return made

    def _stretch(self, b: Builder, e: Expr, back: int, size: int) -> Expr:
        """Read an axis of 1 or `size` elements as one of `size`; see `broadcast`."""
        assert isinstance(e.type, TensorType), "only tensors are stretched"
        axis = len(e.type.shape) - back
        n = e.type.shape[axis]
        whole = make.int_const((n - 1) * (n - size))
        why = {"why": f"axis {axis} has 1 or {size} elements"}
        e = self.emit(b, "check_equal", (e, whole, make.int_const(0)), why, "checked")
        ends = [make.int_const(v) for v in (0, size, 1)]
        places = self.emit(b, "range", ends, {"dtype": I64}, "places")
        last = self.emit(b, "to_tensor", (make.int_const(n - 1),), {}, "last")
        index = self.emit(b, "minimum", (places, last), {}, "places")
        return self.emit(b, "gather", (e, index), {"axis": axis, "clamp": True}, "stretched")


def _folded(definition: OpDef, attrs: object, args: Sequence[Expr]) -> Const | None:
    """Return the constant that an operation on small constants is."""
    values = [_number(a) for a in args]
    if definition.reference is None or not any(isinstance(v, np.ndarray) for v in values):
        return None
    if any(v is None or (isinstance(v, np.ndarray) and v.size > MAX_KNOWN) for v in values):
        return None
    call = make.call(definition.op, args, attrs)
    if not isinstance(call.type, TensorType):
        return None
    if math.prod(d.value or 0 for d in call.type.shape) > MAX_KNOWN:
        return None
    try:
        folded = definition.evaluate(attrs, *(v for v in values if v is not None))
    except RunError:
        return None  # where this is ever computed, the program stops and says why
    return make.const(np.asarray(folded, call.type.dtype.numpy))


def _check_size(t: TensorType, span: Span) -> None:
    if len(t.shape) > MAX_RANK:
        raise unsupported(
            "import.too-large",
            f"a tensor has {len(t.shape)} axes, of which {MAX_RANK} are possible",
            span=span,
            hint="merge axes before this node",
        )
    if math.prod(d.value or 1 for d in t.shape) > MAX_DIM:
        raise error(
            "import.bad-dim",
            f"a tensor {t.dtype}[{', '.join(map(str, t.shape))}] has more elements than a machine has memory",
            span=span,
            hint="the model is damaged; export it again",
        )


def _number(e: Expr) -> np.ndarray | int | bool | tuple[int, ...] | None:
    """Return the value of a constant as references take it; None where it is not a number."""
    match e:
        case Const(value=np.ndarray() | bool() as v):
            return v
        case Const(value=Int() as v):
            return v.value
        case Const(value=tuple() as v):
            numbers = tuple(x.value for x in v if x.value is not None)
            return numbers if len(numbers) == len(v) else None
        case _:
            return None
