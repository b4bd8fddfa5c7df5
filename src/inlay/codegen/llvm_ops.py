"""Operations on values in registers: arithmetic, comparison, conversion, as instructions.

`Operations` knows formats and lanes; it does not know loops or buffers. Every operation accepts a
mixture of scalars and vectors and copies the scalars to all lanes. The meaning is that of
`loop.scalar`.
"""

from __future__ import annotations

from collections.abc import Sequence

from inlay.arith.dtype import BF16, BOOL, F16, F32, F64, I32, I64, U16, U32, DType, Kind
from inlay.base.diagnostics import InternalError
from inlay.codegen.llvm_builder import Builder
from inlay.codegen.llvm_helpers import FMOD_LANES, HELPERS
from inlay.codegen.llvm_short_floats import bfloat_bits, half_bits, half_value, round_to_odd
from inlay.codegen.llvm_types import Value, literal, memory_element, register_element, suffix, vector
from inlay.loop.scalar import COMPARISONS, BinaryOp, UnaryOp
from inlay.machine.dot_products import instructions
from inlay.machine.target import Target

_INT_BINARY = {
    BinaryOp.ADD: "add",
    BinaryOp.SUB: "sub",
    BinaryOp.MUL: "mul",
    BinaryOp.AND: "and",
    BinaryOp.OR: "or",
    BinaryOp.XOR: "xor",
}
_FLOAT_BINARY = {BinaryOp.ADD: "fadd", BinaryOp.SUB: "fsub", BinaryOp.MUL: "fmul", BinaryOp.DIV: "fdiv"}
_ORDER = {BinaryOp.LT: "lt", BinaryOp.LE: "le"}
_ROUNDING = {
    UnaryOp.SQRT: "sqrt",
    UnaryOp.FLOOR: "floor",
    UnaryOp.CEIL: "ceil",
    UnaryOp.TRUNC: "trunc",
    UnaryOp.ROUND_EVEN: "roundeven",
}


class Operations:
    """Writes operations through a `Builder`.

    Attributes:
        builder: where instructions go.
        has_half: whether the machine converts f16 itself (else integer code does).
        has_fma: whether the machine multiplies and adds with one rounding.
        has_even_products: whether the machine multiplies even lanes of 32 bits to lanes of 64.
        has_scalef: whether the machine multiplies by powers of two in one instruction.
        has_fractions: whether the machine takes what is behind the point of numbers in one instruction.
        dots: the dot-product instructions of the machine.
        helpers: names of helper functions that are called.
        declared: declarations of intrinsics whose types some versions of LLVM have otherwise.
    """

    def __init__(self, builder: Builder, target: Target) -> None:
        self.builder = builder
        self.has_half = target.has_half
        self.has_fma = target.has_fma
        self.has_even_products = target.arch == "x86_64"
        self.has_scalef = "avx512f" in target.features
        self.has_fractions = "avx512dq" in target.features
        self.dots = instructions(target.arch, target.features)
        self.helpers: set[str] = set()
        self.declared: set[str] = set()
        self._moved: dict[tuple[str, DType], str] = {}

    # ------------------------------------------------------------------ plumbing

    def pure(self, text: str, dtype: DType, lanes: int, *operands: Value) -> Value:
        """Write an instruction without effect."""
        return Value(self.builder.pure(text, [o.text for o in operands]), dtype, lanes)

    def widen(self, value: Value, lanes: int) -> Value:
        """Return a value with so many lanes, copying a scalar to all."""
        if value.lanes == lanes:
            return value
        if value.lanes:
            raise InternalError(f"a vector of {value.lanes} lanes where {lanes} are needed")
        element = register_element(value.dtype)
        if value.text == "poison":
            return Value("poison", value.dtype, lanes)
        if not value.text.startswith("%"):
            return Value(f"splat ({element} {value.text})", value.dtype, lanes)
        one = self.builder.pure(
            f"insertelement <{lanes} x {element}> poison, {value.typed}, i32 0", (value.text,), cheap=True
        )
        every = self.builder.pure(
            f"shufflevector <{lanes} x {element}> {one}, <{lanes} x {element}> poison, "
            f"<{lanes} x i32> zeroinitializer",
            (one,),
            cheap=True,
        )
        wide = Value(every, value.dtype, lanes)
        if (bits := self._moved.get((value.text, value.dtype))) is not None:
            self.note_bits(wide, self.widen(Value(bits, U16), lanes).text)
        return wide

    def unify(self, *values: Value) -> list[Value]:
        """Return values with equal lanes."""
        lanes = max(v.lanes for v in values)
        return [self.widen(v, lanes) for v in values]

    def call(self, function: str, dtype: DType, *args: Value, extra: str = "") -> Value:
        """Call an intrinsic that is overloaded on its result."""
        values = self.unify(*args)
        lanes = values[0].lanes
        element = register_element(dtype)
        listed = ", ".join(v.typed for v in values) + extra
        text = f"call {vector(element, lanes)} @llvm.{function}.{suffix(element, lanes)}({listed})"
        return self.pure(text, dtype, lanes, *values)

    def rounded(self, value: Value) -> Value:
        """Round an f32 result to the 16-bit format that the value stands for."""
        if value.dtype.kind is Kind.FLOAT and value.dtype.bits == 16:
            return self.from_memory(self.to_memory(value), value.dtype, value.lanes)
        return value

    # ------------------------------------------------------------------ arithmetic

    def binary(self, op: BinaryOp, a: Value, b: Value, guard: Value | None = None) -> Value:
        """Return `a op b`; lanes that `guard` turns off must not trap."""
        if op in COMPARISONS:
            return self.compare(op, a, b)
        if op in (BinaryOp.AND, BinaryOp.OR) and a.dtype.kind is Kind.BOOL:
            # Conditions on unrolled loops are known, and decide others that are not.
            for x, other in ((a, b), (b, a)):
                if x.text in ("true", "false"):
                    return x if (x.text == "true") == (op is BinaryOp.OR) else other
        a, b = self.unify(a, b)
        dtype = a.dtype
        if op is BinaryOp.MAX_NUMBER and dtype.is_float:
            return self.select(self.compare(BinaryOp.LT, a, b), b, a)
        if op in (BinaryOp.MIN, BinaryOp.MAX, BinaryOp.MAX_NUMBER):
            return self.extreme(BinaryOp.MIN if op is BinaryOp.MIN else BinaryOp.MAX, a, b)
        if op in (BinaryOp.SHL, BinaryOp.SHR):
            return self._shift(op, a, b)
        if dtype.is_float:
            if op in _FLOAT_BINARY:
                return self.rounded(
                    self.pure(f"{_FLOAT_BINARY[op]} {a.typed}, {b.text}", dtype, a.lanes, a, b)
                )
            return self.rounded(self._float_division(op, a, b))
        if op in _INT_BINARY:
            return self.pure(f"{_INT_BINARY[op]} {a.typed}, {b.text}", dtype, a.lanes, a, b)
        if dtype.kind is Kind.BOOL:
            raise InternalError(f"{op} on bool")
        return self._int_division(op, a, b, guard)

    def add(self, a: Value, b: Value) -> Value:
        """Return the sum."""
        return self.binary(BinaryOp.ADD, a, b)

    def mul(self, a: Value, b: Value) -> Value:
        """Return the product."""
        return self.binary(BinaryOp.MUL, a, b)

    def compare(self, op: BinaryOp, a: Value, b: Value) -> Value:
        """Return a truth value per lane; NaN is unequal to all and not ordered."""
        known = _compare_numbers(op, a, b)
        if known is not None:
            return literal(known, BOOL)
        a, b = self.unify(a, b)
        if a.dtype.is_float:
            code = "fcmp " + {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole"}[op.value]
        elif op in _ORDER:
            code = "icmp " + ("s" if a.dtype.is_signed else "u") + _ORDER[op]
        else:
            code = f"icmp {op.value}"
        return self.pure(f"{code} {a.typed}, {b.text}", BOOL, a.lanes, a, b)

    def extreme(self, op: BinaryOp, a: Value, b: Value) -> Value:
        """Return the minimum or maximum; a NaN on either side is the result."""
        a, b = self.unify(a, b)
        dtype, lanes = a.dtype, a.lanes
        if dtype.kind is Kind.BOOL:
            return self.binary(BinaryOp.AND if op is BinaryOp.MIN else BinaryOp.OR, a, b)
        if not dtype.is_float:
            return self.call(f"{'s' if dtype.is_signed else 'u'}{op.value}", dtype, a, b)
        # `a < b ? a : b` is b when either is NaN, and one instruction on x86: so the operand that
        # can be NaN goes second, and only two such operands need a second look at the first. That is the
        # right one: in a reduction, what is new, whose test waits for no earlier step.
        if not a.is_number:
            a, b = b, a
        order = "olt" if op is BinaryOp.MIN else "ogt"
        test = self.pure(f"fcmp {order} {a.typed}, {b.text}", BOOL, lanes, a, b)
        best = self.select(test, a, b)
        if a.is_number:
            return best
        is_nan = self.pure(f"fcmp uno {a.typed}, {a.text}", BOOL, lanes, a)
        return self.select(is_nan, a, best)

    def select(self, condition: Value, a: Value, b: Value) -> Value:
        """Return `a` where the condition holds, else `b`."""
        a, b = self.unify(a, b)
        if a.text == b.text:
            return a
        lanes = max(a.lanes, condition.lanes)
        a, b = self.widen(a, lanes), self.widen(b, lanes)
        text = f"select {condition.typed}, {a.typed}, {b.typed}"
        chosen = self.pure(text, a.dtype, lanes, condition, a, b)
        is_known = [(x.text, x.dtype) in self._moved for x in (a, b)]
        if any(is_known) and all(known or x.is_literal for known, x in zip(is_known, (a, b), strict=True)):
            bits = [Value(self.to_memory(x), U16, lanes) for x in (a, b)]
            self.note_bits(chosen, self.select(condition, *bits).text)
        return chosen

    def note_bits(self, value: Value, bits: str) -> None:
        """Say what a 16-bit float is in memory: what is only moved is stored as it was loaded.

        LLVM takes a widening and a narrowing together, but not with a choice in between.
        """
        self._moved[value.text, value.dtype] = bits

    def unary(self, op: UnaryOp, a: Value) -> Value:
        """Return `op a`."""
        dtype, lanes = a.dtype, a.lanes
        match op:
            case UnaryOp.NEG if dtype.is_float:
                return self.pure(f"fneg {a.typed}", dtype, lanes, a)
            case UnaryOp.NEG:
                return self.binary(BinaryOp.SUB, literal(0, dtype, lanes), a)
            case UnaryOp.ABS if dtype.is_float:
                return self.call("fabs", dtype, a)
            case UnaryOp.ABS:
                return self.call("abs", dtype, a, extra=", i1 false") if dtype.is_signed else a
            case UnaryOp.NOT | UnaryOp.BITNOT:
                if op is UnaryOp.NOT and dtype.kind is not Kind.BOOL:
                    a = self.cast(a, BOOL)
                ones = literal(1 if a.dtype.kind is Kind.BOOL else -1, a.dtype, lanes)
                return self.binary(BinaryOp.XOR, a, ones)
            case UnaryOp.SQRT | UnaryOp.FLOOR | UnaryOp.CEIL | UnaryOp.TRUNC | UnaryOp.ROUND_EVEN:
                if not dtype.is_float:
                    return a
                return self.rounded(self.call(_ROUNDING[op], dtype, a))

    def fma(self, a: Value, b: Value, c: Value) -> Value:
        """Return `a * b + c`, rounded once for floats (f64 on machines without it: twice)."""
        dtype = a.dtype
        if not dtype.is_float or (not self.has_fma and dtype.bits == 64):
            return self.add(self.mul(a, b), c)
        if not self.has_fma:
            x, y, z = (self.cast(v, F64) for v in (a, b, c))
            return self.cast(self.add(self.mul(x, y), z), dtype)
        return self.rounded(self.call("fma", a.dtype, a, b, c))

    def part(self, x: Value, at: int, count: int) -> Value:
        """Return some neighboring lanes of a vector."""
        if count == x.lanes:
            return x
        chosen = ", ".join(f"i32 {at + i}" for i in range(count))
        return self.pure(
            f"shufflevector {x.typed}, {x.type} poison, <{count} x i32> <{chosen}>", x.dtype, count, x
        )

    def joined(self, a: Value, b: Value) -> Value:
        """Return the lanes of two vectors of the same length, one after the other."""
        lanes = a.lanes + b.lanes
        order = ", ".join(f"i32 {i}" for i in range(lanes))
        text = f"shufflevector {a.typed}, {b.typed}, <{lanes} x i32> <{order}>"
        return self.pure(text, a.dtype, lanes, a, b)

    def _shift(self, op: BinaryOp, a: Value, b: Value) -> Value:
        dtype, lanes, bits = a.dtype, a.lanes, a.dtype.bits
        limit = literal(bits - 1, dtype, lanes)
        amount = b if b.is_literal else self._unsigned_min(b, limit)
        if op is BinaryOp.SHR and dtype.is_signed:
            return self.pure(f"ashr {a.typed}, {amount.text}", dtype, lanes, a, amount)
        code = "shl" if op is BinaryOp.SHL else "lshr"
        moved = self.pure(f"{code} {a.typed}, {amount.text}", dtype, lanes, a, amount)
        if amount is b:
            return moved
        fits = self.pure(f"icmp ule {b.typed}, {limit.text}", BOOL, lanes, b)
        return self.select(fits, moved, literal(0, dtype, lanes))

    def _unsigned_min(self, a: Value, b: Value) -> Value:
        return self.call("umin", a.dtype, a, b)

    def _int_division(self, op: BinaryOp, a: Value, b: Value, guard: Value | None) -> Value:
        dtype, lanes = a.dtype, a.lanes
        if guard is not None and not b.is_literal:
            b = self.select(guard, b, literal(1, dtype, lanes))
        kind = "s" if dtype.is_signed else "u"
        may_trap = not b.is_literal

        def divide(code: str) -> Value:
            text = f"{kind}{code} {a.typed}, {b.text}"
            if may_trap and lanes and dtype.bits <= 32:
                quotient = self._quotient_by_floats(a, b)
                if code == "div":
                    return quotient
                return self.binary(BinaryOp.SUB, a, self.mul(quotient, b))
            if may_trap:
                return Value(self.builder.define(text), dtype, lanes)
            return self.pure(text, dtype, lanes, a)

        if op is BinaryOp.DIV or (op is BinaryOp.FLOORDIV and not dtype.is_signed):
            return divide("div")
        if op is BinaryOp.REM or (op is BinaryOp.FLOORMOD and not dtype.is_signed):
            return divide("rem")
        zero = literal(0, dtype, lanes)
        remainder = divide("rem")
        opposite = self.compare(BinaryOp.LT, self.binary(BinaryOp.XOR, remainder, b), zero)
        inexact = self.compare(BinaryOp.NE, remainder, zero)
        fix = self.binary(BinaryOp.AND, opposite, inexact)
        if op is BinaryOp.FLOORMOD:
            return self.select(fix, self.add(remainder, b), remainder)
        return self.add(divide("div"), self.select(fix, literal(-1, dtype, lanes), zero))

    def _quotient_by_floats(self, a: Value, b: Value) -> Value:
        """Return a vector of truncated quotients of integers of at most 32 bits: no processor divides those.

        Both are exact in a float of more than 1.5 times their bits. A quotient that is no integer is at least
        1 / b from one, and the rounded one is nearer than that to it: it lies on the same side.
        """
        wide = F32 if a.dtype.bits <= 16 else F64
        quotient = self.binary(BinaryOp.DIV, self.cast(a, wide), self.cast(b, wide))
        code = "fptosi" if a.dtype.is_signed else "fptoui"
        text = f"{code} {quotient.typed} to <{a.lanes} x i{a.dtype.bits}>"
        return self.pure(text, a.dtype, a.lanes, quotient)

    def _float_division(self, op: BinaryOp, a: Value, b: Value) -> Value:
        """Remainders and floor division of floats, as NumPy defines them."""
        dtype, lanes = a.dtype, a.lanes
        remainder = self.fmod(a, b)
        if op is BinaryOp.REM:
            return remainder
        zero = literal(0.0, dtype, lanes)
        opposite = self.binary(
            BinaryOp.XOR, self.compare(BinaryOp.LT, b, zero), self.compare(BinaryOp.LT, remainder, zero)
        )
        fix = self.binary(BinaryOp.AND, opposite, self.compare(BinaryOp.NE, remainder, zero))
        floored = self.select(fix, self.add(remainder, b), remainder)
        if op is BinaryOp.FLOORMOD:
            signed_zero = self.call("copysign", dtype, zero, b)
            is_zero = self.compare(BinaryOp.EQ, remainder, zero)
            return self.select(is_zero, signed_zero, floored)
        if op is not BinaryOp.FLOORDIV:
            raise InternalError(f"{op} on {dtype}")
        plain = self.binary(BinaryOp.DIV, a, b)
        whole = self.binary(BinaryOp.DIV, self.binary(BinaryOp.SUB, a, floored), b)
        nearest = self.unary(UnaryOp.ROUND_EVEN, whole)
        finite = self.binary(
            BinaryOp.AND, self.compare(BinaryOp.NE, b, zero), self.compare(BinaryOp.EQ, nearest, nearest)
        )
        return self.select(finite, nearest, plain)

    def fmod(self, a: Value, b: Value) -> Value:
        """Return the exact remainder of truncated division, by helper functions."""
        self.helpers.add("fmod")
        return self.cast(self._fmod(self.cast(a, F64), self.cast(b, F64)), a.dtype)

    def _fmod(self, a: Value, b: Value) -> Value:
        lanes = a.lanes
        if not lanes:
            return self.pure(f"call double @inlay.fmod({a.typed}, {b.typed})", F64, 0, a, b)
        if lanes > FMOD_LANES and lanes % 2 == 0:
            half = lanes // 2
            parts = [self._fmod(self.part(a, at, half), self.part(b, at, half)) for at in (0, half)]
            return self.joined(*parts)
        name = f"fmod.{lanes}"
        if self.has_fma and name in HELPERS:
            self.helpers.add(name)
            return self.pure(f"call {a.type} @inlay.{name}({a.typed}, {b.typed})", F64, lanes, a, b)
        out = Value("poison", F64, lanes)
        for i in range(lanes):
            out = self.insert(out, self._fmod(self.extract(a, i), self.extract(b, i)), i)
        return out

    def integer_power(self, a: Value, b: Value) -> Value:
        """Return a to the power b, modulo the width, by a helper function per lane.

        A negative exponent gives 1 for 1, 1 or -1 for -1, and 0 for all else.
        """
        self.helpers.add("ipow")
        a, b = self.unify(a, b)
        dtype, lanes = a.dtype, a.lanes
        wide_a, wide_b = self.cast(a, I64), self.cast(b, I64)
        if not lanes:
            text = f"call i64 @inlay.ipow({wide_a.typed}, {wide_b.typed})"
            power = self.pure(text, I64, 0, wide_a, wide_b)
        else:
            power = Value("poison", I64, lanes)
            for i in range(lanes):
                x, y = self.extract(wide_a, i), self.extract(wide_b, i)
                text = f"call i64 @inlay.ipow({x.typed}, {y.typed})"
                power = self.insert(power, self.pure(text, I64, 0, x, y), i)
        power = self.cast(power, dtype)
        if not dtype.is_signed:
            return power
        zero, one, minus = (literal(v, dtype, lanes) for v in (0, 1, -1))
        odd = self.compare(BinaryOp.NE, self.binary(BinaryOp.AND, b, one), zero)
        inverse = self.select(self.compare(BinaryOp.EQ, a, minus), self.select(odd, minus, one), zero)
        inverse = self.select(self.compare(BinaryOp.EQ, a, one), one, inverse)
        return self.select(self.compare(BinaryOp.LT, b, zero), inverse, power)

    def extract(self, value: Value, lane: int) -> Value:
        """Return one lane as a scalar."""
        text = f"extractelement {value.typed}, i64 {lane}"
        return Value(self.builder.pure(text, (value.text,), cheap=True), value.dtype)

    def insert(self, value: Value, element: Value, lane: int) -> Value:
        """Return a vector with one lane replaced."""
        text = f"insertelement {value.typed}, {element.typed}, i64 {lane}"
        return self.pure(text, value.dtype, value.lanes, value, element)

    # ------------------------------------------------------------------ conversion

    def cast(self, value: Value, to: DType) -> Value:
        """Convert the value: truncation toward zero, wrapping between integers, `!= 0` to bool."""
        source, lanes = value.dtype, value.lanes
        if source == to:
            return value
        if to.kind is Kind.BOOL:
            code = "fcmp une" if source.is_float else "icmp ne"
            zero = literal(0, source, lanes)
            return self.pure(f"{code} {value.typed}, {zero.text}", BOOL, lanes, value)
        if source.is_float and to.is_float:
            return self._convert_float(value, to)
        if to.is_float:
            via = F32 if to.bits == 16 else to
            code = "sitofp" if source.is_signed else "uitofp"
            got = self._conversion(code, value, via)
            return self.rounded(Value(got.text, to, lanes))
        if source.is_float:
            return self._conversion("fptosi" if to.is_signed else "fptoui", value, to)
        if source.kind is Kind.BOOL:
            return self._conversion("zext", value, to)
        if to.bits == source.bits:
            return Value(value.text, to, lanes)
        if to.bits < source.bits:
            return self._conversion("trunc", value, to)
        return self._conversion("sext" if source.is_signed else "zext", value, to)

    def nearest(self, value: Value) -> Value:
        """Convert an f32 to the nearest i32, ties to even: one instruction where rounding first is two."""
        lanes = value.lanes
        name = f"llvm.lrint.{suffix('i32', lanes)}.{suffix('float', lanes)}"
        return self.pure(f"call {vector('i32', lanes)} @{name}({value.typed})", I32, lanes, value)

    def _conversion(self, code: str, value: Value, to: DType) -> Value:
        target = vector(register_element(to), value.lanes)
        return self.pure(f"{code} {value.typed} to {target}", to, value.lanes, value)

    def _convert_float(self, value: Value, to: DType) -> Value:
        source, lanes = value.dtype, value.lanes
        if to.bits == 64:
            return self._conversion("fpext", value, to)
        if source.bits == 64:
            if to.bits == 16:
                narrow = round_to_odd(self, value)
                return self.rounded(Value(narrow.text, to, lanes))
            return self._conversion("fptrunc", value, to)
        # Registers hold 16-bit floats as f32, so widening is nothing and narrowing is rounding.
        return self.rounded(Value(value.text, to, lanes))

    def bitcast(self, value: Value, to: DType) -> Value:
        """Return the same bits as another format of equal width."""
        bits = self.to_memory(value)
        source = vector(memory_element(value.dtype), value.lanes)
        target = vector(memory_element(to), value.lanes)
        if source != target:
            bits = self.builder.pure(f"bitcast {source} {bits} to {target}", (bits,))
        return self.from_memory(bits, to, value.lanes)

    def to_memory(self, value: Value) -> str:
        """Return what is stored for a value, of the format's memory type."""
        lanes, emit = value.lanes, self.builder
        if (moved := self._moved.get((value.text, value.dtype))) is not None:
            return moved
        match value.dtype.name:
            case "bool":
                return emit.pure(f"zext {value.typed} to {vector('i8', lanes)}", (value.text,))
            case "f16" if self.has_half:
                half = vector("half", lanes)
                bits = emit.pure(f"fptrunc {value.typed} to {half}", (value.text,))
                return emit.pure(f"bitcast {half} {bits} to {vector('i16', lanes)}", (bits,))
            case "f16":
                return half_bits(self, Value(value.text, F32, lanes)).text
            case "bf16":
                return bfloat_bits(self, Value(value.text, F32, lanes)).text
            case _:
                return value.text

    def from_memory(self, text: str, dtype: DType, lanes: int) -> Value:
        """Return the value of what was loaded."""
        value = self._from_memory(text, dtype, lanes)
        if dtype in (F16, BF16):
            self.note_bits(value, text)
        return value

    def _from_memory(self, text: str, dtype: DType, lanes: int) -> Value:
        emit = self.builder
        match dtype.name:
            case "bool":
                type = vector("i8", lanes)
                zero = "zeroinitializer" if lanes else "0"
                return Value(emit.pure(f"icmp ne {type} {text}, {zero}", (text,)), dtype, lanes)
            case "f16" if self.has_half:
                half = vector("half", lanes)
                bits = emit.pure(f"bitcast {vector('i16', lanes)} {text} to {half}", (text,))
                return Value(
                    emit.pure(f"fpext {half} {bits} to {vector('float', lanes)}", (bits,)), dtype, lanes
                )
            case "f16":
                return Value(half_value(self, Value(text, U16, lanes)).text, dtype, lanes)
            case "bf16":
                wide = self.cast(Value(text, U16, lanes), U32)
                high = self.binary(BinaryOp.SHL, wide, literal(16, U32, lanes))
                return Value(self.bitcast(high, F32).text, dtype, lanes)
            case _:
                return Value(text, dtype, lanes)

    def mul_high(self, a: Value, b: Value) -> Value:
        """Return the upper half of the double-width product of integers."""
        a, b = self.unify(a, b)
        bits, lanes = a.dtype.bits, a.lanes
        narrow, wide = vector(f"i{bits}", lanes), vector(f"i{2 * bits}", lanes)
        extend = "sext" if a.dtype.is_signed else "zext"
        emit = self.builder
        x = emit.pure(f"{extend} {a.typed} to {wide}", (a.text,))
        y = emit.pure(f"{extend} {b.typed} to {wide}", (b.text,))
        product = emit.pure(f"mul {wide} {x}, {y}", (x, y))
        amount = f"splat (i{2 * bits} {bits})" if lanes else str(bits)
        high = emit.pure(f"lshr {wide} {product}, {amount}", (product,))
        return Value(emit.pure(f"trunc {wide} {high} to {narrow}", (high,)), a.dtype, lanes)

    def any_lane(self, mask: Value) -> Value:
        """Return whether a mask holds in some lane."""
        if not mask.lanes:
            return mask
        text = f"call i1 @llvm.vector.reduce.or.v{mask.lanes}i1({mask.typed})"
        return self.pure(text, BOOL, 0, mask)

    def all_of(self, values: Sequence[Value]) -> Value:
        """Return the conjunction of truth values."""
        out = values[0]
        for v in values[1:]:
            out = self.binary(BinaryOp.AND, out, v)
        return out


def _compare_numbers(op: BinaryOp, a: Value, b: Value) -> bool | None:
    """Return the outcome for two integers that are known."""
    if a.lanes or b.lanes or not a.dtype.is_integer:
        return None
    if not (a.is_literal and b.is_literal):
        return None
    x, y = int(a.text), int(b.text)
    if not a.dtype.is_signed:
        x, y = x % 2**a.dtype.bits, y % 2**a.dtype.bits
    return {BinaryOp.EQ: x == y, BinaryOp.NE: x != y, BinaryOp.LT: x < y, BinaryOp.LE: x <= y}[op]
