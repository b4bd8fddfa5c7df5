"""Integers of 64 bits that are made of 32 and end as 32: on even and on odd lanes.

A vector of `n` integers of 32 bits is two of `n/2` lanes of 64 bits: the even lanes where they are, and the
odd ones behind a shift. x86 multiplies the lower halves of such lanes (`pmuldq`), and what is wanted of the
result, 32 of its bits, comes back to its place by a shift and a blend. Widening the vector instead moves
all lanes across the register, on the way there and back.
"""

from __future__ import annotations

from collections.abc import Callable

from inlay.arith.dtype import I32, I64
from inlay.codegen.llvm_builder import Builder
from inlay.codegen.llvm_index import IndexEmitter
from inlay.codegen.llvm_types import Value, vector
from inlay.loop.scalar import Binary, BinaryOp, Cast, Lit, Scalar

_CODES = {BinaryOp.ADD: "add", BinaryOp.SUB: "sub", BinaryOp.MUL: "mul"}
_HALF = 32


class WideEmitter:
    """Writes the 32 bits that are wanted of sums and products of 64."""

    def __init__(self, builder: Builder, index: IndexEmitter) -> None:
        self._builder = builder
        self._index = index

    def value(self, wide: Scalar, by: Scalar, narrow: Callable[[Scalar], Value]) -> Value | None:
        """Return the lower 32 bits of `wide >> by`, None where that is not taken apart.

        Args:
            wide: of i64.
            by: the distance.
            narrow: evaluates what is of i32 below `wide`.
        """
        lanes = self._index.width
        if lanes < 4 or lanes % 2 or wide.dtype is not I64 or not isinstance(by, Lit):
            return None
        distance = int(by.value)
        if not 0 < distance <= _HALF or not _has_product(wide):
            return None
        leaves = {x: narrow(x) for x in _leaves(wide)}
        if not any(x.lanes for x in leaves.values()):
            return None
        even, odd = (self._lanes_of(wide, leaves, first) for first in (0, 1))
        type = vector("i64", lanes // 2)
        even = self._pure(f"lshr {type} {even}, splat (i64 {distance})", even)
        if distance < _HALF:
            odd = self._pure(f"shl {type} {odd}, splat (i64 {_HALF - distance})", odd)
        return Value(self._joined(even, odd, lanes), I32, lanes)

    def _lanes_of(self, x: Scalar, leaves: dict[Scalar, Value], first: int) -> str:
        """Return every second lane of an expression, from the first one on, as integers of 64 bits."""
        lanes = self._index.width // 2
        type = vector("i64", lanes)
        match x:
            case Lit(value=number):
                return f"splat (i64 {int(number)})"
            case Cast(operand=operand):
                return self._widened(leaves[operand], lanes, first)
            case Binary(op=op, lhs=a, rhs=b):
                left, right = (self._lanes_of(y, leaves, first) for y in (a, b))
                return self._pure(f"{_CODES[op]} {type} {left}, {right}", left, right)
            case _:
                raise AssertionError("what has other operations is not taken apart")

    def _widened(self, x: Value, lanes: int, first: int) -> str:
        type = vector("i64", lanes)
        if not x.lanes:
            one = x.text
            if one.startswith("%"):
                one = self._pure(f"sext i32 {one} to i64", one)
                lane = self._pure(f"insertelement {type} poison, i64 {one}, i32 0", one)
                mask = f"<{lanes} x i32> zeroinitializer"
                return self._pure(f"shufflevector {type} {lane}, {type} poison, {mask}", lane)
            return f"splat (i64 {one})"
        both = self._pure(f"bitcast {x.typed} to {type}", x.text)
        if first == 0:
            both = self._pure(f"shl {type} {both}, splat (i64 {_HALF})", both)
        return self._pure(f"ashr {type} {both}, splat (i64 {_HALF})", both)

    def _joined(self, even: str, odd: str, lanes: int) -> str:
        """Return the lower halves of the even lanes beside the upper halves of the odd ones."""
        wide, type = vector("i64", lanes // 2), vector("i32", lanes)
        first, second = (self._pure(f"bitcast {wide} {x} to {type}", x) for x in (even, odd))
        chosen = ", ".join(f"i32 {lanes + i if i % 2 else i}" for i in range(lanes))
        return self._pure(
            f"shufflevector {type} {first}, {type} {second}, <{lanes} x i32> <{chosen}>", first, second
        )

    def _pure(self, text: str, *operands: str) -> str:
        return self._builder.pure(text, operands)


def _has_product(x: Scalar) -> bool:
    """Whether an expression is made of products of i32 and of what is taken apart beside them."""
    match x:
        case Lit():
            return True
        case Cast(operand=operand):
            return operand.dtype is I32
        case Binary(op=op, lhs=a, rhs=b):
            return op in _CODES and _has_product(a) and _has_product(b)
        case _:
            return False


def _leaves(x: Scalar) -> list[Scalar]:
    """Return what is of i32 in an expression."""
    match x:
        case Cast(operand=operand):
            return [operand]
        case Binary(lhs=a, rhs=b):
            return _leaves(a) + _leaves(b)
        case _:
            return []
