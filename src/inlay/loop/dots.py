"""What a `Dot` means, in terms of other nodes: for whatever has no instruction for it."""

from __future__ import annotations

from inlay.arith.dtype import BF16, F32, I32, DType
from inlay.arith.expr import lit
from inlay.loop.scalar import Binary, BinaryOp, Cast, Dot, Lit, Scalar
from inlay.loop.walk import Rewrite


def is_factor(dtype: DType) -> bool:
    """Whether a `Dot` multiplies numbers of a format in i32: integers whose products are exact there."""
    return dtype.is_integer and dtype.bits <= (16 if dtype.is_signed else 8)


def are_factors(a: DType, b: DType, sums: DType) -> bool:
    """Whether a `Dot` adds products of two formats to sums of a third one."""
    if sums is F32:
        return a is BF16 and b is BF16
    return sums is I32 and is_factor(a) and is_factor(b)


def plain_sum(x: Dot) -> Scalar:
    """Return the sum that a `Dot` is, product by product."""
    products = [_product(x, j) for j in range(x.width)]
    if x.dtype.is_float:
        products.reverse()
    if x.saturates:
        pairs = zip(products[::2], products[1::2], strict=True)
        products = [_nearest_i16(Binary(BinaryOp.ADD, a, b, I32)) for a, b in pairs]
    total = x.acc
    for product in products:
        total = Binary(BinaryOp.ADD, total, product, x.dtype)
    return total


def _product(x: Dot, j: int) -> Scalar:
    at = Rewrite({x.sym: lit(j)})
    a, b = Cast(at.scalar(x.a), x.dtype), Cast(at.scalar(x.b), x.dtype)
    return Binary(BinaryOp.MUL, a, b, x.dtype)


def _nearest_i16(x: Scalar) -> Scalar:
    least = Binary(BinaryOp.MAX, x, Lit(-(2**15), I32), I32)
    return Binary(BinaryOp.MIN, least, Lit(2**15 - 1, I32), I32)
