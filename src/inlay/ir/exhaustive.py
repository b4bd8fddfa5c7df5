"""Which values a match forgets.

The arms of a match are rows of patterns; they cover a type when they cover, for each constructor of
its values, what is left after that constructor. One row is looked at at most once for each
constructor on a path, and a row that begins with a variable serves all of them. A row of variables
alone covers all that is left.

Source: Maranget, "Warnings for pattern matching", 2007 (the usefulness of a wildcard row).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from inlay.ir.dims import substitute_type
from inlay.ir.expr import Pattern, PatternConstructor, PatternTuple, PatternVar, PatternWildcard
from inlay.ir.module import Adt, Constructor
from inlay.ir.types import AdtType, ExistsType, TupleType, Type

_Row = tuple[Pattern, ...]
_ANY = PatternWildcard()


def missing_pattern(patterns: Sequence[Pattern], type: Type, adts: Mapping[str, Adt]) -> str | None:
    """Return a pattern of values that none of the given ones matches, None if there is none."""
    found = _missing([(p,) for p in patterns], (type,), adts)
    return None if found is None else found[0]


def _missing(
    rows: list[_Row], types: tuple[Type, ...], adts: Mapping[str, Adt]
) -> list[str] | None:
    if any(all(map(_is_any, row)) for row in rows):
        return None
    if not types:
        return []
    first, rest = types[0], types[1:]
    if isinstance(first, ExistsType):
        first = first.body
    heads = [row[0] for row in rows]
    if any(isinstance(h, PatternTuple) for h in heads) and isinstance(first, TupleType):
        n = len(first.fields)
        found = _missing(_specialize_tuple(rows, n), (*first.fields, *rest), adts)
        return None if found is None else [f"({', '.join(found[:n])})", *found[n:]]
    adt = adts.get(first.name) if isinstance(first, AdtType) else None
    if adt is None or not any(isinstance(h, PatternConstructor) for h in heads):
        found = _missing([row[1:] for row in rows if _is_any(row[0])], rest, adts)
        return None if found is None else ["_", *found]
    assert isinstance(first, AdtType)
    arguments = {p.name: a for p, a in zip(adt.params, first.args, strict=False)}
    for c in adt.constructors:
        fields = tuple(substitute_type(f, {}, arguments) for f in c.fields)
        found = _missing(_specialize(rows, c), (*fields, *rest), adts)
        if found is not None:
            n = len(fields)
            return [f"{c.name}({', '.join(found[:n])})", *found[n:]]
    return None


def _is_any(p: Pattern) -> bool:
    return isinstance(p, (PatternWildcard, PatternVar))


def _specialize(rows: list[_Row], c: Constructor) -> list[_Row]:
    """Return what rows say of the fields of a constructor and of what follows."""
    found: list[_Row] = []
    for head, *rest in rows:
        if _is_any(head):
            found.append((*(_ANY,) * len(c.fields), *rest))
        elif isinstance(head, PatternConstructor) and head.tag == c.tag:
            found.append((*head.fields, *rest))
    return found


def _specialize_tuple(rows: list[_Row], n: int) -> list[_Row]:
    found: list[_Row] = []
    for head, *rest in rows:
        if _is_any(head):
            found.append((*(_ANY,) * n, *rest))
        elif isinstance(head, PatternTuple):
            found.append((*head.fields, *rest))
    return found
