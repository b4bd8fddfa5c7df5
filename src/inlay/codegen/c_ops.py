"""Operations on values, as the loop IR means them, in C.

Where C has another meaning, a helper or a conversion stands between: arithmetic of signed integers
wraps, small integers are brought back from the `int` they are promoted to, and 16-bit floats are
rounded to their format after each operation.
"""

from __future__ import annotations

from inlay.arith.dtype import BOOL, F32, F64, DType, Kind
from inlay.codegen.c_dialect import Dialect
from inlay.codegen.c_helpers import Helpers
from inlay.codegen.c_text import (
    BITS,
    BOTH,
    EITHER,
    EQUAL,
    MINUS,
    NOT_EQUAL,
    ORDER,
    OVER,
    PLUS,
    REST,
    SUM,
    TIMES,
    UNARY,
    Text,
    call,
    cast,
    infix,
    is_narrow,
    number,
    working,
)
from inlay.loop.scalar import COMPARISONS, EXP_RAISED, BinaryOp, IntrinsicOp, UnaryOp

_FUNCTIONS = {
    UnaryOp.SQRT: "sqrt",
    UnaryOp.FLOOR: "floor",
    UnaryOp.CEIL: "ceil",
    UnaryOp.TRUNC: "trunc",
    UnaryOp.ROUND_EVEN: "rint",
    UnaryOp.ABS: "fabs",
}
_SIGNS = {
    BinaryOp.EQ: ("==", EQUAL),
    BinaryOp.NE: NOT_EQUAL,
    BinaryOp.LT: ("<", ORDER),
    BinaryOp.LE: ("<=", ORDER),
    BinaryOp.AND: ("&", BITS),
    BinaryOp.OR: ("|", BITS),
    BinaryOp.XOR: ("^", BITS),
    BinaryOp.ADD: PLUS,
    BinaryOp.SUB: MINUS,
    BinaryOp.MUL: TIMES,
    BinaryOp.DIV: OVER,
    BinaryOp.REM: REST,
}
_TRUTH = {BinaryOp.AND: ("&&", BOTH), BinaryOp.OR: ("||", EITHER), BinaryOp.XOR: NOT_EQUAL}


class Operations:
    """Writes operations; operands and results are values in registers."""

    def __init__(self, dialect: Dialect, helpers: Helpers) -> None:
        self._dialect = dialect
        self._helpers = helpers

    def rounded(self, value: Text, dtype: DType) -> Text:
        """Return what was computed in f32 as a value of its own format."""
        if not is_narrow(dtype):
            return value
        narrow = call(self._helpers.use(f"f32_to_{dtype.name}"), value)
        wide = call(self._helpers.use(f"{dtype.name}_to_f32"), narrow)
        return Text(wide.text, wide.level, raw=value.text)

    def _function(self, stem: str, dtype: DType, *args: Text) -> Text:
        return call(self._dialect.function(stem, working(dtype)), *args)

    def binary(self, op: BinaryOp, a: Text, b: Text, dtype: DType) -> Text:
        """Return `a op b`, both of a format."""
        if op in COMPARISONS:
            known = _compared(op, a, b, dtype)
            return known if known is not None else infix(a, _SIGNS[op], b)
        if dtype.kind is Kind.BOOL:
            return _truth(op, a, b)
        if dtype.is_float:
            return self.rounded(self._float_binary(op, a, b, dtype), dtype)
        return self._integer_binary(op, a, b, dtype)

    def _float_binary(self, op: BinaryOp, a: Text, b: Text, dtype: DType) -> Text:
        match op:
            case BinaryOp.REM:
                return self._function("fmod", dtype, a, b)
            case BinaryOp.FLOORDIV:
                quotient = self.rounded(infix(a, OVER, b), dtype)
                return self._function("floor", dtype, quotient)
            case BinaryOp.FLOORMOD | BinaryOp.MIN | BinaryOp.MAX | BinaryOp.MAX_NUMBER:
                return call(self._helpers.use(op.value, dtype), a, b)
            case _:
                return infix(a, _SIGNS[op], b)

    def _integer_binary(self, op: BinaryOp, a: Text, b: Text, dtype: DType) -> Text:
        match op:
            case BinaryOp.AND | BinaryOp.OR | BinaryOp.XOR:
                return infix(a, _SIGNS[op], b)
            case BinaryOp.DIV | BinaryOp.REM:
                return _wrapped(infix(a, _SIGNS[op], b), dtype)
            case BinaryOp.FLOORDIV | BinaryOp.FLOORMOD if not dtype.is_signed:
                sign = OVER if op is BinaryOp.FLOORDIV else REST
                return _wrapped(infix(a, sign, b), dtype)
            case BinaryOp.SHR if not dtype.is_signed:
                return call(self._helpers.use("ushr", dtype), a, b)
            case BinaryOp.ADD | BinaryOp.SUB if dtype.bits < 32:
                return _wrapped(infix(a, _SIGNS[op], b), dtype)
            case BinaryOp.ADD | BinaryOp.SUB | BinaryOp.MUL if not dtype.is_signed and dtype.bits >= 32:
                return infix(a, _SIGNS[op], b)
            case BinaryOp.MUL if dtype.bits < 32:
                # Products of u16 do not fit the int that they are promoted to.
                return _wrapped(infix(cast("uint32_t", a), TIMES, cast("uint32_t", b)), dtype)
            case _:
                return call(self._helpers.use(op.value, dtype), a, b)

    def unary(self, op: UnaryOp, a: Text, dtype: DType) -> Text:
        """Return `op a`."""
        match op:
            case UnaryOp.NOT:
                return Text(f"!{a.at(UNARY)}", UNARY)
            case UnaryOp.BITNOT:
                return _wrapped(Text(f"~{a.at(UNARY)}", UNARY), dtype)
            case UnaryOp.NEG if dtype.is_float:
                # Two minus signs in a row are another operator.
                return Text(f"-{a.at(UNARY + 1)}", UNARY)
            case UnaryOp.NEG if dtype.bits < 32:
                return _wrapped(Text(f"-{a.at(UNARY + 1)}", UNARY), dtype)
            case UnaryOp.NEG if not dtype.is_signed:
                return Text(f"0u - {a.at(UNARY)}", SUM)
            case UnaryOp.NEG:
                return call(self._helpers.use("neg", dtype), a)
            case _ if dtype.is_float:
                return self.rounded(self._function(_FUNCTIONS[op], dtype, a), dtype)
            case UnaryOp.ABS if dtype.is_signed:
                return call(self._helpers.use("abs", dtype), a)
            case _:
                return a

    # ------------------------------------------------------------------ conversions

    def cast(self, a: Text, source: DType, to: DType) -> Text:
        """Convert: truncation toward zero, wrapping between integers, `!= 0` to bool."""
        if source == to:
            return a
        if to == BOOL:
            return infix(a, NOT_EQUAL, number(0, source))
        if to.is_float:
            return self._to_float(a, source, to)
        return cast(to.c, a)

    def _to_float(self, a: Text, source: DType, to: DType) -> Text:
        if is_narrow(to):
            if source == F64:
                return self.rounded(call(self._helpers.use("f64_to_odd"), a), to)
            wide = a if source.is_float else cast("float", a)
            return self.rounded(wide, to)
        if is_narrow(source) and to == F32:
            return a
        return cast(to.c, a)

    def _bitcast(self, a: Text, source: DType, to: DType) -> Text:
        """Return the same bits as another format of equal width, through an integer."""
        if source.is_float:
            if is_narrow(source):
                a = call(self._helpers.use(f"f32_to_{source.name}"), a)
            else:
                a = call(self._helpers.use(f"{source.name}_to_bits"), a)
        elif source == BOOL:
            a = cast("uint8_t", a)
        if to == BOOL:
            return infix(a, NOT_EQUAL, Text("0"))
        if is_narrow(to):
            bits = a if source.is_float else cast("uint16_t", a)
            return call(self._helpers.use(f"{to.name}_to_f32"), bits)
        if to in (F32, F64):
            return call(self._helpers.use(f"bits_to_{to.name}"), cast(f"uint{to.bits}_t", a))
        return cast(to.c, a)

    # ------------------------------------------------------------------ functions

    def intrinsic(self, op: IntrinsicOp, args: list[Text], source: DType, to: DType) -> Text:
        """Return a function of values of one format."""
        match op:
            case IntrinsicOp.BITCAST:
                return self._bitcast(args[0], source, to)
            case IntrinsicOp.MUL_HIGH:
                return self._mul_high(args[0], args[1], source)
            case IntrinsicOp.IS_NAN:
                return cast("bool", call("isnan", *args))
            case IntrinsicOp.IS_INF:
                return cast("bool", call("isinf", *args))
            case IntrinsicOp.EXP_RAISED:
                power = self.intrinsic(IntrinsicOp.EXP, args, source, to)
                return self.binary(BinaryOp.MUL, power, number(EXP_RAISED, to), to)
            case IntrinsicOp.SIGMOID | IntrinsicOp.RSQRT:
                return self.rounded(call(self._helpers.use(op.value, to), *args), to)
            case _:
                return self.rounded(self._function(op.value, to, *args), to)

    def _mul_high(self, a: Text, b: Text, dtype: DType) -> Text:
        if dtype.bits == 64:
            return call(self._helpers.use(f"mul_high_{dtype.name}"), a, b)
        wide = "int64_t" if dtype.is_signed else "uint64_t"
        product = infix(cast(wide, a), TIMES, cast(wide, b))
        return cast(dtype.c, Text(f"({product.text} >> {dtype.bits})"))


def _wrapped(value: Text, dtype: DType) -> Text:
    """Return an integer as its own format, which arithmetic of C may have left."""
    return cast(dtype.c, value) if dtype.bits < 32 else value


def _truth(op: BinaryOp, a: Text, b: Text) -> Text:
    if op in (BinaryOp.AND, BinaryOp.OR):
        for x, other in ((a, b), (b, a)):
            if x.text in ("true", "false"):
                return x if (x.text == "true") == (op is BinaryOp.OR) else other
    return infix(a, _TRUTH[op], b)


def _compared(op: BinaryOp, a: Text, b: Text, dtype: DType) -> Text | None:
    """Return the outcome where the range of an integer decides: compilers warn of such tests."""
    if not dtype.is_integer or op in (BinaryOp.EQ, BinaryOp.NE):
        return None
    least = -(1 << (dtype.bits - 1)) if dtype.is_signed else 0
    most = least + (1 << dtype.bits) - 1
    low, high = number(least, dtype).text, number(most, dtype).text
    if op is BinaryOp.LT and (b.text == low or a.text == high):
        return Text("false")
    if op is BinaryOp.LE and (a.text == low or b.text == high):
        return Text("true")
    return None
