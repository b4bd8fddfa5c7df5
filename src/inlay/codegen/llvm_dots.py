"""Dot-product instructions: `Dot` in a vector loop, where the machine has an instruction for it.

A factor is in memory, its few elements next to each other: the same ones for all lanes, which are loaded
as one integer of 32 bits and broadcast, or those of neighboring lanes side by side, which are one vector.
Formats narrower than the instruction's are widened behind the load. Anything else is the plain sum.

Factors of bf16 are their bits, and their sums are floats.

One product of two narrow integers that is added to a sum of 32 bits is half a dot product of pairs, the
second factor 0 where the first has its sign. Multiplying 32 by 32 bits takes two, and one to add.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from inlay.arith.dtype import I8, I16, I32, U8, DType
from inlay.codegen.llvm_builder import Builder
from inlay.codegen.llvm_index import IndexEmitter, Split
from inlay.codegen.llvm_memory import Memory
from inlay.codegen.llvm_ops import Operations
from inlay.codegen.llvm_types import Value, vector
from inlay.loop.dots import is_factor
from inlay.loop.scalar import Binary, BinaryOp, Cast, Dot, Lit, Load, Scalar
from inlay.machine.dot_products import Instruction

_BYTE_OPS = {BinaryOp.AND: "and", BinaryOp.SHR: "lshr"}


class _Place(NamedTuple):
    """A factor in memory: the load, where it reads, and what is done to each of its bytes, in order."""

    load: Load
    where: Split
    bits: tuple[Binary, ...]


class DotEmitter:
    """Writes dot products as instructions."""

    def __init__(self, builder: Builder, index: IndexEmitter, ops: Operations, memory: Memory) -> None:
        self._builder = builder
        self._index = index
        self._ops = ops
        self._memory = memory

    def value(self, x: Dot, mask: Value | None, value: Callable[[Scalar], Value]) -> Value | None:
        """Return the sum, None where no instruction computes it.

        Args:
            x: the node.
            mask: which lanes are wanted.
            value: evaluates what is below it.
        """
        lanes = self._index.width
        found = self._instruction(x, lanes)
        factors = None if found is None else self._factors(x, swapped=found[1])
        if found is None or factors is None:
            return None
        instruction = found[0]
        kind, step = instruction.kind, instruction.lanes
        terms, below = [factors], x.acc
        if instruction.sums:
            most = _largest_pair(x)
            while isinstance(below, Dot) and (most := most + _largest_pair(below)) < 2**15:
                more = self._factors(below, swapped=found[1])
                if self._instruction(below, lanes) != found or more is None:
                    break
                terms, below = [*terms, more], below.acc
        total = self._ops.widen(value(below), lanes)
        parts: list[str] = []
        for start in range(0, lanes, step):
            chosen = range(start, start + step)
            pairs = [
                tuple(
                    self._factor(place, x.width, chosen, to, instruction, mask)
                    for place, to in zip(both, (kind.first, kind.second), strict=True)
                )
                for both in terms
            ]
            parts.append(self._applied(instruction, self._part(total, chosen), pairs))
        return Value(self._joined(parts, step, kind.sums), kind.sums, lanes)

    def _factors(self, x: Dot, *, swapped: bool) -> tuple[_Place, _Place] | None:
        """Return the factors of a sum in the order of its instruction; None where one is not in memory."""
        a, b = self._place(x.a, x), self._place(x.b, x)
        if a is None or b is None:
            return None
        return (b, a) if swapped else (a, b)

    def single(self, x: Scalar, value: Callable[[Scalar], Value]) -> Value | None:
        """Return a sum with one product, None where `x` is something else or no instruction computes it.

        Args:
            x: any expression.
            value: evaluates what is below it.
        """
        lanes = self._index.width
        if not lanes or not isinstance(x, Binary) or x.op is not BinaryOp.ADD or x.dtype is not I32:
            return None
        a, b = _narrow_factors(x.rhs)
        if a is None or b is None:
            return None
        fits = (i for i in self._ops.dots if i.kind.width == 2 and i.kind.takes(I16, I16))
        instruction = next((i for i in fits if lanes % i.lanes == 0), None)
        first, second = value(a), value(b)
        if instruction is None or not (first.lanes or second.lanes):
            return None
        total, first, second = (self._ops.widen(v, lanes) for v in (value(x.lhs), first, second))
        if a.operand.dtype.is_signed and b.operand.dtype.is_signed:
            type = vector("i32", lanes)
            lower = self._pure(f"and {type} {second.text}, splat (i32 65535)", second.text)
            second = Value(lower, I32, lanes)
        parts: list[str] = []
        for start in range(0, lanes, instruction.lanes):
            chosen = range(start, start + instruction.lanes)
            factors = tuple(self._as_operand(self._part(v, chosen), instruction) for v in (first, second))
            parts.append(self._applied(instruction, self._part(total, chosen), [factors]))
        return Value(self._joined(parts, instruction.lanes, I32), I32, lanes)

    def _as_operand(self, sums: str, instruction: Instruction) -> str:
        """Return lanes of 32 bits as an operand of an instruction, with its type in front."""
        type, operand = vector("i32", instruction.lanes), _operand_type(instruction)
        if type != operand:
            sums = self._pure(f"bitcast {type} {sums} to {operand}", sums)
        return f"{operand} {sums}"

    def _instruction(self, x: Dot, lanes: int) -> tuple[Instruction, bool] | None:
        """Return the first instruction for the node, and whether it takes the factors the other way."""
        # Where no sum of two products leaves i16, one that saturates is the sum.
        saturates = {x.saturates, x.saturates or _largest_pair(x) < 2**15}
        formats = [(a, b) for a in _formats(x.a) for b in _formats(x.b)]
        for found in self._ops.dots:
            same = found.kind.width == x.width and found.kind.saturates in saturates
            if not lanes or lanes % found.lanes or not same:
                continue
            if any(found.kind.takes(a, b) for a, b in formats):
                return found, False
            if any(found.kind.takes(b, a) for a, b in formats):
                return found, True
        return None

    def _place(self, factor: Scalar, x: Dot) -> _Place | None:
        """Return what a factor is in memory; None where it is something else."""
        while isinstance(factor, Cast) and factor.dtype.holds(factor.operand.dtype):
            factor = factor.operand
        bits: tuple[Binary, ...] = ()
        while isinstance(factor, Binary) and factor.op in _BYTE_OPS and isinstance(factor.rhs, Lit):
            if factor.dtype is not U8:
                return None
            bits, factor = (factor, *bits), factor.lhs
        if not isinstance(factor, Load):
            return None
        where = self._memory.group(factor.buffer, factor.indices, x.sym, x.width)
        if where is None or (bits and where.stride == 0):
            return None
        return _Place(factor, where, bits)

    def _factor(
        self, at: _Place, count: int, lanes: range, to: DType, instruction: Instruction, mask: Value | None
    ) -> str:
        """Return a factor in a register, with the type of the instruction's operand in front."""
        load, where, operations = at
        bits = self._memory.load_group(load, where, count, lanes, mask)
        source, total = load.dtype, len(lanes) * count
        for x in operations:
            bits = self._of_bytes(x, bits, total)
        if where.stride == 0:
            type = f"i{source.bits * count}"
            if source.bits < to.bits:
                narrow = self._pure(f"bitcast {type} {bits} to <{count} x i{source.bits}>", bits)
                bits = self._widened(narrow, source, to, count)
                bits = self._pure(f"bitcast <{count} x i{to.bits}> {bits} to i32", bits)
            every = self._ops.widen(Value(bits, I32), len(lanes)).text
            type = vector("i32", len(lanes))
        else:
            every = self._widened(bits, source, to, total)
            type = vector(f"i{to.bits}", total)
        operand = _operand_type(instruction)
        if type != operand:
            every = self._pure(f"bitcast {type} {every} to {operand}", every)
        return f"{operand} {every}"

    def _of_bytes(self, x: Binary, bits: str, count: int) -> str:
        """Return bytes that are masked or shifted.

        There is no shift of bytes, and what LLVM takes for it where it can (`gf2p8affineqb`) waits for the
        units that multiply: 128 rows in four bits take 6 % longer by it. So words are shifted, and masked.
        """
        assert isinstance(x.rhs, Lit), "a place has operations by numbers"
        by, type, words = int(x.rhs.value), vector("i8", count), vector("i16", count // 2)
        if x.op is BinaryOp.AND or count % 2:
            return self._pure(f"{_BYTE_OPS[x.op]} {type} {bits}, splat (i8 {by})", bits)
        bits = self._pure(f"bitcast {type} {bits} to {words}", bits)
        bits = self._pure(f"lshr {words} {bits}, splat (i16 {by})", bits)
        bits = self._pure(f"bitcast {words} {bits} to {type}", bits)
        return self._pure(f"and {type} {bits}, splat (i8 {255 >> by})", bits)

    def _widened(self, bits: str, source: DType, to: DType, count: int) -> str:
        if source.bits == to.bits:
            return bits
        code = "sext" if source.is_signed else "zext"
        return self._pure(f"{code} <{count} x i{source.bits}> {bits} to <{count} x i{to.bits}>", bits)

    def _applied(self, instruction: Instruction, acc: str, factors: Sequence[tuple[str, ...]]) -> str:
        """Return a sum with the products of two factors added, or of several whose pairs fit 16 bits."""
        type, name = vector(instruction.kind.sums.llvm, instruction.lanes), f"@llvm.{instruction.intrinsic}"
        given = vector("i16", 2 * instruction.lanes) if instruction.sums else type
        before = [type] if instruction.adds else []
        types = ", ".join([*before, *[_operand_type(instruction)] * 2])
        self._ops.declared.add(f"declare {given} {name}({types})")
        products = ""
        for a, b in factors:
            operands = [x.rsplit(" ", 1)[1] for x in (a, b)]
            if instruction.adds:
                acc = self._pure(f"call {type} {name}({type} {acc}, {a}, {b})", acc, *operands)
                continue
            more = self._pure(f"call {given} {name}({a}, {b})", *operands)
            products = self._pure(f"add {given} {products}, {more}", products, more) if products else more
        if instruction.adds:
            return acc
        if instruction.sums:  # pairs in i16: multiplied by ones, they are added up
            name = f"@llvm.{instruction.sums}"
            self._ops.declared.add(f"declare {type} {name}({given}, {given})")
            products = self._pure(f"call {type} {name}({given} {products}, {given} splat (i16 1))", products)
        return self._pure(f"add {type} {acc}, {products}", acc, products)

    def _part(self, total: Value, lanes: range) -> str:
        if len(lanes) == total.lanes:
            return total.text
        chosen = ", ".join(f"i32 {lane}" for lane in lanes)
        mask = f"<{len(lanes)} x i32> <{chosen}>"
        return self._pure(f"shufflevector {total.typed}, {total.type} poison, {mask}", total.text)

    def _joined(self, parts: list[str], lanes: int, dtype: DType) -> str:
        """Return vectors side by side, joined one after the other."""
        whole, count = parts[0], lanes
        for part in parts[1:]:
            if count > lanes:
                chosen = [str(i) if i < lanes else "poison" for i in range(count)]
                mask = ", ".join(f"i32 {i}" for i in chosen)
                type = vector(dtype.llvm, lanes)
                part = self._pure(
                    f"shufflevector {type} {part}, {type} poison, <{count} x i32> <{mask}>", part
                )
            type, mask = vector(dtype.llvm, count), ", ".join(f"i32 {i}" for i in range(count + lanes))
            whole = self._pure(
                f"shufflevector {type} {whole}, {type} {part}, <{count + lanes} x i32> <{mask}>", whole, part
            )
            count += lanes
        return whole

    def _pure(self, text: str, *operands: str) -> str:
        return self._builder.pure(text, operands)


def _formats(factor: Scalar) -> tuple[DType, ...]:
    """Return the formats that the bits of a factor are in: small bytes without a sign are bytes with one."""
    is_small = factor.dtype is U8 and _most(factor) < 2**7
    return (U8, I8) if is_small else (factor.dtype,)


def _largest_pair(x: Dot) -> int:
    """Return the largest magnitude that the sum of two neighbors may have; 2^15 where it may saturate."""
    return 2 * 128 * _most(x.a) if x.a.dtype is U8 and x.b.dtype is I8 and not x.saturates else 2**15


def _most(x: Scalar) -> int:
    """Return a number that no byte without a sign is above."""
    match x:
        case Binary(op=BinaryOp.AND, rhs=Lit(value=mask)):
            return int(mask)
        case Binary(op=BinaryOp.SHR, lhs=a, rhs=Lit(value=by)):
            return _most(a) >> int(by)
        case _:
            return 255


def _narrow_factors(x: Scalar) -> tuple[Cast, Cast] | tuple[None, None]:
    """Return the factors of a product of integers of 16 bits in 32."""
    if not isinstance(x, Binary) or x.op is not BinaryOp.MUL:
        return None, None
    a, b = x.lhs, x.rhs
    if not (isinstance(a, Cast) and isinstance(b, Cast)):
        return None, None
    return (a, b) if is_factor(a.operand.dtype) and is_factor(b.operand.dtype) else (None, None)


def _operand_type(instruction: Instruction) -> str:
    return vector(f"i{instruction.operand}", instruction.lanes * 32 // instruction.operand)
