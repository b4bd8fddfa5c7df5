"""Constants of f32 that 16 bits hold exactly, in 16 bits: half of the bytes, and the same numbers.

A model that stores its weights in f16 or bf16 casts them to f32 in front of what reads them, and casts of
constants are computed while compiling. What comes of it is seen in the numbers alone, however it came here:
so weights of products and tables of `gather` are narrowed again where nothing is lost. Kernels widen them
where they read them: bf16 by a shift, f16 by an instruction (F16C on x86), without which f32 is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from inlay.arith.deferred import DeferredArray, elements, narrow_of
from inlay.arith.dtype import BF16, F16, F32, DType
from inlay.base.span import Span
from inlay.ir import make
from inlay.ir.expr import Call, Const, Expr, OpRef
from inlay.machine.target import Target
from inlay.ops._build import Array
from inlay.ops.elementwise import CastAttrs
from inlay.ops.table import OperatorTable
from inlay.transforms._blocks import BlockWriter

FEWEST_BYTES = 1 << 14
"""Of a constant that is looked at."""
_FIRST = 256
"""Elements that are looked at before all are."""


@dataclass(frozen=True, slots=True)
class StoredWeights:
    """A constant of f32 that 16 bits hold exactly.

    Attributes:
        operator: that reads it.
        span: where that comes from.
        dtype: the format that holds it.
        bytes: in that format.
        is_kept: whether the program has it in that format; otherwise the processor has no instruction that
            widens it.
    """

    operator: str
    span: Span
    dtype: DType
    bytes: int
    is_kept: bool


Told = Callable[[StoredWeights], None]


def stored_format(
    operator: str, weights: Const, span: Span, target: Target, told: Told | None
) -> DType | None:
    """Return the format of 16 bits that a constant is kept in; None where it stays as it is.

    That is f16 where it can be, which takes fewer instructions to widen than bf16.

    Args:
        operator: that reads it.
        weights: the constant.
        span: of what reads it.
        target: the processor.
        told: is told a constant that 16 bits hold.
    """
    held = weights.held
    if not isinstance(held, np.ndarray | DeferredArray):
        return None
    if held.dtype != np.float32 or held.nbytes < FEWEST_BYTES:
        return None
    narrow = narrow_of(held)
    if narrow is not None:
        found = [d for d in (F16, BF16) if d.numpy == narrow.dtype]
    else:
        w = elements(held)
        found = [d for d in (F16, BF16) if _holds(d, w.flat[:_FIRST]) and _holds(d, w)]
    taken = next((d for d in found if d is BF16 or target.has_half), None)
    if found and told is not None:
        told(StoredWeights(operator, span, taken or found[0], 2 * held.size, taken is not None))
    return taken


def _holds(dtype: DType, w: Array) -> bool:
    """Whether a format has all of some numbers of f32, to the bit."""
    if dtype is BF16:
        return not (np.ascontiguousarray(w).view(np.uint32) & 0xFFFF).any()
    with np.errstate(over="ignore"):
        return bool((w.astype(dtype.numpy).astype(np.float32) == w).all())


def narrow_table(
    block: BlockWriter, call: Call, target: Target, operators: OperatorTable, told: Told | None
) -> Expr | None:
    """Return a `gather` from a table in 16 bits, widened behind it; None where it stays as it is."""
    table, index = call.args
    assert isinstance(table, Const), "a table is narrowed that is a constant"
    assert isinstance(table.value, np.ndarray), "a constant tensor has elements"
    assert isinstance(call.callee, OpRef), "operators are called by reference"
    dtype = stored_format(call.callee.op.name, table, call.span, target, told)
    if dtype is None:
        return None
    narrow = make.const(table.value.astype(dtype.numpy), span=table.span)
    found = block.call(call.callee.op, (narrow, index), call.callee.attrs)
    return block.make(operators.definition("cast").op, (found,), CastAttrs(F32))
