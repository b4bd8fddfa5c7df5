"""Integer polynomials of the loop IR as i64 instructions.

While code is emitted every symbol stands for a `Linear`: a sum of products of SSA values with
integer coefficients. An unrolled variable is a number, a serial loop's variable one SSA name, and
the variable of a vector loop is its first value plus `LANE`, the number of the lane. So the value
of an index polynomial falls into parts that are treated differently:

    constant   ends up in the displacement of an address
    scalar     i64 arithmetic, added up from the outermost loop inward so that each partial sum is
               computed in the loop where it changes
    LANE       its coefficient is the stride of a vector access
    vectors    products with values that differ by lane: shuffled loads where they are numbers
               (`lane // 4`), else a gather
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import gcd
from typing import TypeAlias, assert_never

from inlay.arith.expr import Atom, FloorDiv, Int, Max, Min, Mod, Sym
from inlay.base.diagnostics import InternalError
from inlay.codegen.llvm_builder import Builder
from inlay.loop.stmt import For

LANE = "lane"
Product: TypeAlias = tuple[str, ...]
Linear: TypeAlias = dict[Product, int]

ZERO: Linear = {}


def number(value: int) -> Linear:
    """Return the constant."""
    return {(): value} if value else {}


def name(value: str) -> Linear:
    """Return one SSA value."""
    return {(value,): 1}


def constant_of(e: Linear) -> int | None:
    """Return the number, when there is nothing else in it."""
    if not e:
        return 0
    return e[()] if len(e) == 1 and () in e else None


def add(a: Linear, b: Linear) -> Linear:
    """Return the sum."""
    out = dict(a)
    for product, c in b.items():
        total = out.get(product, 0) + c
        if total:
            out[product] = total
        else:
            del out[product]
    return out


def multiply(a: Linear, b: Linear) -> Linear:
    """Return the product."""
    out: Linear = {}
    for pa, ca in a.items():
        for pb, cb in b.items():
            product = tuple(sorted((*pa, *pb))) if pa and pb else pa or pb
            total = out.get(product, 0) + ca * cb
            if total:
                out[product] = total
            else:
                out.pop(product, None)
    return out


@dataclass(frozen=True, slots=True)
class Split:
    """A value by kind of part.

    Attributes:
        constant: the number in it.
        scalar: products of values that are equal in all lanes.
        stride: coefficient of `LANE`, if it is a number; None when lanes differ otherwise.
        lanes: products that differ by lane, other than a constant multiple of `LANE`.
    """

    constant: int
    scalar: Linear
    stride: int | None
    lanes: Linear


class IndexEmitter:
    """Evaluates index polynomials under an environment of symbols.

    Attributes:
        env: value of every symbol in scope.
        around: the loops around what is emitted, by name.
        width: lanes of the vector loop around the present statement, 0 outside.
        vectors: names of SSA values of type `<width x i64>`, and literals of it.
        tables: the numbers of literals, by their text.
    """

    def __init__(self, builder: Builder, env: Mapping[Sym, Linear]) -> None:
        self.builder = builder
        self.env: dict[Sym, Linear] = dict(env)
        self.around: dict[str, For] = {}
        self.width = 0
        self.vectors: set[str] = set()
        self.tables: dict[str, tuple[int, ...]] = {}

    def linear(self, e: Int) -> Linear:
        """Return the value of a polynomial, not to be changed: it may be that of a symbol."""
        out: Linear = {}
        env, terms = self.env, e.terms
        if len(terms) == 1 and terms[0][1] == 1 and len(terms[0][0]) == 1:
            return self._atom(terms[0][0][0])
        for monomial, c in terms:
            if not monomial:
                out[()] = out.get((), 0) + c
                if not out[()]:
                    del out[()]
                continue
            # Most atoms are symbols in scope.
            term = env.get(first) if isinstance(first := monomial[0], Sym) else None
            if term is None:
                term = self._atom(first)
            for atom in monomial[1:]:
                term = multiply(term, self._atom(atom))
            for product, k in term.items():
                total = out.get(product, 0) + c * k
                if total:
                    out[product] = total
                else:
                    out.pop(product, None)
        return out

    def _atom(self, atom: Atom) -> Linear:
        match atom:
            case Sym():
                found = self.env.get(atom)
                if found is None:
                    raise InternalError(f"symbol {atom} is not in scope", where="codegen.llvm")
                return found
            case FloorDiv(numerator=n, denominator=d):
                return self._divide(self.linear(n), self.linear(d), want_quotient=True)
            case Mod(numerator=n, denominator=d):
                return self._divide(self.linear(n), self.linear(d), want_quotient=False)
            case Min(args=args):
                return self._extreme([self.linear(a) for a in args], "smin")
            case Max(args=args):
                return self._extreme([self.linear(a) for a in args], "smax")
            case _:
                assert_never(atom)

    def _divide(self, n: Linear, d: Linear, *, want_quotient: bool) -> Linear:
        divisor, whole = constant_of(d), constant_of(n)
        if divisor is not None and divisor > 0:
            if whole is not None:
                return number(whole // divisor if want_quotient else whole % divisor)
            # Terms the divisor divides leave the division; what is left may be small enough to
            # vanish: (16*i + lane) // 16 is i, and its remainder is the lane.
            outside = {p: c // divisor for p, c in n.items() if c % divisor == 0}
            inside = {p: c for p, c in n.items() if c % divisor}
            settled = self._divide_lanes(inside, divisor)
            if settled is not None:
                quotient, remainder = settled
                return add(outside, quotient) if want_quotient else remainder
            table = self._divide_table(inside, divisor, want_quotient=want_quotient)
            if table is not None:
                return add(outside, table) if want_quotient else table
            made = self._floor_division(inside, number(divisor), want_quotient=want_quotient)
            return add(outside, made) if want_quotient else made
        return self._floor_division(n, d, want_quotient=want_quotient)

    def _divide_lanes(self, n: Linear, divisor: int) -> tuple[Linear, Linear] | None:
        """Divide `aligned + lane + small` when adding the lane cannot cross a multiple."""
        small = n.get((), 0)
        if n.get((LANE,), 0) != 1 or not self.width:
            return None
        rest = {p: c for p, c in n.items() if p and p != (LANE,)}
        if any(self._is_vector(p) for p in rest):
            return None
        step = divisor
        for c in rest.values():
            step = gcd(step, c)
        offset = small % step
        if offset + self.width > step:
            return None
        lane = add(name(LANE), number(offset))
        base = add(rest, number(small - offset))
        if not base:
            return ZERO, lane
        known = constant_of(base)
        if known is not None:
            return number(known // divisor), add(number(known % divisor), lane)
        d = number(divisor)
        quotient = self._floor_division(base, d, want_quotient=True)
        remainder = self._floor_division(base, d, want_quotient=False)
        return quotient, add(remainder, lane)

    def _divide_table(self, n: Linear, divisor: int, *, want_quotient: bool) -> Linear | None:
        """Divide a multiple of the lane and a number: the numbers of all lanes are known."""
        if not self.width or any(p not in ((), (LANE,)) for p in n):
            return None
        slope, offset = n.get((LANE,), 0), n.get((), 0)
        whole = [slope * lane + offset for lane in range(self.width)]
        values = tuple([v // divisor if want_quotient else v % divisor for v in whole])
        if len(set(values)) == 1:
            return number(values[0])
        literal = "<" + ", ".join(f"i64 {v}" for v in values) + ">"
        self.tables[literal] = values
        self.vectors.add(literal)
        return name(literal)

    def distances(self, where: Split) -> tuple[int, ...] | None:
        """Return how far each lane is from the parts that lanes share, where numbers say it."""
        varying = where.lanes if where.stride is None else {(LANE,): where.stride}
        if any(len(p) != 1 or (p[0] != LANE and p[0] not in self.tables) for p in varying):
            return None
        lanes = range(self.width)
        return tuple(
            [
                sum(c * (lane if p == LANE else self.tables[p][lane]) for (p,), c in varying.items())
                for lane in lanes
            ]
        )

    def _floor_division(self, n: Linear, d: Linear, *, want_quotient: bool) -> Linear:
        wide = self.is_vector(n) or self.is_vector(d)
        a, b = self.value(n, wide=wide), self.value(d, wide=wide)
        divisor = constant_of(d)
        type = f"<{self.width} x i64>" if wide else "i64"
        emit = self.builder
        zero = "zeroinitializer" if wide else "0"

        def pure(text: str, *operands: str) -> str:
            # A division by a number cannot trap; any other stays where it is written.
            if divisor:
                return emit.pure(text, operands, cheap=True)
            return emit.define(text)

        if divisor is not None and divisor > 0 and divisor & (divisor - 1) == 0:
            amount = divisor.bit_length() - 1 if want_quotient else divisor - 1
            other = f"splat (i64 {amount})" if wide else str(amount)
            result = pure(f"{'ashr' if want_quotient else 'and'} {type} {a}, {other}", a)
        else:
            # Round toward minus infinity: correct where remainder and divisor differ in sign.
            remainder = pure(f"srem {type} {a}, {b}", a, b)
            signs = pure(f"xor {type} {remainder}, {b}", remainder, b)
            differ = pure(f"icmp slt {type} {signs}, {zero}", signs)
            nonzero = pure(f"icmp ne {type} {remainder}, {zero}", remainder)
            condition = f"<{self.width} x i1>" if wide else "i1"
            fix = pure(f"and {condition} {differ}, {nonzero}", differ, nonzero)
            if want_quotient:
                quotient = pure(f"sdiv {type} {a}, {b}", a, b)
                extended = pure(f"sext {condition} {fix} to {type}", fix)
                result = pure(f"add {type} {quotient}, {extended}", quotient, extended)
            else:
                moved = pure(f"add {type} {remainder}, {b}", remainder, b)
                result = pure(
                    f"select {condition} {fix}, {type} {moved}, {type} {remainder}", fix, moved, remainder
                )
        if wide:
            self.vectors.add(result)
        return name(result)

    def least(self, *args: Linear) -> Linear:
        """Return the least of some values."""
        return self._extreme([*args], "smin")

    def _extreme(self, args: list[Linear], function: str) -> Linear:
        numbers = [constant_of(a) for a in args]
        if all(n is not None for n in numbers):
            choose = min if function == "smin" else max
            return number(choose(n for n in numbers if n is not None))
        wide = any(self.is_vector(a) for a in args)
        type = f"<{self.width} x i64>" if wide else "i64"
        suffix = f"v{self.width}i64" if wide else "i64"
        result = self.value(args[0], wide=wide)
        for a in args[1:]:
            b = self.value(a, wide=wide)
            call = f"call {type} @llvm.{function}.{suffix}({type} {result}, {type} {b})"
            result = self.builder.pure(call, (result, b), cheap=True)
        if wide:
            self.vectors.add(result)
        return name(result)

    # ------------------------------------------------------------------ values

    def _is_vector(self, product: Product) -> bool:
        return any(n == LANE or n in self.vectors for n in product)

    def is_vector(self, e: Linear) -> bool:
        """Whether the value differs by lane."""
        vectors = self.vectors
        for product in e:
            for n in product:
                if n == LANE or n in vectors:
                    return True
        return False

    def split(self, e: Linear) -> Split:
        """Return the parts of a value."""
        scalar: Linear = {}
        lanes: Linear = {}
        stride: int | None = 0
        constant = 0
        for product, c in e.items():
            if not product:
                constant = c
            elif product == (LANE,):
                stride = c
            elif self._is_vector(product):
                lanes[product] = c
            else:
                scalar[product] = c
        if lanes:
            if stride:
                lanes[(LANE,)] = stride
            stride = None
        return Split(constant, scalar, stride, lanes)

    def value(self, e: Linear, *, wide: bool = False) -> str:
        """Return an i64 operand; with `wide`, a vector of one per lane."""
        parts = self.split(e)
        varying = parts.lanes if parts.stride is None else {}
        if parts.stride:
            varying = {(LANE,): parts.stride}
        if not varying:
            scalar = self.scalar(parts.scalar, parts.constant)
            return self.splat(scalar) if wide else scalar
        total = self.lanes(varying)
        if parts.scalar or parts.constant:
            base = self.splat(self.scalar(parts.scalar, parts.constant))
            total = self.builder.pure(f"add <{self.width} x i64> {total}, {base}", (total, base), cheap=True)
        self.vectors.add(total)
        return total

    def below_zero(self, e: Linear, register: int) -> str | None:
        """Return in which lanes a value is negative, if neighbors differ by a number.

        Lane i has `e0 + c i`, so it is those with `c i < -e0`: numbers of few bits, which are compared in
        integers so wide that a vector of them fills a register. Of `-e0` only counts where among them it is.

        Args:
            e: the value.
            register: bits of a vector register.
        """
        parts = self.split(e)
        if not parts.stride:
            return None
        reach = sorted((0, parts.stride * (self.width - 1)))
        low, high = reach[0], reach[1] + 1
        bits = next(n for n in (8, 16, 32, 64) if n * self.width >= register or n == 64)
        while bits < 64 and max(-low, high) >= 1 << (bits - 1):
            bits *= 2
        emit, w, scalar = self.builder, self.width, self.scalar(parts.scalar, parts.constant)
        if scalar.startswith("%"):
            least = emit.pure(f"sub i64 0, {scalar}", (scalar,), cheap=True)
            for name, bound in (("smax", low), ("smin", high)) if bits < 64 else ():
                least = emit.pure(
                    f"call i64 @llvm.{name}.i64(i64 {least}, i64 {bound})", (least,), cheap=True
                )
        else:
            least = str(min(max(-int(scalar), low), high))
        limit = self.splat(least, bits)
        return emit.pure(f"icmp slt <{w} x i{bits}> {self._steps(parts.stride, bits)}, {limit}", (limit,))

    def in_bits(self, e: Linear, bits: int) -> str | None:
        """Return the low bits of a value in each lane, if neighbors differ by a number: so computed."""
        parts = self.split(e)
        if not parts.stride or max(abs(parts.stride) * self.width, abs(parts.constant)) >= 1 << (bits - 1):
            return None
        base = self.splat(self.scalar(parts.scalar, parts.constant), bits)
        text = f"add <{self.width} x i{bits}> {self._steps(parts.stride, bits)}, {base}"
        return self.builder.pure(text, (base,), cheap=True)

    def _steps(self, stride: int, bits: int) -> str:
        """Return the number of each lane, times a stride."""
        return "<" + ", ".join(f"i{bits} {stride * i}" for i in range(self.width)) + ">"

    def splat(self, scalar: str, bits: int = 64) -> str:
        """Return the low bits of an i64 in every lane."""
        if not scalar.startswith("%"):
            return f"splat (i{bits} {scalar})"
        emit, w = self.builder, self.width
        if bits < 64:
            scalar = emit.pure(f"trunc i64 {scalar} to i{bits}", (scalar,), cheap=True)
        text = f"insertelement <{w} x i{bits}> poison, i{bits} {scalar}, i32 0"
        one = emit.pure(text, (scalar,), cheap=True)
        all_lanes = emit.pure(
            f"shufflevector <{w} x i{bits}> {one}, <{w} x i{bits}> poison, <{w} x i32> zeroinitializer",
            (one,),
            cheap=True,
        )
        if bits == 64:
            self.vectors.add(all_lanes)
        return all_lanes

    def scalar(self, e: Linear, constant: int = 0) -> str:
        """Return the sum of scalar products and a number, added from the outermost loop inward."""
        emit = self.builder
        total = ""
        parts = sorted(e.items(), key=lambda t: self._place(t[0])) if len(e) > 1 else e.items()
        for product, c in parts:
            term = self._product(product, c)
            total = (
                term if not total else emit.pure(f"add nsw i64 {total}, {term}", (total, term), cheap=True)
            )
        if not total:
            return str(constant)
        if constant:
            total = emit.pure(f"add nsw i64 {total}, {constant}", (total,), cheap=True)
        return total

    def _product(self, product: Product, c: int) -> str:
        emit = self.builder
        value = ""
        factors = product
        if len(product) > 1:
            factors = sorted(product, key=lambda n: (emit.depth_of(n), n))
        for factor in factors:
            value = (
                factor
                if not value
                else emit.pure(f"mul nsw i64 {value}, {factor}", (value, factor), cheap=True)
            )
        if c != 1:
            value = emit.pure(f"mul nsw i64 {value}, {c}", (value,), cheap=True)
        return value

    def _place(self, product: Product) -> tuple[int, int, Product]:
        return (self.builder.depth_of_all(product), len(product), product)

    def lanes(self, e: Linear) -> str:
        """Return the vector sum of products that differ by lane."""
        emit, w = self.builder, self.width
        total = ""
        for product, c in e.items():
            term = ""
            for factor in product:
                if factor == LANE:
                    operand = self._steps(1, 64)
                elif factor in self.vectors:
                    operand = factor
                else:
                    operand = self.splat(factor)
                term = (
                    operand
                    if not term
                    else emit.pure(f"mul <{w} x i64> {term}, {operand}", (term, operand), cheap=True)
                )
            if c != 1:
                term = emit.pure(f"mul <{w} x i64> {term}, splat (i64 {c})", (term,), cheap=True)
            total = (
                term
                if not total
                else emit.pure(f"add <{w} x i64> {total}, {term}", (total, term), cheap=True)
            )
        self.vectors.add(total)
        return total
