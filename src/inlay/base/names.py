"""Names: fresh ones from counters, and spellings that other languages accept."""

from __future__ import annotations

import re
from collections.abc import Iterable

_C_WORDS = frozenset(
    # The keywords of C99, C11 and C23.
    """
    alignas alignof asm auto bool break case char complex const constexpr continue default do
    double else enum extern false float for goto if imaginary inline int long main nullptr
    register restrict return short signed sizeof static struct switch thread_local true typedef
    typeof union unsigned void volatile while
    """.split()
)
_NUMBERED = re.compile(r"(.+)_[0-9]+")
_NOT_WORD = re.compile(r"[^A-Za-z0-9_]")


class NameSupply:
    """Gives each asker a name nobody has: ``x``, ``x_1``, ``x_2`` and so on.

    Deterministic: the names depend only on the order of the requests. A number at the end of a
    hint is taken off first, so that renaming twice does not grow ``x_1_1``. Cost: amortized O(1).

    Args:
        taken: Names that are in use already.
    """

    __slots__ = ("_next", "_taken")

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = set(taken)
        self._next: dict[str, int] = {}

    def fresh(self, hint: str = "t") -> str:
        """Return a name like the hint that was not given before, and keep it."""
        if hint not in self._taken:
            self._taken.add(hint)
            return hint
        numbered = _NUMBERED.fullmatch(hint)
        stem = numbered.group(1) if numbered else hint
        count = self._next.get(stem, 1)
        while (name := f"{stem}_{count}") in self._taken:
            count += 1
        self._next[stem] = count + 1
        self._taken.add(name)
        return name

    def __contains__(self, name: object) -> bool:
        return name in self._taken


def to_c(name: str, *, prefix: str = "") -> str:
    """Return a C identifier that reads like a name; different names may give the same one.

    Use a `NameSupply` over the results where two names must stay different.
    """
    word = prefix + (_NOT_WORD.sub("_", name) or "_")
    word = re.sub(r"__+", "_", word)
    if word[0].isdigit() or word[0] == "_":
        word = "v" + word
    return word + "_" if word in _C_WORDS else word
