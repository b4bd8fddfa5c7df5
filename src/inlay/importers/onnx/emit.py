"""Operations of a model become operations of a program: folded, stretched, or emitted.

What importers work out from shapes are small constants; folding them on the way keeps sizes known.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from inlay.arith.dtype import I64
from inlay.arith.expr import Sym
from inlay.base.diagnostics import error, unsupported
from inlay.base.span import Span
from inlay.importers.folding import folded
from inlay.importers.limits import MAX_DIM, MAX_RANK
from inlay.importers.onnx.broadcast import stretched
from inlay.ir import make
from inlay.ir.builder import Builder
from inlay.ir.expr import Expr
from inlay.ir.types import TensorType
from inlay.ops._define import FusionPattern
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
        known = folded(definition, record, args)
        if known is not None:
            return known
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
