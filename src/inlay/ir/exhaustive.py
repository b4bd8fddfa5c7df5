"""Which values a match forgets.

The arms of a match are rows of patterns with a column for each value that is looked at. A column is
chosen, and for each constructor of its values there is what the rows say of the rest: rows of other
constructors fall away, and one that begins with a variable serves all of them. A row of variables alone
covers everything; where no row is left, what led there is forgotten.

To tell is as hard as to tell whether a formula always holds, so the order of columns matters: a row
that tests few columns covers most, and its columns come first. What was looked at once, rows and
columns alike, is not looked at again.

Source: Maranget, "Warnings for pattern matching", 2007 (the usefulness of a wildcard row).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress

from inlay.ir.dims import substitute_type
from inlay.ir.expr import Pattern, PatternConstructor, PatternTuple
from inlay.ir.module import Adt
from inlay.ir.types import AdtType, ExistsType, TupleType, Type

_ANY, _TUPLE, _OTHER = 0, -1, -2
"""The number of a pattern that matches everything; for tags, tuples and what is of another type."""

_Row = tuple[int, ...]
"""The number of a pattern for each column."""


@dataclass(slots=True, eq=False)
class _Value:
    """A value that is looked at.

    Attributes:
        type: of it.
        shapes: its fields for each constructor, by tag, made once; those of a tuple by `_TUPLE`.
    """

    type: Type
    shapes: dict[int, tuple[_Value, ...]] = field(default_factory=dict[int, "tuple[_Value, ...]"])


@dataclass(frozen=True, slots=True)
class _Left:
    """What may still be forgotten.

    Attributes:
        rows: what can still match.
        columns: the values that the rows speak of.
        found: what led here: a value, and the tag of its constructor; linked from the last one.
    """

    rows: tuple[_Row, ...]
    columns: tuple[_Value, ...]
    found: _Found | None


@dataclass(frozen=True, slots=True)
class _Found:
    value: _Value
    tag: int
    before: _Found | None


def missing_pattern(patterns: Sequence[Pattern], type: Type, adts: Mapping[str, Adt]) -> str | None:
    """Return a pattern of values that none of the given ones matches, None if there is none."""
    numbers = _Numbers()
    root = _Value(type)
    pending = [_Left(tuple((numbers.of(p),) for p in patterns), (root,), None)]
    seen: set[tuple[tuple[_Row, ...], tuple[int, ...]]] = set()
    while pending:
        left = pending.pop()
        key = (left.rows, tuple(map(id, left.columns)))
        if key in seen:
            continue
        seen.add(key)
        if not left.rows:
            return _text(root, left.found, adts)
        if all(map(any, left.rows)):  # no row takes everything
            pending += reversed(_split(left, _choose(left.rows, numbers), numbers, adts))
    return None


class _Numbers:
    """Numbers for patterns that are equal, 0 for those that match everything.

    Attributes:
        parts: by number, the tag and the numbers of the fields.
    """

    def __init__(self) -> None:
        self.parts: list[tuple[int, tuple[int, ...]]] = [(_ANY, ())]
        self._known: dict[tuple[int, tuple[int, ...]], int] = {}

    def of(self, pattern: Pattern) -> int:
        """Return the number of a pattern."""
        done: dict[int, int] = {}
        pending = [pattern]
        while pending:
            p = pending[-1]
            fields = p.fields if isinstance(p, (PatternConstructor, PatternTuple)) else ()
            if open_ := [f for f in fields if id(f) not in done]:
                pending += open_
                continue
            pending.pop()
            done[id(p)] = self._number(p, tuple(done[id(f)] for f in fields))
        return done[id(pattern)]

    def _number(self, p: Pattern, fields: tuple[int, ...]) -> int:
        if not isinstance(p, (PatternConstructor, PatternTuple)):
            return _ANY
        part = (p.tag if isinstance(p, PatternConstructor) else _TUPLE, fields)
        if part not in self._known:
            self._known[part] = len(self.parts)
            self.parts.append(part)
        return self._known[part]


def _choose(rows: Sequence[_Row], numbers: _Numbers) -> int:
    """Return the column to look at: of a row that tests fewest, the one that most rows test."""
    short = min(rows, key=lambda row: len(row) - row.count(_ANY))
    tested = Counter(c for row in rows for c, p in enumerate(row) if p)
    columns = [c for c, p in enumerate(short) if p]
    plain = [c for c in columns if numbers.parts[short[c]][0] == _TUPLE]  # nothing to choose there
    return (plain or sorted(columns, key=lambda c: -tested[c]))[0]


def _split(left: _Left, column: int, numbers: _Numbers, adts: Mapping[str, Adt]) -> list[_Left]:
    """Return what is left behind each constructor of a column; one of those that no row names."""
    value = left.columns[column]
    named = {numbers.parts[row[column]][0] for row in left.rows if row[column]}
    whole = value.type.body if isinstance(value.type, ExistsType) else value.type
    if isinstance(whole, TupleType):
        return [_behind(left, column, _TUPLE, numbers, _fields(value, _TUPLE, whole.fields))]
    adt = adts.get(whole.name) if isinstance(whole, AdtType) else None
    if adt is None:  # of another type than the patterns are: said elsewhere
        return [_behind(left, column, _OTHER, numbers, ())]
    assert isinstance(whole, AdtType)
    arguments = {p.name: a for p, a in zip(adt.params, whole.args, strict=False)}
    found: list[_Left] = []
    unnamed = False
    for c in adt.constructors:
        if c.tag not in named and unnamed:
            continue
        unnamed = unnamed or c.tag not in named
        types = [substitute_type(f, {}, arguments) for f in c.fields]
        found.append(_behind(left, column, c.tag, numbers, _fields(value, c.tag, types)))
    return found


def _fields(value: _Value, tag: int, types: Sequence[Type]) -> tuple[_Value, ...]:
    if tag not in value.shapes:
        value.shapes[tag] = tuple(map(_Value, types))
    return value.shapes[tag]


def _behind(left: _Left, column: int, tag: int, numbers: _Numbers, fields: tuple[_Value, ...]) -> _Left:
    """Return what rows say of the fields of a constructor and of the other columns."""
    rows: dict[_Row, None] = {}
    for row in left.rows:
        if row[column] == _ANY:
            inner: _Row = (_ANY,) * len(fields)
        else:
            found, inner = numbers.parts[row[column]]
            if found != tag or len(inner) != len(fields):
                continue
        rows[*row[:column], *inner, *row[column + 1 :]] = None
    columns = (*left.columns[:column], *fields, *left.columns[column + 1 :])
    tested = [any(ps) for ps in zip(*rows, strict=True)]
    if not all(tested):  # nobody asks for these values
        columns = tuple(compress(columns, tested))
        rows = dict.fromkeys(tuple(compress(row, tested)) for row in rows)
    return _Left(tuple(rows), columns, _Found(left.columns[column], tag, left.found))


def _text(root: _Value, found: _Found | None, adts: Mapping[str, Adt]) -> str:
    """Return the pattern of what led to nothing."""
    tags: dict[_Value, int] = {}
    while found is not None:
        tags[found.value] = found.tag
        found = found.before
    words: list[str] = []
    pending: list[_Value | str] = [root]
    while pending:
        item = pending.pop()
        if isinstance(item, str):
            words.append(item)
            continue
        fields = item.shapes.get(tags.get(item, _OTHER))
        if fields is None:
            words.append("_")
            continue
        words.append(_name(item.type, tags[item], adts))
        inner: list[_Value | str] = ["("]
        for i, f in enumerate(fields):
            inner += [", ", f] if i else [f]
        pending += reversed([*inner, ")"])
    return "".join(words)


def _name(type: Type, tag: int, adts: Mapping[str, Adt]) -> str:
    whole = type.body if isinstance(type, ExistsType) else type
    if tag == _TUPLE or not isinstance(whole, AdtType):
        return ""
    return next(c.name for c in adts[whole.name].constructors if c.tag == tag)
