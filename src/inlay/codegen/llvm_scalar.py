"""Scalar expressions of the loop IR as values in registers.

Inside a vector loop every expression is evaluated for all lanes at once: what does not depend on
the lane stays a scalar, a load with stride 1 is one vector load, a small stride is a few loads and
shuffles, anything else a gather. A *mask* says which lanes are wanted: it comes from `If` and
`Select`, and loads under it do not touch memory for the other lanes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

from inlay.arith.dtype import BF16, BOOL, F16, F32, I32, I64, DType
from inlay.arith.expr import Int, Sym, lit
from inlay.base.diagnostics import InternalError
from inlay.codegen.llvm_builder import Builder, Carried
from inlay.codegen.llvm_dots import DotEmitter
from inlay.codegen.llvm_halves import HalfByteEmitter
from inlay.codegen.llvm_index import IndexEmitter, Linear, name, number
from inlay.codegen.llvm_math import Math
from inlay.codegen.llvm_memory import Memory
from inlay.codegen.llvm_narrow import NarrowEmitter
from inlay.codegen.llvm_ops import Operations
from inlay.codegen.llvm_types import Value, literal, vector
from inlay.codegen.llvm_wide import WideEmitter
from inlay.loop.dots import plain_sum
from inlay.loop.scalar import (
    Binary,
    BinaryOp,
    Bind,
    Cast,
    Dot,
    Index,
    Intrinsic,
    IntrinsicOp,
    Lit,
    Load,
    Name,
    Reduce,
    Scalar,
    Select,
    Unary,
    UnaryOp,
)
from inlay.loop.walk import may_fault, scalars_below
from inlay.machine.target import Target


class ScalarEmitter:
    """Evaluates scalar expressions.

    Attributes:
        names: values bound by `Let`.
        mask: which lanes are wanted; None for all.
    """

    def __init__(
        self, builder: Builder, index: IndexEmitter, ops: Operations, memory: Memory, target: Target
    ) -> None:
        self.builder = builder
        self.index = index
        self.ops = ops
        self.math = Math(ops)
        self._vector_bits = 8 * target.vector_bytes
        self.memory = memory
        self.names: dict[Sym, Value] = {}
        self.mask: Value | None = None
        self._shared: dict[tuple[Scalar, str], Value] = {}
        self._dots = DotEmitter(builder, index, ops, memory)
        self._wide = WideEmitter(builder, index)
        self._narrow = NarrowEmitter(builder, index, ops, target)
        self._halves = HalfByteEmitter(builder, index, ops, target)
        self._plain: dict[Dot, Scalar] = {}

    def value(self, s: Scalar) -> Value:
        """Return the value of an expression of one statement."""
        self._shared = {}
        return self._value(s)

    def _value(self, s: Scalar) -> Value:
        if isinstance(s, (Lit, Load, Index, Name)):
            return self._leaf(s)
        # Expressions are graphs: without this, shared parts would be walked again and again.
        key = (s, self.mask.text if self.mask else "")
        found = self._shared.get(key)
        if found is None:
            found = self._shared[key] = self._node(s)
        return found

    def _leaf(self, s: Lit | Load | Index | Name) -> Value:
        match s:
            case Load():
                return self.memory.load(s.buffer, s.indices, self.mask)
            case Lit(value=v, dtype=dtype):
                return literal(v, dtype)
            case Name(sym=sym):
                return self._name(sym)
            case Index(value=e, dtype=dtype):
                return self.ops.cast(self.integer(e), dtype)

    def _node(self, s: Unary | Binary | Select | Cast | Intrinsic | Bind | Dot | Reduce) -> Value:
        match s:
            case Binary(op=op, lhs=a, rhs=b):
                made = self._dots.single(s, self._value) or self._lanes_below(op, a, b)
                if made is not None:
                    return made
                return self.ops.binary(op, self._value(a), self._value(b), self.mask)
            case Intrinsic(op=op, args=args, dtype=dtype):
                return self._intrinsic(op, [self._value(a) for a in args], dtype)
            case Select():
                return self._select(s)
            case Cast(operand=Unary(UnaryOp.ROUND_EVEN, a, dtype=source), dtype=to) if (source, to) == (
                F32,
                I32,
            ):
                return self.ops.nearest(self._value(a))
            case Cast(operand=Binary(op=BinaryOp.SHR, lhs=wide, rhs=by), dtype=to) if to is I32:
                made = self._wide.value(wide, by, self._value) if self.ops.has_even_products else None
                return self.ops.cast(self._value(s.operand), to) if made is None else made
            case Cast(operand=Index(value=e, dtype=source), dtype=to) if (source, to) == (I64, I32):
                lanes = self.index.in_bits(self.index.linear(e), 32)
                return Value(lanes, to, self.index.width) if lanes else self.ops.cast(self.integer(e), to)
            case Cast(operand=a, dtype=dtype):
                made = self._narrow.value(s, self._value) or self._halves.value(s, self._value)
                return self.ops.cast(self._value(a), dtype) if made is None else made
            case Unary(op=op, operand=a):
                return self.ops.unary(op, self._value(a))
            case Bind(sym=sym, value=v, body=body):
                self.bind(sym, self._value(v))
                return self._value(body)
            case Dot():
                return self._dot(s)
            case Reduce():
                raise InternalError("a reduction in a lowered function", where="codegen.llvm")
            case _:
                assert_never(s)

    def _lanes_below(self, op: BinaryOp, a: Scalar, b: Scalar) -> Value | None:
        """Return which lanes have the smaller index, if these lie a fixed number apart."""
        low, high = _index_of(a), _index_of(b)
        if op not in (BinaryOp.LT, BinaryOp.LE) or low is None or high is None:
            return None
        distance = self.index.linear(low - high - (1 if op is BinaryOp.LE else 0))
        text = self.index.below_zero(distance, self._vector_bits)
        return None if text is None else Value(text, BOOL, self.index.width)

    def integer(self, e: Int) -> Value:
        """Return an index polynomial as an i64 value."""
        linear = self.index.linear(e)
        wide = self.index.width if self.index.is_vector(linear) else 0
        return Value(self.index.value(linear), I64, wide)

    def bind(self, sym: Sym, value: Value) -> None:
        """Give a symbol a value; an i64 may be used in indices from here on."""
        self.names[sym] = value
        if value.dtype == I64:
            self.index.env[sym] = _linear_of(value)
            if value.lanes:
                self.index.vectors.add(value.text)

    def _name(self, sym: Sym) -> Value:
        found = self.names.get(sym)
        if found is not None:
            return found
        linear = self.index.env.get(sym)
        if linear is None:
            raise InternalError(f"scalar {sym} is not in scope", where="codegen.llvm")
        wide = self.index.width if self.index.is_vector(linear) else 0
        return Value(self.index.value(linear), I64, wide)

    def _intrinsic(self, op: IntrinsicOp, args: list[Value], dtype: DType) -> Value:
        ops = self.ops
        match op:
            case IntrinsicOp.FMA:
                return ops.fma(*args)
            case IntrinsicOp.BITCAST:
                return ops.bitcast(args[0], dtype)
            case IntrinsicOp.MUL_HIGH:
                return ops.mul_high(*args)
            case IntrinsicOp.POW if dtype.is_integer:
                return ops.integer_power(*args)
            case _:
                return self.math.apply(op, args)

    def _dot(self, s: Dot) -> Value:
        made = self._dots.value(s, self.mask, self._value)
        if made is not None:
            return made
        found = self._plain.get(s)
        if found is None:
            found = self._plain[s] = plain_sum(s)
        return self._value(found)

    # ------------------------------------------------------------------ choice

    def _select(self, s: Select) -> Value:
        condition = self._value(s.condition)
        if not condition.text.startswith("%") and not condition.lanes:
            return self._value(s.then if condition.text == "true" else s.otherwise)
        if condition.lanes:
            then = self.under(condition, lambda: self._value(s.then))
            otherwise = self.under(self.negated(condition), lambda: self._value(s.otherwise))
            return self.ops.select(condition, then, otherwise)
        if not (may_fault(s.then) or may_fault(s.otherwise)):
            return self.ops.select(condition, self._value(s.then), self._value(s.otherwise))
        return self._branch(s, condition)

    def _branch(self, s: Select, condition: Value) -> Value:
        """Evaluate one side only: its loads may be out of bounds where the other is chosen."""
        lanes = self.index.width if self._is_wide(s.then) or self._is_wide(s.otherwise) else 0
        kept: list[Value] = []
        is_moved = s.dtype in (F16, BF16) and all(_is_move(x) for x in (s.then, s.otherwise))

        def arm(side: Scalar) -> Callable[[], list[Carried]]:
            def write() -> list[Carried]:
                outside = dict(self._shared)
                value = self.ops.widen(self._value(side), lanes)
                self._shared = outside
                kept.append(value)
                found = [Carried(value.type, value.text)]
                if is_moved:
                    found.append(Carried(vector("i16", lanes), self.ops.to_memory(value)))
                return found

            return write

        [merged, *bits] = self.builder.branch(condition.text, arm(s.then), arm(s.otherwise))
        value = Value(merged, kept[0].dtype, lanes)
        if bits:
            self.ops.note_bits(value, bits[0])
        return value

    def _is_wide(self, s: Scalar) -> bool:
        """Whether an expression may differ by lane (never says no wrongly)."""
        return any(self._leaf_is_wide(x) for x in scalars_below(s))

    def _leaf_is_wide(self, s: Scalar) -> bool:
        match s:
            case Index(value=e):
                return self.index.is_vector(self.index.linear(e))
            case Name(sym=sym):
                value = self.names.get(sym)
                return value.lanes > 0 if value else self.index.is_vector(self.index.env[sym])
            case Load(buffer=buffer, indices=indices):
                return self.memory.is_wide(buffer, indices)
            case Bind():
                return self.index.width > 0
            case Dot(sym=sym):
                # Its factors, which come next, differ by lane as the first of them does.
                self.index.env[sym] = number(0)
                return False
            case _:
                return False

    def under(self, condition: Value, run: Callable[[], Value]) -> Value:
        """Evaluate with fewer lanes wanted."""
        outer = self.mask
        self.mask = condition if outer is None else self.ops.binary(BinaryOp.AND, outer, condition)
        try:
            return run()
        finally:
            self.mask = outer

    def negated(self, condition: Value) -> Value:
        """Return the opposite of a truth value."""
        return self.ops.binary(BinaryOp.XOR, condition, literal(1, BOOL, condition.lanes))


def _is_move(s: Scalar) -> bool:
    """Whether a value is one of what is loaded, or a constant."""
    return isinstance(s, Load | Lit) or (isinstance(s, Select) and _is_move(s.then) and _is_move(s.otherwise))


def _index_of(s: Scalar) -> Int | None:
    """Return what an index, or a number among indices, says."""
    match s:
        case Index(value=e, dtype=dtype) if dtype == I64:
            return e
        case Lit(value=int(n), dtype=dtype) if dtype == I64:
            return lit(n)
        case _:
            return None


def _linear_of(value: Value) -> Linear:
    if value.text.startswith("%"):
        return name(value.text)
    if value.text.startswith("splat"):
        return {(): int(value.text.removesuffix(")").rsplit(" ", 1)[1])}
    return {(): int(value.text)} if int(value.text) else {}
