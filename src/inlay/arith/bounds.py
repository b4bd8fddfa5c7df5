"""Intervals and congruences of symbolic integers.

A `Range` says what is known of an integer: `low <= e <= high` and `e = residue (mod modulus)`. The
analysis is one bottom-up walk; it is sound (the integer is always inside) and not complete: it does
not see that `n - n//2*2` is at most 1, unless written as `n % 2`.

Sources: interval arithmetic; the congruence domain of P. Granger, "Static analysis of arithmetical
congruences" (1989).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import gcd
from typing import assert_never

from inlay.arith.expr import Atom, FloorDiv, Int, Max, Min, Mod, Sym


@dataclass(frozen=True, slots=True)
class Range:
    """What is known of an integer.

    Attributes:
        low: least possible value, None = no lower bound.
        high: greatest possible value, None = no upper bound.
        modulus: the value is `residue` modulo this; 1 = nothing known, 0 = it is exactly `residue`.
        residue: see `modulus`; `0 <= residue < modulus` when `modulus > 0`.
    """

    low: int | None = None
    high: int | None = None
    modulus: int = 1
    residue: int = 0

    @property
    def value(self) -> int | None:
        """The number, when only one is possible."""
        return self.low if self.low is not None and self.low == self.high else None

    def contains(self, value: int) -> bool:
        """Whether `value` is possible."""
        if self.low is not None and value < self.low:
            return False
        if self.high is not None and value > self.high:
            return False
        if self.modulus == 0:
            return value == self.residue
        return value % self.modulus == self.residue


ANY = Range()
DIM = Range(low=0)


def exactly(value: int) -> Range:
    """Return the range of one number."""
    return Range(value, value, 0, value)


def _make(low: int | None, high: int | None, modulus: int, residue: int) -> Range:
    """Normalize: tighten the interval to the congruence and the congruence to the interval."""
    if low is not None and low == high:
        return exactly(low)
    if modulus == 0:
        return exactly(residue)
    modulus = abs(modulus)
    residue %= modulus
    if modulus > 1:
        if low is not None:
            low += (residue - low) % modulus
        if high is not None:
            high -= (high - residue) % modulus
        if low is not None and low == high:
            return exactly(low)
    return Range(low, high, modulus, residue)


def add(a: Range, b: Range) -> Range:
    """Return the range of a sum."""
    low = None if a.low is None or b.low is None else a.low + b.low
    high = None if a.high is None or b.high is None else a.high + b.high
    return _make(low, high, gcd(a.modulus, b.modulus), a.residue + b.residue)


def scale(a: Range, c: int) -> Range:
    """Return the range of `c * a`."""
    if c == 0:
        return exactly(0)
    low = None if a.low is None else a.low * c
    high = None if a.high is None else a.high * c
    if c < 0:
        low, high = high, low
    return _make(low, high, a.modulus * abs(c), a.residue * c)


def multiply(a: Range, b: Range) -> Range:
    """Return the range of a product."""
    if a.value is not None:
        return scale(b, a.value)
    if b.value is not None:
        return scale(a, b.value)
    low, high = _product_interval(a, b)
    # (m1*x + r1) * (m2*y + r2)
    modulus = gcd(gcd(a.modulus * b.modulus, a.modulus * b.residue), b.modulus * a.residue)
    return _make(low, high, modulus, a.residue * b.residue)


def _product_interval(a: Range, b: Range) -> tuple[int | None, int | None]:
    if a.low is not None and b.low is not None and a.low >= 0 and b.low >= 0:
        high = None if a.high is None or b.high is None else a.high * b.high
        return a.low * b.low, high
    if a.low is None or a.high is None or b.low is None or b.high is None:
        return None, None
    corners = (a.low * b.low, a.low * b.high, a.high * b.low, a.high * b.high)
    return min(corners), max(corners)


def floor_divide(a: Range, b: Range) -> Range:
    """Return the range of `a // b`; nothing is known when `b` may be negative or zero."""
    if b.low is None or b.low <= 0:
        return ANY
    low: int | None = None
    high: int | None = None
    if a.low is not None:
        if a.low >= 0:
            low = 0 if b.high is None else a.low // b.high
        else:
            low = a.low // b.low
    if a.high is not None:
        if a.high >= 0:
            high = a.high // b.low
        else:
            high = -1 if b.high is None else a.high // b.high
    d = b.value
    if d is not None and a.modulus % d == 0 and a.modulus:
        return _make(low, high, a.modulus // d, a.residue // d)
    return _make(low, high, 1, 0)


def modulo(a: Range, b: Range) -> Range:
    """Return the range of `a % b`; nothing is known when `b` may be negative or zero."""
    if b.low is None or b.low <= 0:
        return ANY
    if a.low is not None and a.low >= 0 and a.high is not None and a.high < b.low:
        return a
    high = None if b.high is None else b.high - 1
    if a.low is not None and a.low >= 0 and a.high is not None:
        high = a.high if high is None else min(high, a.high)
    modulus = gcd(a.modulus, b.value) if b.value is not None else 1
    return _make(0, high, modulus or 1, a.residue)


def intersect(a: Range, b: Range) -> Range:
    """Return a range both hold in (the congruence of the finer one; exact when one divides)."""
    low = a.low if b.low is None else b.low if a.low is None else max(a.low, b.low)
    high = a.high if b.high is None else b.high if a.high is None else min(a.high, b.high)
    finer = a if a.modulus == 0 or (b.modulus != 0 and a.modulus >= b.modulus) else b
    return _make(low, high, finer.modulus, finer.residue)


def least(a: Range, b: Range) -> Range:
    """Return the range of the smaller of two."""
    low = None if a.low is None or b.low is None else min(a.low, b.low)
    high = a.high if b.high is None else b.high if a.high is None else min(a.high, b.high)
    return _make(low, high, *_either(a, b))


def greatest(a: Range, b: Range) -> Range:
    """Return the range of the larger of two."""
    low = a.low if b.low is None else b.low if a.low is None else max(a.low, b.low)
    high = None if a.high is None or b.high is None else max(a.high, b.high)
    return _make(low, high, *_either(a, b))


def _either(a: Range, b: Range) -> tuple[int, int]:
    """Return the congruence of a value that is one of two."""
    modulus = gcd(gcd(a.modulus, b.modulus), a.residue - b.residue)
    return (modulus, a.residue) if modulus else (1, 0)


def bounds(e: Int, env: Mapping[Sym, Range], default: Range = DIM) -> Range:
    """Return the range of `e` when each symbol is in its range.

    Args:
        e: the integer.
        env: what is known of symbols.
        default: what is known of the others, but for signed ones; dims are not negative.
    """
    total = exactly(0)
    for monomial, c in e.terms:
        term = exactly(1)
        for atom in monomial:
            term = multiply(term, atom_range(atom, env, default))
        total = add(total, scale(term, c))
    return total


def atom_range(atom: Atom, env: Mapping[Sym, Range], default: Range = DIM) -> Range:
    """Return the range of one atom."""
    match atom:
        case Sym():
            return env.get(atom, ANY if atom.signed else default)
        case FloorDiv(numerator=a, denominator=b):
            return floor_divide(bounds(a, env, default), bounds(b, env, default))
        case Mod(numerator=a, denominator=b):
            return modulo(bounds(a, env, default), bounds(b, env, default))
        case Min(args=args):
            found = bounds(args[0], env, default)
            for x in args[1:]:
                found = least(found, bounds(x, env, default))
            return found
        case Max(args=args):
            found = bounds(args[0], env, default)
            for x in args[1:]:
                found = greatest(found, bounds(x, env, default))
            return found
        case _:
            assert_never(atom)
