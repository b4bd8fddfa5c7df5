"""Operations on small constants become constants: what models work out from shapes stays known."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from inlay.arith.expr import Int
from inlay.base.diagnostics import RunError
from inlay.ir import make
from inlay.ir.expr import Const, Expr
from inlay.ir.types import TensorType
from inlay.ops._define import OpDef

MAX_KNOWN = 1024
"""Integer tensors of more elements than this are data, not shapes."""


def folded(definition: OpDef, attrs: object, args: Sequence[Expr]) -> Const | None:
    """Return the constant that an operation on small constants is; None where it is none.

    Integers that stand for reals stay, and products of a tensor and its scale: what reads them may compute in
    integers.
    """
    if definition.op.name == "dequantize":
        return None
    if definition.op.name == "mul" and any(_is_matrix(a) for a in args):
        return None
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
        found = definition.evaluate(attrs, *(v for v in values if v is not None))
    except RunError:
        return None  # where this is ever computed, the program stops and says why
    return make.const(np.asarray(found, call.type.dtype.numpy))


def _is_matrix(e: Expr) -> bool:
    return isinstance(e.type, TensorType) and e.type.dtype.is_float and len(e.type.shape) > 1


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
