"""Quotients of polynomials, as terms: the arithmetic behind `expr.floordiv`, which knows what atoms are.

The leading term of a multiple of b is a multiple of the leading term of b, in any order of terms that
products keep. So long division takes one term away in each step, or shows that there is no such polynomial.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol, TypeVar

LONGEST = 16
"""Terms of a quotient by a sum, at most: those of sizes have a few."""


class Atom(Protocol):
    """What is multiplied in a term."""

    @property
    def key(self) -> tuple[Any, ...]:
        """A total order over atoms."""
        ...


A = TypeVar("A", bound=Atom)


def exact_quotient(
    a: Iterable[tuple[tuple[A, ...], int]], b: Iterable[tuple[tuple[A, ...], int]]
) -> list[tuple[tuple[A, ...], int]] | None:
    """Return the terms of the polynomial q for which `a == q * b`, if there is one; None for b of no terms.

    Args:
        a: products of atoms, each sorted by key, and their coefficients, which are not zero.
        b: the same.
    """
    rest, divisor = dict(a), list(b)
    if not divisor:
        return None
    mono, coefficient = max(divisor, key=_rank)
    found: list[tuple[tuple[A, ...], int]] = []
    while rest:
        lead, c = max(rest.items(), key=_rank)
        left = list(lead)
        for atom in mono:
            if atom not in left:
                return None
            left.remove(atom)
        if c % coefficient or (len(divisor) > 1 and len(found) == LONGEST):
            return None
        found.append((tuple(left), c // coefficient))
        for m, d in divisor:
            term = tuple(sorted((*m, *left), key=lambda atom: atom.key))
            rest[term] = rest.get(term, 0) - d * (c // coefficient)
            if not rest[term]:
                del rest[term]
    return found


def _rank(term: tuple[tuple[A, ...], int]) -> tuple[int, list[tuple[Any, ...]]]:
    """Return the place of a term in an order that products keep: by degree, then by the last atoms."""
    return len(term[0]), sorted((atom.key for atom in term[0]), reverse=True)
