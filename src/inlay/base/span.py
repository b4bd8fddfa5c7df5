"""Where something came from: a piece of a text, or a named place in a model without text.

A `Span` is one of two things, so that every node has one field for its origin whatever its source:

* *in text*: a half-open range of offsets in a `Source` (the program text of a user);
* *named*: free text such as ``node 'conv1' (Conv)``, for formats that have no lines.

`NO_SPAN` is neither, and is false. Spans are carried by nodes outside their equality: two nodes
that differ only in their span mean the same.
"""

from __future__ import annotations

import bisect
import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, eq=False)
class Source:
    """A text and the name under which errors speak of it; compared by identity.

    Attributes:
        name: A file name, or a description in angle brackets.
        text: The whole text.
    """

    name: str
    text: str

    @functools.cached_property
    def _starts(self) -> tuple[int, ...]:
        return (0, *(found.end() for found in re.finditer("\n", self.text)))

    def position(self, offset: int) -> tuple[int, int]:
        """Return the line and column of an offset, both from 1. Cost: O(log lines)."""
        line = bisect.bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1

    def line(self, number: int) -> str:
        """Return the text of a line (from 1) without its end."""
        start = self._starts[number - 1]
        end = self._starts[number] - 1 if number < len(self._starts) else len(self.text)
        return self.text[start:end].rstrip("\r")

    def span(self, start: int, end: int | None = None) -> Span:
        """Return the span of the offsets ``[start, end)``; one character if ``end`` is absent."""
        return Span(self, start, start + 1 if end is None else end)

    def at(self, line: int, column: int) -> Span:
        """Return the span of the character at a line and column, both from 1."""
        start = self._starts[min(line, len(self._starts)) - 1] + column - 1
        return self.span(min(start, max(0, len(self.text) - 1)))

    @property
    def end(self) -> Span:
        """The span of the last character."""
        return self.span(max(0, len(self.text) - 1), len(self.text))

    def __repr__(self) -> str:
        return f"Source({self.name!r}, {len(self.text)} characters)"


@dataclass(frozen=True, slots=True)
class Span:
    """A range of a source text, a named place, or (`NO_SPAN`) nothing.

    Attributes:
        source: The text, or None for a named place.
        start: First offset, in characters.
        end: Offset after the last character.
        name: The description of a place that has no text.
    """

    source: Source | None = None
    start: int = 0
    end: int = 0
    name: str = ""

    @staticmethod
    def named(name: str) -> Span:
        """Return the span of a place that has a name and no text."""
        return Span(name=name)

    def __bool__(self) -> bool:
        return self.source is not None or bool(self.name)

    @property
    def line(self) -> int:
        """Line of the first character, from 1; 0 where there is no text."""
        return self.source.position(self.start)[0] if self.source else 0

    @property
    def column(self) -> int:
        """Column of the first character, from 1; 0 where there is no text."""
        return self.source.position(self.start)[1] if self.source else 0

    @property
    def text(self) -> str:
        """The characters covered; empty where there is no text."""
        return self.source.text[self.start : self.end] if self.source else ""

    def to(self, other: Span) -> Span:
        """Return the smallest span that covers both; this one where they have no common text."""
        if self.source is None or self.source is not other.source:
            return self or other
        return Span(self.source, min(self.start, other.start), max(self.end, other.end))

    def __str__(self) -> str:
        if self.source is None:
            return self.name or "<unknown place>"
        line, column = self.source.position(self.start)
        return f"{self.source.name}:{line}:{column}"


NO_SPAN = Span()

MOST_COLUMNS = 200
"""Characters of a line that an excerpt shows: a file may be one line."""


def excerpt(marks: Sequence[tuple[Span, str]], *, primary: int = 0) -> str:
    """Show the lines that spans point at, with the pointed characters underlined.

    Args:
        marks: Spans and the words to put beside each; all in the text of the primary one. Marks
            in another text, or in none, are left out.
        primary: Index of the mark that is underlined with carets; the others get dashes.

    Returns:
        Lines joined by newlines, empty if nothing can be shown. Adjacent marked lines stay
        together; a jump is shown as ``...``. Of a span over several lines the first is shown.
    """
    source = marks[primary][0].source if marks else None
    if source is None:
        return ""
    rows: dict[int, list[tuple[int, int, str, str]]] = {}
    for index, (span, words) in enumerate(marks):
        if span.source is not source:
            continue
        line, column = source.position(span.start)
        width = min(span.end - span.start, len(source.line(line)) - column + 1)
        sign = "^" if index == primary else "-"
        rows.setdefault(line, []).append((column, max(width, 1), sign, words))
    gutter = len(str(max(rows)))
    out = [f"{'':{gutter}} |"]
    previous = None
    for number in sorted(rows):
        if previous is not None and number > previous + 1:
            out.append(f"{'':.<{gutter}}...")
        text, skipped = _window(source.line(number), min(rows[number])[0])
        out.append(f"{number:{gutter}} | {text.expandtabs(4)}".rstrip())
        for place, width, sign, words in sorted(rows[number]):
            column = place - skipped
            if column > len(text) + 1:
                continue
            before = len(text[: column - 1].expandtabs(4))
            covered = len(text[: column - 1 + width].expandtabs(4)) - before
            out.append(f"{'':{gutter}} | {'':{before}}{sign * max(covered, 1)} {words}".rstrip())
        previous = number
    return "\n".join(out)


def _window(text: str, column: int) -> tuple[str, int]:
    """Return the part of a long line around a column, and how many characters are left out."""
    first = 0 if len(text) <= MOST_COLUMNS else max(column - MOST_COLUMNS // 2, 0)
    return text[first : first + MOST_COLUMNS], first
