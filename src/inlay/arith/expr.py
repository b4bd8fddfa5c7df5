"""Symbolic integers: dimensions of tensors and indices of loops.

An `Int` is a polynomial with integer coefficients over *atoms*: symbols and the four
non-polynomial operations (floor division, modulus, minimum, maximum). The polynomial is the
normal form, so `2*n + 4` and `(n + 2) * 2` are the same object value, and equality, hashing and
cancellation need no rule table:

    Int   = sum of  coefficient * monomial
    monomial = product of atoms, as a sorted tuple (an atom repeated is a power)
    atom  = Sym | FloorDiv(Int, Int) | Mod(Int, Int) | Min(Ints) | Max(Ints)

What holds only under assumptions (`n % 16 == 0`, `n <= 512`) is not decided here: see
`bounds.py` and `solve.py`. Division rounds toward minus infinity, and `Mod` has the sign of the
divisor, as in Python. A division whose divisor may be zero is the business of whoever builds it.

Symbols have identity: two symbols of one name are different unless they are the same symbol.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import gcd
from typing import assert_never

from inlay.arith.long_division import exact_quotient

_next_uid = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Sym:
    """An unknown integer with identity.

    `name` is for people; `uid` is the identity and follows the order of creation, so that sorting
    by it is reproducible. Create symbols with `fresh`. A symbol stands for a size, which is not
    negative, where nothing else is said; one that is `signed` may be any integer.
    """

    name: str
    uid: int
    signed: bool = False

    def __hash__(self) -> int:
        return self.uid

    @property
    def key(self) -> tuple[object, ...]:
        """A total order over atoms that does not depend on hashing."""
        return (0, self.uid)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class FloorDiv:
    """`numerator // denominator`, rounded toward minus infinity."""

    numerator: Int
    denominator: Int

    @property
    def key(self) -> tuple[object, ...]:
        """A total order over atoms that does not depend on hashing."""
        return (1, self.numerator.key, self.denominator.key)

    def __str__(self) -> str:
        return f"({_operand_text(self.numerator)} // {_operand_text(self.denominator)})"


@dataclass(frozen=True, slots=True)
class Mod:
    """`numerator % denominator`, with the sign of the denominator."""

    numerator: Int
    denominator: Int

    @property
    def key(self) -> tuple[object, ...]:
        """A total order over atoms that does not depend on hashing."""
        return (2, self.numerator.key, self.denominator.key)

    def __str__(self) -> str:
        return f"({_operand_text(self.numerator)} % {_operand_text(self.denominator)})"


@dataclass(frozen=True, slots=True)
class Min:
    """The least of two or more integers, sorted and without duplicates."""

    args: tuple[Int, ...]

    @property
    def key(self) -> tuple[object, ...]:
        """A total order over atoms that does not depend on hashing."""
        return (3, *(a.key for a in self.args))

    def __str__(self) -> str:
        return f"min({', '.join(map(str, self.args))})"


@dataclass(frozen=True, slots=True)
class Max:
    """The greatest of two or more integers, sorted and without duplicates."""

    args: tuple[Int, ...]

    @property
    def key(self) -> tuple[object, ...]:
        """A total order over atoms that does not depend on hashing."""
        return (4, *(a.key for a in self.args))

    def __str__(self) -> str:
        return f"max({', '.join(map(str, self.args))})"


Atom = Sym | FloorDiv | Mod | Min | Max
Monomial = tuple[Atom, ...]


class Int:
    """A symbolic integer in normal form. Immutable; compared and hashed by value.

    Attributes:
        terms: `(monomial, coefficient)` pairs, sorted, no zero coefficients; the constant term
            has the empty monomial and comes first.
    """

    __slots__ = ("_hash", "_key", "terms")

    terms: tuple[tuple[Monomial, int], ...]

    def __init__(self, terms: tuple[tuple[Monomial, int], ...]) -> None:
        """Wrap terms that are already normal; use `lit`, `sym` and the operators instead."""
        self.terms = terms
        self._hash: int | None = None
        self._key: tuple[object, ...] | None = None

    @property
    def value(self) -> int | None:
        """The number, when there is no symbol in it."""
        if not self.terms:
            return 0
        if len(self.terms) == 1 and not self.terms[0][0]:
            return self.terms[0][1]
        return None

    @property
    def constant(self) -> int:
        """The constant term."""
        return self.terms[0][1] if self.terms and not self.terms[0][0] else 0

    @property
    def atom(self) -> Atom | None:
        """The single atom this integer consists of, if it is one."""
        if len(self.terms) == 1 and self.terms[0][1] == 1 and len(self.terms[0][0]) == 1:
            return self.terms[0][0][0]
        return None

    @property
    def key(self) -> tuple[object, ...]:
        """A total order that does not depend on hashing."""
        if self._key is None:
            self._key = tuple((tuple(a.key for a in m), c) for m, c in self.terms)
        return self._key

    def __eq__(self, other: object) -> bool:
        if isinstance(other, int):
            return self.value == other
        return self is other or (isinstance(other, Int) and self.terms == other.terms)

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(self.terms)
        return self._hash

    def __add__(self, other: Int | int) -> Int:
        a, b = self.terms, (other if isinstance(other, Int) else to_int(other)).terms
        if not a or not b:
            return Int(a or b)
        # A constant is the first term, so adding one changes nothing else.
        if len(b) == 1 and not b[0][0]:
            return _add_constant(a, b[0][1])
        if len(a) == 1 and not a[0][0]:
            return _add_constant(b, a[0][1])
        return _from_terms((*a, *b))

    def __neg__(self) -> Int:
        return Int(tuple((m, -c) for m, c in self.terms))

    def __sub__(self, other: Int | int) -> Int:
        return self + -to_int(other)

    def __mul__(self, other: Int | int) -> Int:
        a, b = self.terms, (other if isinstance(other, Int) else to_int(other)).terms
        if len(a) == 1 and not a[0][0]:
            a, b = b, a
        if len(b) == 1 and not b[0][0]:
            c = b[0][1]
            return self if c == 1 and a is self.terms else Int(tuple([(m, k * c) for m, k in a]))
        return _from_terms((_product(ma, mb), ca * cb) for ma, ca in a for mb, cb in b)

    def __floordiv__(self, other: Int | int) -> Int:
        return floordiv(self, to_int(other))

    def __mod__(self, other: Int | int) -> Int:
        return mod(self, to_int(other))

    def __radd__(self, other: int) -> Int:
        return self + other

    def __rsub__(self, other: int) -> Int:
        return to_int(other) - self

    def __rmul__(self, other: int) -> Int:
        return self * other

    def __rfloordiv__(self, other: int) -> Int:
        return floordiv(to_int(other), self)

    def __rmod__(self, other: int) -> Int:
        return mod(to_int(other), self)

    def __repr__(self) -> str:
        return f"Int({self})"

    def __str__(self) -> str:
        if not self.terms:
            return "0"
        ordered = [t for t in self.terms if t[0]] + [t for t in self.terms if not t[0]]
        text = _term_text(*ordered[0])
        for monomial, c in ordered[1:]:
            text += f" - {_term_text(monomial, -c)}" if c < 0 else f" + {_term_text(monomial, c)}"
        return text


def _operand_text(e: Int) -> str:
    return str(e) if e.value is not None or e.atom is not None else f"({e})"


def _term_text(monomial: Monomial, c: int) -> str:
    if not monomial:
        return str(c)
    body = "*".join(map(str, monomial))
    return body if c == 1 else f"-{body}" if c == -1 else f"{c}*{body}"


def _product(a: Monomial, b: Monomial) -> Monomial:
    if not a:
        return b
    if not b:
        return a
    return tuple(sorted(a + b, key=_atom_key))


def _atom_key(a: Atom) -> tuple[object, ...]:
    return a.key


def _monomial_key(m: Monomial) -> tuple[object, ...]:
    return (len(m), tuple(a.key for a in m))


def _term_key(term: tuple[Monomial, int]) -> tuple[object, ...]:
    return _monomial_key(term[0])


def _linear_key(term: tuple[Monomial, int]) -> int:
    """Order like `_term_key` where every monomial is empty or one symbol; the common case."""
    return term[0][0].uid if term[0] else -1  # type: ignore[union-attr]


def _from_terms(terms: Iterable[tuple[Monomial, int]]) -> Int:
    total: dict[Monomial, int] = {}
    linear = True
    for monomial, c in terms:
        total[monomial] = total.get(monomial, 0) + c
        if linear and monomial and (type(monomial[0]) is not Sym or len(monomial) > 1):
            linear = False
    kept = [t for t in total.items() if t[1]]
    if len(kept) > 1:
        kept.sort(key=_linear_key if linear else _term_key)
    return Int(tuple(kept))


def _add_constant(terms: tuple[tuple[Monomial, int], ...], c: int) -> Int:
    """Return terms, of which there are some, plus a number other than 0."""
    if terms[0][0]:
        return Int((((), c), *terms))
    c += terms[0][1]
    return Int((((), c), *terms[1:]) if c else terms[1:])


_SMALL = {i: Int((((), i),) if i else ()) for i in range(-1, 1025)}


def lit(value: int) -> Int:
    """Return the integer with no symbol in it."""
    found = _SMALL.get(value)
    return found if found is not None else Int((((), int(value)),))


def to_int(value: Int | int | Sym) -> Int:
    """Wrap a number or a symbol; an `Int` is returned as it is."""
    if isinstance(value, Int):
        return value
    if isinstance(value, Sym):
        return from_atom(value)
    return lit(value)


def from_atom(atom: Atom) -> Int:
    """Return the integer that is exactly this atom."""
    return Int((((atom,), 1),))


def fresh(name: str, *, signed: bool = False) -> Sym:
    """Return a symbol that is equal to no other."""
    return Sym(name, next(_next_uid), signed)


def floordiv(a: Int, b: Int) -> Int:
    """Return `a // b`, taking out every term that `b` divides exactly."""
    divisor = b.value
    if divisor == 1:
        return a
    if divisor == -1:
        return -a
    if divisor is not None and divisor != 0:
        if a.value is not None:
            return lit(a.value // divisor)
        whole = [(m, c // divisor) for m, c in a.terms if c % divisor == 0]
        rest = [(m, c) for m, c in a.terms if c % divisor]
        if not rest:
            return _from_terms(whole)
        if divisor > 0:
            # A constant is split into quotient and remainder so that (n + 17)//16 is
            # (n + 1)//16 + 1 in whichever way it was written.
            rest_const = next((c for m, c in rest if not m), 0)
            if rest_const and len(rest) > 1:
                whole.append(((), rest_const // divisor))
                rest = [(m, c) for m, c in rest if m] + [((), rest_const % divisor)]
        if all(not m for m, _ in rest) and not whole:
            return lit(sum(c for _, c in rest) // divisor)
        inner = _from_terms(rest)
        if inner.value is not None:
            return _from_terms([*whole, ((), inner.value // divisor)])
        return _from_terms(whole) + _divide_reduced(inner, divisor)
    if a == b and b.value != 0:
        return lit(1)  # b is not zero wherever the division is defined
    quotient = exact_quotient(a.terms, b.terms)
    return from_atom(FloorDiv(a, b)) if quotient is None else _from_terms(quotient)


def _divide_reduced(a: Int, divisor: int) -> Int:
    """Divide by a constant after removing the common factor and merging nested divisions."""
    common = divisor
    for _, c in a.terms:
        common = gcd(common, c)
    # (g*x) // (g*d) is x // d for g > 0.
    if common > 1:
        a = Int(tuple((m, c // common) for m, c in a.terms))
        divisor //= common
    if divisor == 1:
        return a
    inner = a.atom
    if divisor > 0 and isinstance(inner, FloorDiv):
        d = inner.denominator.value
        if d is not None and d > 0:
            return floordiv(inner.numerator, lit(d * divisor))
    if divisor > 0 and isinstance(inner, Mod) and inner.denominator.value is not None:
        if 0 < inner.denominator.value <= divisor:
            return lit(0)
    return from_atom(FloorDiv(a, lit(divisor)))


def mod(a: Int, b: Int) -> Int:
    """Return `a % b`, dropping every term that `b` divides exactly."""
    divisor = b.value
    if divisor in (1, -1):
        return lit(0)
    if divisor is not None and divisor != 0:
        if a.value is not None:
            return lit(a.value % divisor)
        rest = _from_terms((m, c % divisor) for m, c in a.terms)
        if rest.value is not None:
            return lit(rest.value % divisor)
        inner = rest.atom
        if isinstance(inner, Mod) and inner.denominator.value is not None:
            d = inner.denominator.value
            if d > 0 and divisor > 0:
                if d <= divisor:
                    return rest
                if d % divisor == 0:
                    return mod(inner.numerator, b)
        return from_atom(Mod(rest, b))
    if a == b or exact_quotient(a.terms, b.terms) is not None:
        return lit(0)
    return from_atom(Mod(a, b))


def product(dims: Iterable[Int | int]) -> Int:
    """Return the product of some integers; 1 for none."""
    total = lit(1)
    for d in dims:
        total = total * d
    return total


def ceildiv(a: Int | int, b: Int | int) -> Int:
    """Return `a / b` rounded up; `b` is positive."""
    a, b = to_int(a), to_int(b)
    return floordiv(a + (b - 1), b)


def minimum(*args: Int | int) -> Int:
    """Return the least argument; differences that are numbers are decided at once."""
    kept = _extreme([to_int(a) for a in args], Min, keep_first=lambda d: d <= 0)
    return kept[0] if len(kept) == 1 else from_atom(Min(tuple(kept)))


def maximum(*args: Int | int) -> Int:
    """Return the greatest argument; differences that are numbers are decided at once."""
    kept = _extreme([to_int(a) for a in args], Max, keep_first=lambda d: d >= 0)
    return kept[0] if len(kept) == 1 else from_atom(Max(tuple(kept)))


def _extreme(args: list[Int], node: type[Min] | type[Max], *, keep_first: Callable[[int], bool]) -> list[Int]:
    flat: list[Int] = []
    for a in args:
        inner = a.atom
        flat.extend(inner.args if isinstance(inner, node) else (a,))
    kept: list[Int] = []
    for a in flat:
        for i, k in enumerate(kept):
            difference = (k - a).value
            if difference is not None:
                if not keep_first(difference):
                    kept[i] = a
                break
        else:
            kept.append(a)
    return sorted(kept, key=lambda k: k.key)


def substitute(e: Int, mapping: Mapping[Sym, Int]) -> Int:
    """Replace symbols, re-normalizing; symbols that are not in `mapping` stay."""
    if e.value is not None:
        return e
    return rebuild(e, lambda s: mapping.get(s))


def rebuild(e: Int, replace: Callable[[Sym], Int | None]) -> Int:
    """Replace each symbol by `replace(symbol)` (None keeps it), re-normalizing."""
    terms: list[tuple[Monomial, int]] = []
    changed = False
    for term in e.terms:
        monomial, c = term
        new = lit(c)
        same = True
        for atom in monomial:
            if type(atom) is Sym:
                found = replace(atom)
                same = same and found is None
            else:
                found = _rebuild_atom(atom, replace)
                same = same and found.atom == atom
            new = new * (from_atom(atom) if found is None else found)
        if same:
            terms.append(term)
        else:
            changed = True
            terms.extend(new.terms)
    return _from_terms(terms) if changed else e


def _rebuild_atom(atom: Atom, replace: Callable[[Sym], Int | None]) -> Int:
    match atom:
        case Sym():
            found = replace(atom)
            return from_atom(atom) if found is None else found
        case FloorDiv(numerator=a, denominator=b):
            return floordiv(rebuild(a, replace), rebuild(b, replace))
        case Mod(numerator=a, denominator=b):
            return mod(rebuild(a, replace), rebuild(b, replace))
        case Min(args=args):
            return minimum(*(rebuild(a, replace) for a in args))
        case Max(args=args):
            return maximum(*(rebuild(a, replace) for a in args))
        case _:
            assert_never(atom)


def evaluate(e: Int, env: Mapping[Sym, int]) -> int:
    """Return the number under an assignment.

    Raises:
        KeyError: a symbol has no value.
        ZeroDivisionError: a divisor is zero.
    """
    total = 0
    for monomial, c in e.terms:
        term = c
        for atom in monomial:
            term *= _evaluate_atom(atom, env)
        total += term
    return total


def _evaluate_atom(atom: Atom, env: Mapping[Sym, int]) -> int:
    match atom:
        case Sym():
            return env[atom]
        case FloorDiv(numerator=a, denominator=b):
            return evaluate(a, env) // evaluate(b, env)
        case Mod(numerator=a, denominator=b):
            return evaluate(a, env) % evaluate(b, env)
        case Min(args=args):
            return min(evaluate(a, env) for a in args)
        case Max(args=args):
            return max(evaluate(a, env) for a in args)
        case _:
            assert_never(atom)


def symbols(e: Int) -> tuple[Sym, ...]:
    """Return the distinct symbols, in order of first appearance in the normal form."""
    found: dict[Sym, None] = {}
    _collect(e, found)
    return tuple(found)


def _collect(e: Int, found: dict[Sym, None]) -> None:
    for monomial, _ in e.terms:
        for atom in monomial:
            match atom:
                case Sym():
                    found[atom] = None
                case FloorDiv(numerator=a, denominator=b) | Mod(numerator=a, denominator=b):
                    _collect(a, found)
                    _collect(b, found)
                case Min(args=args) | Max(args=args):
                    for a in args:
                        _collect(a, found)
                case _:
                    assert_never(atom)


def divisors(e: Int, s: Sym) -> Iterator[int]:
    """Yield the numbers by which what mentions `s` is divided: 3 twice in `4*(s // 3) + s % 3`."""
    for monomial, _ in e.terms:
        for atom in monomial:
            match atom:
                case Sym():
                    pass
                case FloorDiv(numerator=a, denominator=b) | Mod(numerator=a, denominator=b):
                    if b.value is not None and s in symbols(a):
                        yield b.value
                    yield from divisors(a, s)
                case Min(args=args) | Max(args=args):
                    for a in args:
                        yield from divisors(a, s)
                case _:
                    assert_never(atom)


def coefficient(e: Int, s: Sym) -> Int | None:
    """Return c such that `e == c*s + rest` and neither contains `s`; None if it is not so."""
    inside: list[tuple[Monomial, int]] = []
    for monomial, c in e.terms:
        count = sum(1 for a in monomial if a == s)
        others = tuple(a for a in monomial if a != s)
        if count > 1 or any(s in symbols(from_atom(a)) for a in others):
            return None
        if count:
            inside.append((others, c))
    return _from_terms(inside)
