"""Facts about symbolic integers: proving, refuting, simplifying.

`Facts` holds ranges of symbols; it is immutable, and `assume_range` returns a new one. A question has
three answers: True (proved), False (refuted for every assignment), None (depends, or too hard). Nothing
here ever guesses.

Simplifying a minimum compares its arguments pair by pair, and comparing simplifies what stands
inside them. Sizes nest (each layer of a network halves or pads those of the one before), so without
a memory the work would multiply with every level. `Facts` therefore remember what an atom becomes.
They never change, but that their maker may add ranges of symbols as it meets them: an answer from
before that stays right, it is at most less sharp.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import assert_never

from inlay.arith import bounds as rg
from inlay.arith.bounds import Range
from inlay.arith.expr import (
    Atom,
    FloorDiv,
    Int,
    Max,
    Min,
    Mod,
    Sym,
    coefficient,
    floordiv,
    from_atom,
    lit,
    maximum,
    minimum,
    mod,
    to_int,
)

_MOST_REMEMBERED = 10_000
"""Bounds the memory of facts that live as long as the process."""

_NO_RANGES: Mapping[Sym, Range] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of symbols in a scope.

    Attributes:
        ranges: interval and congruence of symbols; others are dims (not negative).
        default: range of symbols that are not in `ranges`.
        simplified: what atoms become where these facts hold, as far as somebody asked.
    """

    ranges: Mapping[Sym, Range] = field(default_factory=lambda: _NO_RANGES)
    default: Range = rg.DIM
    simplified: dict[Atom, Int] = field(
        init=False, repr=False, compare=False, default_factory=dict[Atom, Int]
    )

    def assume_range(self, sym: Sym, known: Range) -> Facts:
        """Return the facts with the symbol also inside `known`."""
        ranges = dict(self.ranges)
        ranges[sym] = rg.intersect(ranges.get(sym, self.default), known)
        return replace(self, ranges=MappingProxyType(ranges))

    def range_of(self, e: Int) -> Range:
        """Return what is known of `e`."""
        return rg.bounds(e, self.ranges, self.default)

    def equal(self, a: Int, b: Int) -> bool | None:
        """Whether `a == b`."""
        if a == b:
            return True
        difference = a - b
        if difference.value is not None:
            return difference.value == 0
        difference = simplify(difference, self)
        if difference.value is not None:
            return difference.value == 0
        return None if self.range_of(difference).contains(0) else False

    def at_least(self, a: Int, low: Int | int) -> bool | None:
        """Whether `a >= low`."""
        known = self.range_of(simplify(a - to_int(low), self))
        if known.low is not None and known.low >= 0:
            return True
        if known.high is not None and known.high < 0:
            return False
        return None

    def less(self, a: Int, b: Int | int) -> bool | None:
        """Whether `a < b`."""
        return self.at_least(to_int(b), a + 1)


NO_FACTS = Facts()


def solve_for(e: Int, sym: Sym) -> Int | None:
    """Return the value of `sym` that makes `e == 0`, when its coefficient is a number that divides.

    None when `sym` does not occur, occurs inside another atom or in a product, or the division by
    its coefficient is not exact.
    """
    c = coefficient(e, sym)
    if c is None or c.value in (None, 0):
        return None
    number = c.value
    assert number is not None
    rest = e - from_atom(sym) * number
    quotient = floordiv(-rest, lit(number))
    return quotient if quotient * number == -rest else None


def simplify(e: Int, facts: Facts) -> Int:
    """Rewrite with ranges: drop divisions, moduli and extremes that are decided.

    `(16*i + j) // 16` becomes `i` when `0 <= j < 16`. The result is equal to `e` wherever the facts
    hold.
    """
    if e.value is not None:
        return e
    if all(isinstance(a, Sym) for m, _ in e.terms for a in m):
        return e
    total = lit(0)
    for monomial, c in e.terms:
        term = lit(c)
        for atom in monomial:
            term = term * _simplify_atom(atom, facts)
        total = total + term
    return total


def _simplify_atom(atom: Atom, facts: Facts) -> Int:
    if isinstance(atom, Sym):
        return from_atom(atom)
    found = facts.simplified.get(atom)
    if found is None:
        found = _simplify_compound(atom, facts)
        if len(facts.simplified) >= _MOST_REMEMBERED:
            facts.simplified.clear()
        facts.simplified[atom] = found
    return found


def _simplify_compound(atom: FloorDiv | Mod | Min | Max, facts: Facts) -> Int:
    match atom:
        case FloorDiv(numerator=a, denominator=b):
            return _simplify_floordiv(simplify(a, facts), simplify(b, facts), facts)
        case Mod(numerator=a, denominator=b):
            return _simplify_mod(simplify(a, facts), simplify(b, facts), facts)
        case Min(args=args):
            kept = _decided([simplify(x, facts) for x in args], facts, smaller=True)
            return minimum(*kept)
        case Max(args=args):
            kept = _decided([simplify(x, facts) for x in args], facts, smaller=False)
            return maximum(*kept)
        case _:
            assert_never(atom)


def _simplify_floordiv(a: Int, b: Int, facts: Facts) -> Int:
    known = facts.range_of(floordiv(a, b))
    if known.value is not None:
        return lit(known.value)
    divisor = b.value
    if divisor is not None and divisor > 0:
        # (divisor*q + r) // divisor is q when 0 <= r < divisor.
        whole, rest = _split_multiples(a, divisor)
        r = facts.range_of(rest)
        if r.low is not None and r.high is not None and r.low // divisor == r.high // divisor:
            return floordiv(whole, b) + r.low // divisor
        # Take out what is larger than the divisor and a multiple of a common factor:
        # (8*i + j) // 16 is i // 2 when 0 <= j < 8.
        for factor in _factors(a, divisor):
            coarse, fine = _split_multiples(a, factor)
            r = facts.range_of(fine)
            if r.low is not None and r.high is not None and r.low >= 0 and r.high < factor:
                return floordiv(floordiv(coarse, lit(factor)), lit(divisor // factor))
    return floordiv(a, b)


def _simplify_mod(a: Int, b: Int, facts: Facts) -> Int:
    divisor = b.value
    if divisor is not None and divisor > 0:
        _, rest = _split_multiples(a, divisor)
        r = facts.range_of(rest)
        if r.low is not None and r.high is not None and r.low // divisor == r.high // divisor:
            return rest - (r.low // divisor) * divisor
    if facts.at_least(a, 0) and facts.less(a, b):
        return a
    return mod(a, b)


def _split_multiples(a: Int, divisor: int) -> tuple[Int, Int]:
    """Return (terms whose coefficient the divisor divides, the others)."""
    whole = Int(tuple((m, c) for m, c in a.terms if c % divisor == 0))
    return whole, a - whole


def _factors(a: Int, divisor: int) -> Iterable[int]:
    """Proper factors of the divisor that are coefficients in `a`, largest first."""
    found = {abs(c) for m, c in a.terms if m and 1 < abs(c) < divisor and divisor % abs(c) == 0}
    return sorted(found, reverse=True)


def _decided(args: list[Int], facts: Facts, *, smaller: bool) -> list[Int]:
    """Drop arguments of an extreme that another argument always beats."""
    kept = list(dict.fromkeys(args))
    for x in list(kept):
        for y in kept:
            wins = facts.at_least(x, y) if smaller else facts.at_least(y, x)
            if x is not y and wins:
                kept = [k for k in kept if k is not x]
                break
    return kept
