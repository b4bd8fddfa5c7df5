"""Floats of numbers of 4 bits: from a table in a register.

What an instruction permutes by needs no mask: it looks at the lowest 4 bits of each lane. So a number of
4 bits anywhere in a lane becomes a float by a shift and one permutation of the 16 floats that there are, less
a zero point already; by arithmetic it takes a mask, a subtraction and a conversion as well.
"""

from __future__ import annotations

from collections.abc import Callable

from inlay.arith.dtype import F32, I32
from inlay.codegen.llvm_builder import Builder
from inlay.codegen.llvm_index import IndexEmitter
from inlay.codegen.llvm_ops import Operations
from inlay.codegen.llvm_types import Value, literal
from inlay.loop.scalar import Binary, BinaryOp, Cast, Lit, Scalar
from inlay.machine.target import Target

_LANES = 16
_NAME = "@llvm.x86.avx512.permvar.sf.512"


class HalfByteEmitter:
    """Writes casts of numbers of 4 bits to floats."""

    def __init__(self, builder: Builder, index: IndexEmitter, ops: Operations, target: Target) -> None:
        self._builder = builder
        self._index = index
        self._ops = ops
        self._permutes = target.arch == "x86_64" and "avx512f" in target.features

    def value(self, x: Cast, below: Callable[[Scalar], Value]) -> Value | None:
        """Return the floats; None where `x` is something else, or there is no such instruction.

        Args:
            x: a cast.
            below: evaluates what is below it.
        """
        if not self._permutes or self._index.width != _LANES or x.dtype is not F32:
            return None
        number, zero = x.operand, 0
        match number:
            case Binary(op=BinaryOp.SUB, lhs=inner, rhs=Lit(value=taken)):
                number, zero = inner, int(taken)
            case _:
                pass
        match number:
            case Binary(op=BinaryOp.AND, lhs=bits, rhs=Lit(value=mask), dtype=dtype) if mask == _LANES - 1:
                if dtype is not I32:
                    return None
            case _:
                return None
        lanes = below(bits)
        if not lanes.lanes:
            return None
        table = ", ".join(literal(float(i - zero), F32).typed for i in range(_LANES))
        self._ops.declared.add(f"declare <16 x float> {_NAME}(<16 x float>, <16 x i32>)")
        text = f"call <16 x float> {_NAME}(<16 x float> <{table}>, {lanes.typed})"
        return Value(self._builder.pure(text, (lanes.text,)), F32, _LANES)
