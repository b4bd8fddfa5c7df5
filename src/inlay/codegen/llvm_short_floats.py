"""Floats of 16 bits by integer operations, on machines that do not convert them, and rounded once from f64.

Registers hold them as f32.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from inlay.arith.dtype import F32, F64, I16, I32, U16, U32
from inlay.codegen.llvm_types import Value, literal
from inlay.loop.scalar import BinaryOp

if TYPE_CHECKING:
    from inlay.codegen.llvm_ops import Operations


def round_to_odd(ops: Operations, value: Value) -> Value:
    """f64 to f32 such that rounding again to 16 bits is as rounding once (Boldo 2008)."""
    lanes = value.lanes
    near = ops.cast(value, F32)
    back = ops.cast(near, F64)
    bits = ops.bitcast(near, I32)
    odd = ops.compare(
        BinaryOp.NE, ops.binary(BinaryOp.AND, bits, literal(1, I32, lanes)), literal(0, I32, lanes)
    )
    exact = ops.compare(BinaryOp.EQ, back, value)
    magnitude, wide = ops.call("fabs", F64, value), ops.call("fabs", F64, back)
    # One step toward the true value: up where the rounding went down, down where it went up.
    step = ops.select(
        ops.compare(BinaryOp.LT, wide, magnitude), literal(1, I32, lanes), literal(-1, I32, lanes)
    )
    nan = ops.compare(BinaryOp.NE, value, value)
    keep = ops.binary(BinaryOp.OR, ops.binary(BinaryOp.OR, odd, exact), nan)
    return ops.bitcast(ops.select(keep, bits, ops.add(bits, step)), F32)


def bfloat_bits(ops: Operations, value: Value) -> Value:
    """Round f32 to bf16 bits: to nearest even, NaN stays a quiet NaN."""
    lanes = value.lanes
    bits = ops.bitcast(value, U32)
    upper = ops.binary(BinaryOp.SHR, bits, literal(16, U32, lanes))
    odd = ops.binary(BinaryOp.AND, upper, literal(1, U32, lanes))
    bias = ops.add(odd, literal(0x7FFF, U32, lanes))
    rounded = ops.binary(BinaryOp.SHR, ops.add(bits, bias), literal(16, U32, lanes))
    quiet = ops.binary(BinaryOp.OR, upper, literal(0x40, U32, lanes))
    is_nan = ops.compare(BinaryOp.NE, value, value)
    return ops.cast(ops.select(is_nan, quiet, rounded), U16)


def half_value(ops: Operations, bits: Value) -> Value:
    """f16 bits to f32 with integer operations, for machines that cannot convert."""
    lanes = bits.lanes
    wide = ops.cast(bits, U32)

    def number(x: int) -> Value:
        return literal(x, U32, lanes)

    sign = ops.binary(BinaryOp.SHL, ops.binary(BinaryOp.AND, wide, number(0x8000)), number(16))
    rest = ops.binary(BinaryOp.AND, wide, number(0x7FFF))
    moved = ops.bitcast(ops.binary(BinaryOp.SHL, rest, number(13)), F32)
    # The exponent is rebased by a multiplication, which also makes subnormals normal.
    scaled = ops.mul(moved, literal(2.0**112, F32, lanes))
    special = ops.compare(BinaryOp.LE, number(0x7C00), rest)
    infinite = ops.binary(BinaryOp.OR, ops.bitcast(scaled, U32), number(0x7F800000))
    magnitude = ops.select(special, infinite, ops.bitcast(scaled, U32))
    return ops.bitcast(ops.binary(BinaryOp.OR, magnitude, sign), F32)


def half_bits(ops: Operations, value: Value) -> Value:
    """f32 to f16 bits with integer operations: to nearest even, NaN stays a quiet NaN."""
    lanes = value.lanes

    def number(x: int) -> Value:
        return literal(x, U32, lanes)

    bits = ops.bitcast(value, U32)
    sign = ops.binary(BinaryOp.AND, bits, number(0x80000000))
    rest = ops.binary(BinaryOp.XOR, bits, sign)
    odd = ops.binary(BinaryOp.AND, ops.binary(BinaryOp.SHR, rest, number(13)), number(1))
    # Normal results: rebase the exponent and round by adding just under half a unit.
    rebased = ops.add(ops.add(rest, number(0xC8000FFF)), odd)
    normal = ops.binary(BinaryOp.SHR, rebased, number(13))
    # Subnormal results: adding a float whose unit is the smallest f16 rounds in hardware.
    magic = number(126 << 23)
    aligned = ops.add(ops.bitcast(rest, F32), ops.bitcast(magic, F32))
    tiny = ops.binary(BinaryOp.SUB, ops.bitcast(aligned, U32), magic)
    finite = ops.select(ops.compare(BinaryOp.LT, rest, number(113 << 23)), tiny, normal)
    is_nan = ops.compare(BinaryOp.LT, number(0x7F800000), rest)
    special = ops.select(is_nan, number(0x7E00), number(0x7C00))
    overflows = ops.compare(BinaryOp.LE, number(143 << 23), rest)
    magnitude = ops.select(overflows, special, finite)
    shifted = ops.binary(BinaryOp.SHR, sign, number(16))
    return ops.cast(ops.binary(BinaryOp.OR, magnitude, shifted), I16)
