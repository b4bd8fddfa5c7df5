"""Quotients and remainders of one division put together again."""

from __future__ import annotations

from inlay.arith.expr import FloorDiv, Int, Mod, Monomial, lit


def rejoined(e: Int) -> Int:
    """Return an equal integer with `d * (x // d) + x % d` written as `x`.

    Distances of elements are such sums where loops over two axes are one: what both tensors have next to
    each other is then seen to be. The numerators may differ by multiples of a `d` that is a number.

    Cost: remainders times terms of the sum.
    """
    found = e
    for monomial, c in e.terms:
        for position, atom in enumerate(monomial):
            if not isinstance(atom, Mod) or atom.denominator.value is None:
                continue
            rest = monomial[:position] + monomial[position + 1 :]
            whole = _quotient(e, rest, c, atom)
            if whole is not None:
                quotient = Int(((rest, 1),)) if rest else lit(1)
                divided = Int((((whole,), 1),)) * atom.denominator + Int((((atom,), 1),))
                found = found + (whole.numerator - divided) * quotient * c
    return found


def _quotient(e: Int, rest: Monomial, c: int, remainder: Mod) -> FloorDiv | None:
    """Return the quotient that belongs to `c * rest * remainder`, where the sum has it as often."""
    d = remainder.denominator.value
    assert d is not None, "asked before"
    for monomial, k in e.terms:
        for position, atom in enumerate(monomial):
            if (
                isinstance(atom, FloorDiv)
                and k == c * d
                and monomial[:position] + monomial[position + 1 :] == rest
                and atom.denominator == remainder.denominator
                and (atom.numerator - remainder.numerator) % d == 0
            ):
                return atom
    return None
