"""What matches forget: found where it is, and in few steps."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import product
from random import Random

import pytest

from inlay.ir import exhaustive
from inlay.ir.exhaustive import missing_pattern
from inlay.ir.expr import Pattern, PatternConstructor, PatternTuple, PatternWildcard
from inlay.ir.module import Adt, Constructor
from inlay.ir.types import AdtType, TupleType, Type

ANY = PatternWildcard()
BIT, COLOR, BITS, PAIR = AdtType("Bit"), AdtType("Color"), AdtType("Bits"), AdtType("Pair")
ADTS = {
    "Bit": Adt("Bit", (), (Constructor("Z", 0, ()), Constructor("O", 1, ()))),
    "Color": Adt("Color", (), tuple(Constructor(n, i, ()) for i, n in enumerate(("Red", "Green", "Blue")))),
    "Bits": Adt("Bits", (), (Constructor("Nil", 0, ()), Constructor("Cons", 1, (BIT, BITS)))),
    "Pair": Adt("Pair", (), (Constructor("Pair", 0, (BIT, COLOR)),)),
}


def made(adt: str, tag: int, *fields: Pattern) -> Pattern:
    return PatternConstructor(adt, ADTS[adt].constructors[tag].name, tag, fields)


def bit(tag: int) -> Pattern:
    return made("Bit", tag)


def row(count: int, **tests: int) -> Pattern:
    """A row of bits, `row(3, b1=0)`."""
    fields = [ANY] * count
    for name, tag in tests.items():
        fields[int(name[1:])] = bit(tag)
    return PatternTuple(tuple(fields))


def values(t: Type) -> list[Pattern]:
    """All values of a type, as patterns."""
    if isinstance(t, TupleType):
        return [PatternTuple(fields) for fields in product(*map(values, t.fields))]
    assert isinstance(t, AdtType)
    return [
        made(t.name, c.tag, *fields)
        for c in ADTS[t.name].constructors
        for fields in product(*map(values, c.fields))
    ]


def fits(pattern: Pattern, value: Pattern) -> bool:
    match pattern, value:
        case PatternConstructor(tag=a, fields=p), PatternConstructor(tag=b, fields=v):
            return a == b and all(map(fits, p, v))
        case PatternTuple(fields=p), PatternTuple(fields=v):
            return all(map(fits, p, v))
        case _:
            return True


def drawn(random: Random, t: Type) -> Pattern:
    if random.random() < 0.4:
        return ANY
    if isinstance(t, TupleType):
        return PatternTuple(tuple(drawn(random, f) for f in t.fields))
    assert isinstance(t, AdtType)
    c = random.choice(ADTS[t.name].constructors)
    return made(t.name, c.tag, *(drawn(random, f) for f in c.fields))


def parsed(text: str) -> Pattern:
    """Read a pattern as it is printed."""
    words = re.findall(r"\w+|[(),]", text)

    def one() -> Pattern:
        name = words.pop(0) if words[0] != "(" else ""
        if name == "_":
            return ANY
        assert words.pop(0) == "("
        fields: list[Pattern] = []
        while words[0] != ")":
            fields.append(one())
            if words[0] == ",":
                words.pop(0)
        words.pop(0)
        if not name:
            return PatternTuple(tuple(fields))
        adt, tag = next((a.name, c.tag) for a in ADTS.values() for c in a.constructors if c.name == name)
        return made(adt, tag, *fields)

    return one()


@pytest.mark.parametrize("seed", range(60))
def test_as_all_values_say(seed: int):
    random = Random(seed)
    t = random.choice(
        [PAIR, TupleType((BIT, COLOR, BIT)), TupleType((PAIR, TupleType((BIT,)))), TupleType((BIT,) * 4)]
    )
    rows = [drawn(random, t) for _ in range(random.randint(1, 9))]
    missing = missing_pattern(rows, t, ADTS)
    forgotten = [v for v in values(t) if not any(fits(r, v) for r in rows)]
    assert (missing is None) == (not forgotten)
    if missing is not None:  # none of what it stands for is matched
        said = [v for v in values(t) if fits(parsed(missing), v)]
        assert said
        assert all(any(v == f for f in forgotten) for v in said)


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Callable[[Sequence[Pattern], Type], int]:
    """Count how often a column is chosen."""
    choose, taken = exhaustive._choose, [0]

    def counted(*args) -> int:
        taken[0] += 1
        return choose(*args)

    monkeypatch.setattr(exhaustive, "_choose", counted)

    def count(rows: Sequence[Pattern], t: Type) -> int:
        taken[0] = 0
        assert missing_pattern(rows, t, ADTS) is None
        return taken[0]

    return count


@pytest.mark.parametrize("last", [1, 2, 3, 4])
def test_many_rows_over_many_fields(steps, last: int):
    """Rows test three fields each; what they leave is matched by rows that test the last fields."""
    random = Random(last)
    rows = [
        row(16, **{f"b{j}": random.randint(0, 1) for j in random.sample(range(16), 3)}) for _ in range(48)
    ]
    for tags in product((0, 1), repeat=last):
        rows.append(row(16, **{f"b{15 - j}": tag for j, tag in enumerate(tags)}))
    assert steps(rows, TupleType((BIT,) * 16)) < 200


def test_a_diagonal(steps):
    """One row for each field; the last one says what all of them leave."""
    count = 40
    rows = [row(count, **{f"b{i}": 0}) for i in range(count)]
    assert steps([*rows, PatternTuple((bit(1),) * count)], TupleType((BIT,) * count)) <= 2 * count


def test_pairs(steps):
    """Fields that must be equal in pairs: looked at from the left, every pair doubles what is left."""
    pairs = 12
    rows: list[Pattern] = []
    for p in range(pairs):
        rows += [row(2 * pairs, **{f"b{p}": a, f"b{pairs + p}": 1 - a}) for a in (0, 1)]
    rows += [row(2 * pairs, **{f"b{pairs}": a}) for a in (0, 1)]
    assert steps(rows, TupleType((BIT,) * (2 * pairs))) < 10


def test_long_patterns():
    """Deeper than Python calls itself."""
    rows: list[Pattern] = [made("Bits", 0)]
    for _ in range(250):
        rows.append(made("Bits", 1, ANY, rows[-1]))
    missing = missing_pattern(rows, BITS, ADTS)
    assert missing == "Cons(_, " * 251 + "_" + ")" * 251
    rest: Pattern = ANY
    for _ in range(250):
        rest = made("Bits", 1, ANY, rest)
    assert missing_pattern([*rows, rest], BITS, ADTS) is None
