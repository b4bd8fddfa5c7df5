"""What holds for all iterations of the loops around a place.

`Bounds` proves inequalities of integers over loop variables and dims: loop variables are replaced,
from the inside out, by the end of their range that makes the integer least; then each floor division
is written as `(x - x % d) / d`, so that `n - 16*(n / 16)` becomes `n % 16`; what is left is judged by
intervals, with dims at least 0. Sound and incomplete: False means "not proved".
"""

from __future__ import annotations

from collections.abc import Mapping
from math import lcm

from inlay.arith.bounds import ANY, bounds
from inlay.arith.expr import (
    Atom,
    FloorDiv,
    Int,
    Mod,
    Sym,
    coefficient,
    floordiv,
    from_atom,
    lit,
    mod,
    symbols,
    to_int,
)

_ROUNDS = 4
"""How deep divisions inside divisions are opened."""


class Bounds:
    """The loops around a place, outermost first, with first value and extent."""

    __slots__ = ("_loops", "_memo")

    def __init__(self, loops: Mapping[Sym, tuple[Int, Int]] | None = None) -> None:
        self._loops: dict[Sym, tuple[Int, Int]] = dict(loops or {})
        self._memo: dict[Int, Int] = {}

    def __contains__(self, var: Sym) -> bool:
        """Whether a symbol is one of the loops."""
        return var in self._loops

    def inside(self, var: Sym, lo: Int, extent: Int) -> Bounds:
        """Return the bounds one loop further in."""
        return Bounds({**self._loops, var: (lo, extent)})

    def since(self, var: Sym, first: Int) -> Bounds:
        """Return the bounds where a loop, one of these, has come to an iteration."""
        lo, extent = self._loops[var]
        return Bounds({**self._loops, var: (first, lo + extent - first)})

    def until(self, var: Sym, end: Int) -> Bounds:
        """Return the bounds where a loop, one of these, has not come to an iteration."""
        lo, _ = self._loops[var]
        return Bounds({**self._loops, var: (lo, end - lo)})

    def at_least(self, e: Int, low: int) -> bool:
        """Whether `e >= low` is proved."""
        if e.value is not None:
            return e.value >= low
        least = self._least(e)
        return least is not None and least >= low

    def less(self, a: Int, b: Int) -> bool:
        """Whether `a < b` is proved."""
        return self.at_least(b - a, 1)

    def within(self, e: Int, n: Int) -> bool:
        """Whether `0 <= e < n` is proved."""
        return self.at_least(e, 0) and self.less(e, n)

    def _least(self, e: Int) -> int | None:
        for var in reversed(self._loops):
            lowered = self._without(e, var)
            if lowered is None:
                return bounds(e, dict.fromkeys(self._loops, ANY)).low
            e = lowered
        scaled, factor = _open_divisions(e)
        low = bounds(scaled, {}).low
        return None if low is None else -(-low // factor)

    def _without(self, e: Int, var: Sym) -> Int | None:
        """Replace a loop variable by the end of its range that makes `e` least.

        In quotients by numbers too, each for itself: they grow with what is divided.
        """
        lo, extent = self._loops[var]
        least = e
        for monomial, c in e.terms:
            if monomial == (var,):
                end = lo if c > 0 else lo + extent - 1
                least = least + (end - to_int(var)) * c
            elif any(var in symbols(from_atom(a)) for a in monomial):
                quotient = monomial[0]
                if len(monomial) != 1 or not isinstance(quotient, FloorDiv):
                    return None
                step = coefficient(quotient.numerator, var)
                k = None if step is None else step.value
                if not k or (quotient.denominator.value or 0) <= 0:
                    return None
                end = lo if c * k > 0 else lo + extent - 1
                moved = quotient.numerator + (end - to_int(var)) * k
                least = least + (floordiv(moved, quotient.denominator) - from_atom(quotient)) * c
        return least

    def simplify(self, e: Int) -> Int:
        """Return an equal integer with divisions and remainders taken out where ranges allow."""
        if not any(not isinstance(a, Sym) for monomial, _ in e.terms for a in monomial):
            return e
        found = self._memo.get(e)
        if found is None:
            total = lit(0)
            for monomial, c in e.terms:
                term = lit(c)
                for a in monomial:
                    term = term * self._atom(a)
                total = total + term
            found = self._memo[e] = total
        return found

    def _atom(self, a: Atom) -> Int:
        if isinstance(a, (FloorDiv, Mod)):
            x, d = self.simplify(a.numerator), a.denominator
            if self.within(x, d):
                return lit(0) if isinstance(a, FloorDiv) else x
            return floordiv(x, d) if isinstance(a, FloorDiv) else mod(x, d)
        return from_atom(a)


def _open_divisions(e: Int) -> tuple[Int, int]:
    """Return `factor * e` and `factor > 0`, with divisions written through remainders."""
    factor = 1
    for _ in range(_ROUNDS):
        found = [
            a.denominator.value
            for monomial, _ in e.terms
            for a in monomial
            if isinstance(a, FloorDiv) and (a.denominator.value or 0) > 0
        ]
        if not found:
            break
        scale = lcm(*(d for d in found if d is not None))
        factor *= scale
        total = lit(0)
        for monomial, c in e.terms:
            # One division in each product is opened; the rest wait for the next round.
            left, term = scale, lit(c)
            for a in monomial:
                d = a.denominator.value if isinstance(a, FloorDiv) else None
                if isinstance(a, FloorDiv) and d is not None and d > 0 and left == scale:
                    left //= d
                    term = term * (a.numerator - mod(a.numerator, a.denominator))
                else:
                    term = term * from_atom(a)
            total = total + term * left
        e = total
    return e, factor
