"""What a reduction is made of: the identity, the combining operation, the update of an accumulator."""

from __future__ import annotations

import math
from dataclasses import dataclass

from inlay.arith.dtype import DType, Kind
from inlay.loop.scalar import Binary, BinaryOp, Lit, Load, ReduceOp, Scalar
from inlay.loop.stmt import Block, Let, Stmt, Store

COMBINE: dict[ReduceOp, BinaryOp] = {
    ReduceOp.SUM: BinaryOp.ADD,
    ReduceOp.PRODUCT: BinaryOp.MUL,
    ReduceOp.MIN: BinaryOp.MIN,
    ReduceOp.MAX: BinaryOp.MAX,
    ReduceOp.MAX_NUMBER: BinaryOp.MAX_NUMBER,
    ReduceOp.AND: BinaryOp.AND,
    ReduceOp.OR: BinaryOp.OR,
}
REDUCE: dict[BinaryOp, ReduceOp] = {binary: op for op, binary in COMBINE.items()}


def identity(op: ReduceOp, dtype: DType) -> Lit:
    """Return the value that changes nothing when combined."""
    match op:
        case ReduceOp.SUM:
            value: int | float | bool = 0
        case ReduceOp.PRODUCT:
            value = 1
        case ReduceOp.AND:
            value = True if dtype.kind is Kind.BOOL else -1 if dtype.is_signed else _top(dtype)
        case ReduceOp.OR:
            value = 0
        case ReduceOp.MIN:
            value = math.inf if dtype.is_float else _top(dtype)
        case ReduceOp.MAX | ReduceOp.MAX_NUMBER:
            value = -math.inf if dtype.is_float else _bottom(dtype)
    if dtype.is_float:
        return Lit(float(value), dtype)
    return Lit(bool(value) if dtype.kind is Kind.BOOL else int(value), dtype)


def first_partial(op: ReduceOp, dtype: DType) -> Lit:
    """Return what accumulators begin with that are combined with an `identity` in the end.

    A sum of no floats is 0.0, but -0.0 is what changes no float when it is added: `0.0 + -0.0` is 0.0. So an
    addition to it is no instruction, and the end of the sum is the same to the bit.
    """
    if op is ReduceOp.SUM and dtype.is_float:
        return Lit(-0.0, dtype)
    return identity(op, dtype)


def _top(dtype: DType) -> int:
    if dtype.kind is Kind.BOOL:
        return 1
    return (1 << (dtype.bits - dtype.is_signed)) - 1


def _bottom(dtype: DType) -> int:
    return -(1 << (dtype.bits - 1)) if dtype.is_signed else 0


def combine(op: ReduceOp, lhs: Scalar, rhs: Scalar) -> Binary:
    """Return one step of a reduction."""
    return Binary(COMBINE[op], lhs, rhs, lhs.dtype)


@dataclass(frozen=True, slots=True)
class Update:
    """The parts of `let ...; A[i] = A[i] op value`, the body of a block that reduces.

    Attributes:
        op: how it combines.
        store: the store.
        value: the right operand.
        lets: the scalars bound before the store, outermost first.
    """

    op: ReduceOp
    store: Store
    value: Scalar
    lets: tuple[Let, ...]


def match_update(block: Block) -> Update | None:
    """Take the body of a reducing block apart; None when it has another form."""
    lets: list[Let] = []
    s: Stmt = block.body
    while isinstance(s, Let):
        lets.append(s)
        s = s.body
    if not isinstance(s, Store) or not isinstance(s.value, Binary):
        return None
    op, old = REDUCE.get(s.value.op), s.value.lhs
    if op is None or not isinstance(old, Load):
        return None
    if old.buffer is not s.buffer or old.indices != s.indices:
        return None
    return Update(op, s, s.value.rhs, tuple(lets))


def with_lets(lets: tuple[Let, ...], s: Stmt) -> Stmt:
    """Put lets around a statement, the last one innermost."""
    for let in reversed(lets):
        s = Let(let.sym, let.value, s)
    return s
