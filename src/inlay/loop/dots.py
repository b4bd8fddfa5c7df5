"""What a `Dot` means, in terms of other nodes: for whatever has no instruction for it."""

from __future__ import annotations

from inlay.arith.dtype import I32, DType
from inlay.arith.expr import lit
from inlay.loop.scalar import Binary, BinaryOp, Cast, Dot, Scalar
from inlay.loop.walk import Rewrite


def is_factor(dtype: DType) -> bool:
    """Whether a `Dot` multiplies numbers of a format: integers whose products are exact in i32."""
    return dtype.is_integer and dtype.bits <= (16 if dtype.is_signed else 8)


def plain_sum(x: Dot) -> Scalar:
    """Return the sum that a `Dot` is, product by product."""
    total = x.acc
    for j in range(x.width):
        at = Rewrite({x.sym: lit(j)})
        a, b = Cast(at.scalar(x.a), I32), Cast(at.scalar(x.b), I32)
        total = Binary(BinaryOp.ADD, total, Binary(BinaryOp.MUL, a, b, I32), I32)
    return total
