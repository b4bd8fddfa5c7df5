"""Pieces of C: expressions with their precedence, numbers, and index arithmetic."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import assert_never

import numpy as np

from inlay.arith.dtype import BF16, F16, F32, F64, I64, DType, Kind
from inlay.arith.expr import Atom, FloorDiv, Int, Max, Min, Mod, Sym, symbols
from inlay.codegen.c_helpers import Helpers
from inlay.loop.ranges import Bounds

PRIMARY, UNARY, PRODUCT, SUM, SHIFT, ORDER, EQUAL, BITS, BOTH, EITHER, CHOICE = range(16, 5, -1)
"""How tightly an expression binds; `BITS` is for `&`, `^` and `|`, which nobody should mix."""


@dataclass(frozen=True, slots=True)
class Text:
    """An expression.

    Attributes:
        text: in C.
        level: how tightly its outermost operator binds.
        raw: for narrow floats, the same value before it was rounded to its format, if it was.
    """

    text: str
    level: int = PRIMARY
    raw: str | None = None

    def at(self, level: int) -> str:
        """Return the text, in parentheses unless it binds at least so tightly."""
        return self.text if self.level >= level else f"({self.text})"


Sign = tuple[str, int]
"""A binary operator and how tightly it binds."""
PLUS: Sign = ("+", SUM)
MINUS: Sign = ("-", SUM)
TIMES: Sign = ("*", PRODUCT)
OVER: Sign = ("/", PRODUCT)
REST: Sign = ("%", PRODUCT)
NOT_EQUAL: Sign = ("!=", EQUAL)


def infix(a: Text, sign: Sign, b: Text) -> Text:
    """Return `a sign b`, with the parentheses that C needs and those that compilers ask for."""
    op, level = sign
    left, right = level, level + 1
    if level == BITS:
        left = right = UNARY
    elif level in (ORDER, EQUAL):
        left = right = SUM
    elif level == EITHER:
        left, right = EITHER if a.level == EITHER else BOTH + 1, BOTH + 1
    return Text(f"{a.at(left)} {op} {b.at(right)}", level)


def call(function: str, *args: Text) -> Text:
    """Return a call."""
    return Text(f"{function}({', '.join(a.text for a in args)})")


def cast(to: str, a: Text) -> Text:
    """Return a conversion."""
    return Text(f"({to}){a.at(UNARY)}", UNARY)


_BREAKS = re.compile(r"(?<=,) |(?<=;) |(?<= =) | (?=([?:|&]|[!<>=]=? |[-+] |[*/%] ))")
_LOOSENESS = {"*": 2, "/": 2, "%": 2, "+": 1, "-": 1}


def folded(line: str, width: int = 100) -> list[str]:
    """Return a line as lines of at most so many characters, broken where operators bind least."""
    margin = " " * (len(line) - len(line.lstrip()) + 4)
    out: list[str] = []
    while len(line) > width:
        start = len(line) - len(line.lstrip())
        places: list[tuple[int, int, int]] = []
        for m in _BREAKS.finditer(line, start + 1, width + 2):
            at, before = m.start(), line[: m.start()]
            opened = sum(before.count(c) for c in "([") - sum(before.count(c) for c in ")]")
            early = int(at < width // 2)
            places.append((early, 3 * opened + _LOOSENESS.get((m[1] or " ")[0], 0), -at))
        if not places:
            break
        at = -min(places)[2]
        out.append(line[:at])
        line = margin + line[at + 1 :]
    return [*out, line]


# --------------------------------------------------------------------------- numbers

_UNSIGNED_SUFFIX = {"u32": "u", "u64": "u"}


def number(value: float, dtype: DType) -> Text:
    """Return a literal of a format, as its value in a register."""
    match dtype.kind:
        case Kind.BOOL:
            return Text("true" if value else "false")
        case Kind.FLOAT:
            return _float(value, dtype)
        case _:
            return _integer(int(value), dtype)


def _integer(value: int, dtype: DType) -> Text:
    value &= (1 << dtype.bits) - 1
    if not dtype.is_signed:
        if value >= 1 << 32:
            return Text(f"UINT64_C({value})")
        return Text(f"{value}{_UNSIGNED_SUFFIX.get(dtype.name, '')}")
    if value >> (dtype.bits - 1):
        value -= 1 << dtype.bits
    if dtype.bits >= 32 and value == -(1 << (dtype.bits - 1)):
        return Text(f"INT{dtype.bits}_MIN")
    level = UNARY if value < 0 else PRIMARY
    small = -(1 << 31) < value < 1 << 31
    return Text(str(value) if small else f"INT64_C({value})", level if small else PRIMARY)


def _float(value: float, dtype: DType) -> Text:
    single = dtype != F64
    with np.errstate(over="ignore"):
        exact = float(dtype.numpy.type(value))
    if math.isnan(exact):
        return Text("NAN") if single else cast("double", Text("NAN"))
    level = PRIMARY if math.copysign(1.0, exact) > 0 else UNARY
    if math.isinf(exact):
        text = Text("INFINITY" if exact > 0 else "-INFINITY", level)
        return text if single else cast("double", text)
    least = np.finfo(np.float32 if single else np.float64).smallest_normal
    if exact and abs(exact) < least:
        digits = exact.hex()
    else:
        digits = str(np.float32(exact)) if single else repr(exact)
    if not any(c in digits for c in ".xe"):
        digits += ".0"
    return Text(f"{digits}f" if single else digits, level)


# --------------------------------------------------------------------------- integers


class IndexText:
    """Writes integer expressions over loop variables, dims and lets, as int64_t.

    Attributes:
        env: what stands for each symbol that is in scope.
        bounds: what holds for the loops around; symbols that are neither dims nor loops are in
            `unknown`, and nothing is assumed about them.
    """

    def __init__(self, helpers: Helpers, use: Callable[[Sym], None]) -> None:
        self.env: dict[Sym, Text] = {}
        self.bounds = Bounds()
        self.unknown: set[Sym] = set()
        self._helpers = helpers
        self._use = use

    def text(self, e: Int) -> Text:
        """Return an expression."""
        if e.value is not None:
            return number(e.value, I64)
        ordered = [t for t in e.terms if t[0]] + [t for t in e.terms if not t[0]]
        # A leading minus reads worse than a subtraction.
        ordered.sort(key=lambda t: t[1] < 0)
        first, *rest = ordered
        total = self._term(*first)
        for monomial, c in rest:
            if c < 0:
                total = infix(total, MINUS, self._term(monomial, -c))
            else:
                total = infix(total, PLUS, self._term(monomial, c))
        return total

    def _term(self, monomial: tuple[Atom, ...], c: int) -> Text:
        if not monomial:
            return number(c, I64)
        factors = [self._atom(a) for a in monomial]
        if c == -1:
            return Text(f"-{self._product(factors).at(UNARY)}", UNARY)
        if c != 1:
            factors.insert(0, number(c, I64))
        return self._product(factors)

    def _product(self, factors: list[Text]) -> Text:
        total = factors[0]
        for f in factors[1:]:
            total = infix(total, TIMES, f)
        return total

    def _atom(self, a: Atom) -> Text:
        match a:
            case Sym():
                self._use(a)
                return self.env[a]
            case FloorDiv(numerator=n, denominator=d):
                return self._divide(OVER, "floordiv", n, d)
            case Mod(numerator=n, denominator=d):
                return self._divide(REST, "floormod", n, d)
            case Min(args=args):
                return self._extreme("min", args)
            case Max(args=args):
                return self._extreme("max", args)
            case _:
                assert_never(a)

    def _divide(self, sign: Sign, helper: str, n: Int, d: Int) -> Text:
        numerator, denominator = self.text(n), self.text(d)
        if self._not_negative(n) and self._not_negative(d):
            return infix(numerator, sign, denominator)
        return call(self._helpers.use(helper, I64), numerator, denominator)

    def _not_negative(self, e: Int) -> bool:
        if self.unknown.intersection(symbols(e)):
            return False
        return self.bounds.at_least(e, 0)

    def _extreme(self, helper: str, args: tuple[Int, ...]) -> Text:
        total = self.text(args[0])
        for a in args[1:]:
            total = call(self._helpers.use(helper, I64), total, self.text(a))
        return total


def is_narrow(dtype: DType) -> bool:
    """Whether a format is computed in f32 and rounded."""
    return dtype in (F16, BF16)


def working(dtype: DType) -> DType:
    """Return the format that a float format is computed in."""
    return F32 if is_narrow(dtype) else dtype
