"""Quotients and remainders of one division put together again."""

from __future__ import annotations

from inlay.arith.expr import FloorDiv, Int, Mod, Monomial, from_atom, lit


def rejoined(e: Int) -> Int:
    """Return an equal integer with `d * (x // d) + x % d` written as `x`.

    Distances of elements are such sums where loops over two axes are one: what both tensors have next to
    each other is then seen to be. The numerators may differ by multiples of `d`, which is a number.

    Cost: remainders times terms of the sum.
    """
    found = e
    for monomial, c in e.terms:
        for position, atom in enumerate(monomial):
            d = atom.denominator.value if isinstance(atom, Mod) else None
            if not isinstance(atom, Mod) or d is None:
                continue
            rest = monomial[:position] + monomial[position + 1 :]
            quotient = _quotient(e, rest, c * d, atom)
            if quotient is not None:
                whole, divided = quotient
                factor = Int(((rest, c),)) if rest else lit(c)
                found = found + (whole - from_atom(divided) * d - from_atom(atom)) * factor
    return found


def _quotient(e: Int, rest: Monomial, c: int, remainder: Mod) -> tuple[Int, FloorDiv] | None:
    """Return what is divided, and the quotient that belongs to a remainder, where `c * rest` of it are there.

    A common factor may have been taken out of a quotient.
    """
    d = remainder.denominator.value
    assert d is not None, "asked before"
    for monomial, k in e.terms:
        for position, atom in enumerate(monomial):
            if (
                not isinstance(atom, FloorDiv)
                or k != c
                or monomial[:position] + monomial[position + 1 :] != rest
            ):
                continue
            own = atom.denominator.value
            if not own or d % own != 0:
                continue
            whole = atom.numerator * (d // own)
            if (whole - remainder.numerator) % d == 0:
                return whole, atom
    return None
