"""Powers of two and fractions by instructions of AVX-512, which take 16 lanes of f32."""

from __future__ import annotations

from inlay.arith.dtype import F32, I32
from inlay.codegen.llvm_ops import Operations
from inlay.codegen.llvm_types import Value, literal

LANES = 16


def fits(lanes: int) -> bool:
    """Whether so many lanes are whole registers, a power of two of them."""
    return lanes >= LANES and lanes.bit_count() == 1


def scaled(ops: Operations, x: Value, n: Value) -> Value:
    """Return x times 2 to the greatest integer up to n (`Operations.has_scalef`)."""
    return _apply(ops, "scalef", x, n)


def fraction(ops: Operations, x: Value) -> Value:
    """Return x less the greatest integer up to it, 0 for infinities (`Operations.has_fractions`)."""
    down_in_silence = 0b1001
    return _apply(ops, "reduce", x, literal(down_in_silence, I32))


def _apply(ops: Operations, instruction: str, x: Value, other: Value) -> Value:
    """Return what an instruction makes of two vectors of f32, or of one and a number."""
    lanes = x.lanes
    if not fits(lanes):
        wide = LANES if lanes <= LANES else 1 << (lanes - 1).bit_length()
        padded = [_padded(ops, v, wide) if v.dtype is F32 else v for v in (x, other)]
        result = _apply(ops, instruction, *padded)
        return ops.part(result, 0, lanes) if lanes else ops.extract(result, 0)
    name, part = f"llvm.x86.avx512.mask.{instruction}.ps.512", f"<{LANES} x float>"
    parts: list[Value] = []
    for at in range(0, lanes, LANES):
        a = ops.part(x, at, LANES)
        b = ops.part(other, at, LANES) if other.lanes else other
        ops.declared.add(f"declare {part} @{name}({part}, {b.type}, {part}, i16, i32)")
        text = f"call {part} @{name}({part} {a.text}, {b.typed}, {part} {a.text}, i16 -1, i32 4)"
        parts.append(ops.pure(text, F32, LANES, a, b))
    while len(parts) > 1:
        parts = [ops.joined(a, b) for a, b in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0]


def _padded(ops: Operations, x: Value, lanes: int) -> Value:
    """Return a vector of so many lanes that begins with those of another."""
    if not x.lanes:
        return ops.widen(x, lanes)
    chosen = ", ".join(f"i32 {i}" if i < x.lanes else "i32 poison" for i in range(lanes))
    text = f"shufflevector {x.typed}, {x.type} poison, <{lanes} x i32> <{chosen}>"
    return ops.pure(text, x.dtype, lanes, x)
