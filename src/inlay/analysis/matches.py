"""Facts about matches."""

from __future__ import annotations

from inlay.ir.expr import Match, PatternConstructor, PatternVar, PatternWildcard


def is_flat(value: Match) -> bool:
    """Whether a match tests one tag: constructors over variables and wildcards, `_` only at the end.

    Each arm of such a match is written once; an arm of another one wherever it is reached.
    """
    tags: set[int] = set()
    for index, arm in enumerate(value.arms):
        match arm.pattern:
            case PatternConstructor(tag=tag, fields=fields):
                if tag in tags or not all(isinstance(f, PatternVar | PatternWildcard) for f in fields):
                    return False
                tags.add(tag)
            case PatternWildcard():
                if not tags or index != len(value.arms) - 1:
                    return False
            case _:
                return False
    return True
