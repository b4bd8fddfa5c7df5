"""The scanner that all text formats share.

One regular expression splits the text into names (words joined by dots, as in ``memory.alloc``),
integers, floats, strings (with the escapes of JSON), and punctuation. Comments run from ``//`` to
the end of the line. Newlines mean nothing. What a sign or a sigil means is the parser's matter:
``%x`` is the two tokens ``%`` and ``x``.

A `TokenStream` holds the tokens as parallel lists and a position, because a text of 100,000 lines
has a million tokens and an object for each would cost more than parsing them. A parser reads it
with `at`, `accept` and `expect`; alternatives that need more look ahead use `mark` and `reset`.

Projections such as ``x.0.1`` are read as intended: a number right after a dot is an integer.
"""

from __future__ import annotations

import enum
import json
import math
import re
from collections.abc import Callable
from typing import TypeVar

from inlay.base.diagnostics import Collector, InlayError, error
from inlay.base.span import Source, Span

T = TypeVar("T")


class TokenKind(enum.Enum):
    """What a token is."""

    NAME = "a name"
    INTEGER = "an integer"
    FLOAT = "a float"
    STRING = "a string"
    PUNCTUATION = "punctuation"
    END = "the end of the text"


# The order of the alternatives decides: floats before integers, long punctuation before short.
_TOKEN = re.compile(
    r"""
    (?P<skip>   [ \t\r\n]+ | //[^\n]* )
  | (?P<name>   [^\W\d]\w* (?: \.[^\W\d]\w* )* )
  | (?P<float>  (?<!\.) (?: 0[xX][0-9a-fA-F]+ (?: \.[0-9a-fA-F]* )? [pP][+-]?\d+
                          | \d+ \.\d+ (?: [eE][+-]?\d+ )?
                          | \d+ [eE][+-]?\d+ ) )
  | (?P<int>    0[xX][0-9a-fA-F]+ | \d+ )
  | (?P<string> " (?: [^"\\\n] | \\[^\n] )* " )
  | (?P<punct>  -> | => | <= | >= | == | != | && | \|\| | :: | := | \.\.\. | \.\.
                 | [()\[\]{}<>,;:.=+\-*/%@\#$&|^~!?'`\\] )
  | (?P<bad>    . )
    """,
    re.VERBOSE,
)
_KINDS = {
    "name": TokenKind.NAME,
    "float": TokenKind.FLOAT,
    "int": TokenKind.INTEGER,
    "string": TokenKind.STRING,
    "punct": TokenKind.PUNCTUATION,
}


def quote(text: str) -> str:
    """Return a string literal of the text formats."""
    made = json.dumps(text, ensure_ascii=False)
    if made.isprintable():
        return made
    # What would command a terminal is an escape too; beyond 16 bits JSON spells it as two.
    return "".join(
        c if c.isprintable() else f"\\u{ord(c):04x}" if ord(c) < 1 << 16 else json.dumps(c)[1:-1]
        for c in made
    )


class TokenStream:
    """The tokens of a source and a position among them.

    Attributes:
        source: The text.
        kind: Kind of the token at the position.
        text: Its characters; the quotes of a string included, empty at the end.

    Raises:
        CompileError: On construction, with every ``parse.unexpected-character`` and
            ``parse.unterminated-string`` of the text.
    """

    __slots__ = ("_index", "_kinds", "_starts", "_texts", "kind", "source", "text")

    def __init__(self, source: Source) -> None:
        self.source = source
        self._kinds: list[TokenKind] = []
        self._texts: list[str] = []
        self._starts: list[int] = []
        self._scan()
        self._index = 0
        self.kind = self._kinds[0]
        self.text = self._texts[0]

    def _scan(self) -> None:
        findings = Collector()
        kinds, texts, starts = self._kinds, self._texts, self._starts
        for found in _TOKEN.finditer(self.source.text):
            group = found.lastgroup
            if group == "skip":
                continue
            if group == "bad" or group is None:
                self._reject(found.start(), findings)
                continue
            kinds.append(_KINDS[group])
            texts.append(found.group())
            starts.append(found.start())
        findings.raise_if_fatal()
        kinds.append(TokenKind.END)
        texts.append("")
        starts.append(len(self.source.text))

    def _reject(self, start: int, findings: Collector) -> None:
        character = self.source.text[start]
        if character == '"':
            findings.error(
                "parse.unterminated-string",
                "found a string that does not end on its line",
                span=self.source.span(start),
                hint="close it with a quote",
            )
        else:
            findings.error(
                "parse.unexpected-character",
                f"found {character!r}, which starts no token",
                span=self.source.span(start),
            )

    # ---------------------------------------------------------------- looking

    @property
    def span(self) -> Span:
        """The place of the current token."""
        start = self._starts[self._index]
        return Span(self.source, start, start + len(self.text))

    @property
    def is_end(self) -> bool:
        """Whether all tokens were read."""
        return self.kind is TokenKind.END

    def at(self, *texts: str) -> bool:
        """Whether the current token is one of these words or signs."""
        return self.text in texts

    def ahead(self, distance: int = 1) -> str:
        """Return the text of a later token, empty beyond the end."""
        index = self._index + distance
        return self._texts[index] if index < len(self._texts) else ""

    def ahead_kind(self, distance: int = 1) -> TokenKind:
        """Return the kind of a later token."""
        return self._kinds[min(self._index + distance, len(self._kinds) - 1)]

    def mark(self) -> int:
        """Return the position, for `reset` and `since`."""
        return self._index

    def since(self, mark: int) -> Span:
        """Return the span from a marked token through the last one read."""
        last = max(self._index - 1, mark)
        end = self._starts[last] + len(self._texts[last])
        return Span(self.source, self._starts[mark], end)

    # ---------------------------------------------------------------- reading

    def reset(self, mark: int) -> None:
        """Go back to a marked position."""
        self._index = mark
        self.kind = self._kinds[mark]
        self.text = self._texts[mark]

    def advance(self) -> str:
        """Go past the current token and return its text; at the end, stay there."""
        text = self.text
        if self.kind is not TokenKind.END:
            self._index += 1
            self.kind = self._kinds[self._index]
            self.text = self._texts[self._index]
        return text

    def accept(self, text: str) -> bool:
        """Go past a word or sign if it is the current token, and say whether it was."""
        if self.text != text or self.kind is TokenKind.END:
            return False
        self.advance()
        return True

    def expect(self, text: str) -> None:
        """Go past a word or sign that must be here.

        Raises:
            CompileError: ``parse.expected``.
        """
        if not self.accept(text):
            raise self.failure(f"'{text}'")

    def name(self, what: str = "a name") -> str:
        """Read a name.

        Raises:
            CompileError: ``parse.expected``.
        """
        return self._read(TokenKind.NAME, what)

    def integer(self, what: str = "an integer") -> int:
        """Read an integer with an optional minus sign.

        Raises:
            CompileError: ``parse.expected``.
        """
        start = self.mark()
        negative = self.accept("-")
        if self.kind is not TokenKind.INTEGER:
            self.reset(start)
            raise self.failure(what)
        value = parse_integer(self.advance())
        return -value if negative else value

    def number(self, what: str = "a number") -> int | float:
        """Read an integer or a float (``inf`` and ``nan`` too) with an optional minus sign.

        Raises:
            CompileError: ``parse.expected``.
        """
        start = self.mark()
        negative = self.accept("-")
        value: int | float
        if self.kind is TokenKind.INTEGER:
            value = parse_integer(self.advance())
        elif self.kind is TokenKind.FLOAT or self.text in ("inf", "nan"):
            value = parse_float(self.advance())
        else:
            self.reset(start)
            raise self.failure(what)
        return -value if negative else value

    def string(self, what: str = "a string") -> str:
        """Read a string and return what it stands for.

        Raises:
            CompileError: ``parse.expected``, ``parse.bad-escape``.
        """
        span = self.span
        text = self._read(TokenKind.STRING, what)
        try:
            return json.loads(text, strict=False)
        except json.JSONDecodeError as failure:
            raise error(
                "parse.bad-escape",
                f"found {text}, whose escapes are not those of JSON",
                span=Span(span.source, span.start + failure.pos, span.start + failure.pos + 1),
            ) from None

    def outside_braces(self, words: frozenset[str]) -> list[int]:
        """Return the marks of these words where no brace around them is open, from here on."""
        found: list[int] = []
        depth = 0
        texts = self._texts
        for index in range(self._index, len(texts)):
            text = texts[index]
            if text == "{":
                depth += 1
            elif text == "}":
                depth -= 1
            elif depth == 0 and text in words:
                found.append(index)
        return found

    def skip_braces(self) -> None:
        """Go past an opening brace and all up to and past the one that closes it.

        Raises:
            CompileError: ``parse.expected`` where either is missing.
        """
        if self.text != "{":
            raise self.failure("'{'")
        depth = 0
        texts = self._texts
        for index in range(self._index, len(texts)):
            text = texts[index]
            if text == "{":
                depth += 1
            elif text == "}":
                depth -= 1
                if depth == 0:
                    self.reset(index + 1)
                    return
        self.reset(len(texts) - 1)
        raise self.failure("'}'")

    def sequence(self, item: Callable[[], T], close: str, *, separator: str = ",") -> list[T]:
        """Read items up to and past a closing sign; a separator after the last is allowed.

        Requires the opening sign to be read already.
        """
        items: list[T] = []
        while not self.accept(close):
            items.append(item())
            if not self.accept(separator):
                self.expect_either(separator, close)
                break
        return items

    def joined(self, close: str) -> str:
        """Return the tokens from here up to a sign, blanks between them; empty where it does not come."""
        try:
            end = self._texts.index(close, self._index)
        except ValueError:
            return ""
        return " ".join(self._texts[self._index : end])

    def expect_either(self, separator: str, close: str) -> None:
        """Go past a closing sign, or fail saying that a separator would have done too."""
        if not self.accept(close):
            raise self.failure(f"'{separator}' or '{close}'")

    def _read(self, kind: TokenKind, what: str) -> str:
        if self.kind is not kind:
            raise self.failure(what)
        return self.advance()

    def failure(self, expected: str, *, hint: str = "") -> InlayError:
        """Return the error that something else was needed at the current token."""
        found = self.kind.value if self.kind is TokenKind.END else f"'{self.text}'"
        return error("parse.expected", f"found {found}, needed {expected}", span=self.span, hint=hint)


def parse_integer(text: str) -> int:
    """Return the value of an integer token: decimal, or hexadecimal with ``0x``.

    Raises:
        CompileError: ``parse.bad-number`` for more digits than anything has.
    """
    try:
        return int(text, 16) if text[:2] in ("0x", "0X") else int(text)
    except ValueError:
        raise error("parse.bad-number", f"found an integer of {len(text)} digits") from None


def parse_float(text: str) -> float:
    """Return the value of a float token: decimal, hexadecimal with ``0x`` and ``p``, or a name.

    Raises:
        CompileError: ``parse.bad-number`` for what leaves the range of a double.
    """
    try:
        value = float.fromhex(text) if text[:2] in ("0x", "0X") else float(text)
    except (ValueError, OverflowError):
        value = None
    if value is None or (math.isinf(value) and text != "inf"):
        shown = text if len(text) < 60 else f"{text[:60]}..."
        raise error("parse.bad-number", f"found {shown}, which no f64 holds")
    return value
