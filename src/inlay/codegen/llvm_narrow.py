"""Clamped integers of 32 bits as bytes: packed with saturation, four vectors to one.

x86 packs two vectors of 32 bits to one of 16, and two of those to one of 8, each to the nearest integer of
the narrow format, and within parts of 128 bits; one permutation of the whole puts the parts in order. So
ends that are those of the format cost nothing, and a zero point that is added behind the clamp is added to
16 bits, also with saturation. LLVM knows each vector alone: a maximum, two steps of one port to narrow it,
and one to put it beside the others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from inlay.arith.dtype import I8, I32, U8, DType
from inlay.codegen.llvm_builder import Builder
from inlay.codegen.llvm_index import IndexEmitter
from inlay.codegen.llvm_ops import Operations
from inlay.codegen.llvm_types import Value, vector
from inlay.loop.scalar import Binary, BinaryOp, Cast, Lit, Scalar
from inlay.machine.target import Target

_PART = 4
"""Lanes of 32 bits in the 128 bits that packing stays within."""
_COUNTS = (2, 3, 4, 8)
"""Vectors of sums that are packed: of one, narrowing takes as many steps."""
_FAR = 1 << 14
"""Zero points are nearer to 0: a sum that 16 bits do not hold is beyond the bytes on the same side."""


@dataclass(frozen=True, slots=True)
class _Clamp:
    """`min(max(value, low), high) + zero`, whose ends the narrow format holds behind the sum."""

    value: Scalar
    low: int
    high: int
    zero: int


class NarrowEmitter:
    """Writes casts of clamped integers to bytes."""

    def __init__(self, builder: Builder, index: IndexEmitter, ops: Operations, target: Target) -> None:
        self._builder = builder
        self._index = index
        self._ops = ops
        self._family, self._lanes = _packs(target)

    def value(self, x: Cast, narrow: Callable[[Scalar], Value]) -> Value | None:
        """Return the bytes; None where `x` is something else, or few lanes, or no instruction packs them.

        Args:
            x: a cast.
            narrow: evaluates what is below it.
        """
        lanes, one = self._index.width, self._lanes
        if not one or lanes % one or lanes // one not in _COUNTS or x.dtype not in (I8, U8):
            return None
        clamp = _clamp(x.operand, x.dtype)
        if clamp is None:
            return None
        given = narrow(clamp.value)
        if not given.lanes:
            return None
        parts = [self._ops.part(given, at, one).text for at in range(0, lanes, one)]
        whole = self._packed(parts[:4], clamp.zero, x.dtype)
        if parts[4:]:
            whole = self._ops.joined(whole, self._packed(parts[4:], clamp.zero, x.dtype))
        return self._clamped(whole, clamp)

    def _packed(self, parts: list[str], zero: int, dtype: DType) -> Value:
        """Return two to four vectors of 32 bits as bytes, in order."""
        one = self._lanes
        half, narrow = vector("i16", 2 * one), vector("i8", 4 * one)
        words = vector("i32", one)
        pairs = [
            self._pack("packssdw", words, half, parts[at], parts[min(at + 1, len(parts) - 1)])
            for at in range(0, len(parts), 2)
        ]
        if zero:
            name = f"@llvm.sadd.sat.v{2 * one}i16"
            pairs = [
                self._pure(f"call {half} {name}({half} {p}, {half} splat (i16 {zero}))", p) for p in pairs
            ]
        code = "packuswb" if dtype is U8 else "packsswb"
        bytes_ = self._pack(code, half, narrow, pairs[0], pairs[-1])
        mixed = self._pure(f"bitcast {narrow} {bytes_} to {words}", bytes_)
        count, blocks = len(parts) * one // _PART, one // _PART
        order = ", ".join(f"i32 {_PART * (i % blocks) + i // blocks}" for i in range(count))
        mixed = self._pure(f"shufflevector {words} {mixed}, {words} poison, <{count} x i32> <{order}>", mixed)
        lanes = len(parts) * one
        text = f"bitcast {vector('i32', count)} {mixed} to {vector('i8', lanes)}"
        return Value(self._pure(text, mixed), dtype, lanes)

    def _pack(self, code: str, source: str, to: str, a: str, b: str) -> str:
        name = self._family.format(code)
        self._ops.declared.add(f"declare {to} {name}({source}, {source})")
        return self._pure(f"call {to} {name}({source} {a}, {source} {b})", a, b)

    def _clamped(self, x: Value, clamp: _Clamp) -> Value:
        """Apply ends that are not those of the format."""
        info, sign = np.iinfo(x.dtype.numpy), "s" if x.dtype.is_signed else "u"
        for code, end, own in (("max", clamp.low, info.min), ("min", clamp.high, info.max)):
            if end + clamp.zero != own:
                name = f"@llvm.{sign}{code}.v{x.lanes}i8"
                text = f"call {x.type} {name}({x.typed}, {x.type} splat (i8 {_signed(end + clamp.zero)}))"
                x = Value(self._pure(text, x.text), x.dtype, x.lanes)
        return x

    def _pure(self, text: str, *operands: str) -> str:
        return self._builder.pure(text, operands)


def _packs(target: Target) -> tuple[str, int]:
    """Return the name of what packs, and the lanes of 32 bits that it takes: 0 where there is nothing."""
    if target.arch != "x86_64":
        return "", 0
    if "avx512bw" in target.features:
        return "@llvm.x86.avx512.{}.512", 16
    if "avx2" in target.features:
        return "@llvm.x86.avx2.{}", 8
    return "@llvm.x86.sse2.{}.128", 4


def _clamp(x: Scalar, to: DType) -> _Clamp | None:
    """Return the clamp that an expression is; None where it is none, or the format does not hold its ends."""
    zero = 0
    if isinstance(x, Binary) and x.op is BinaryOp.ADD and isinstance(x.rhs, Lit):
        x, zero = x.lhs, int(x.rhs.value)
    ends: dict[BinaryOp, int] = {}
    while (
        isinstance(x, Binary)
        and x.dtype is I32
        and x.op in (BinaryOp.MIN, BinaryOp.MAX)
        and x.op not in ends
        and isinstance(x.rhs, Lit)
    ):
        ends[x.op] = int(x.rhs.value)
        x = x.lhs
    if len(ends) < 2:
        return None
    low, high = ends[BinaryOp.MAX], ends[BinaryOp.MIN]
    info = np.iinfo(to.numpy)
    fits = info.min <= low + zero <= high + zero <= info.max and abs(zero) < _FAR
    return _Clamp(x, low, high, zero) if fits else None


def _signed(x: int) -> int:
    """Return a byte as LLVM writes it."""
    return x - 256 if x > 127 else x
