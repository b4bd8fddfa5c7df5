"""Damages programs in text form: tokens dropped, doubled, exchanged and replaced; bytes; nesting."""

from __future__ import annotations

import re
from random import Random

_TOKEN = re.compile(r"\s+|//[^\n]*|[A-Za-z_][\w.]*|\d[\w.]*|\"[^\"\n]*\"|.", re.DOTALL)
_PIECES = (
    "0",
    "-1",
    "1e999",
    "nan",
    "9" * 30,
    "9" * 5000,
    "(",
    ")",
    "{",
    "}",
    "[",
    "]",
    "<",
    ">",
    ",",
    ";",
    "let",
    "fn",
    "if",
    "else",
    "match",
    "@",
    "%0",
    "int(n)",
    "shape(1, 2)",
    "f32[2](1, 2)",
    "Tensor[n, f32]",
    "some k.",
    "true",
    '"',
    "\\",
    "\0",
    "\u202e",
    "é",
    "/",
    "%",
    "*",
    "x",
    "n",
    "main",
    "{axis=-9}",
    "{axis=99}",
    "i64[0]()",
    "bool",
    "_",
    "'a",
    "data",
    "resources",
)


def damaged_text(text: str, other: str, random: Random) -> str:
    """Return a text with a few tokens changed, some of them by pieces of another text."""
    tokens = _TOKEN.findall(text)
    donor = _TOKEN.findall(other)
    for _ in range(random.randint(1, 4)):
        if not tokens:
            break
        at, length = random.randrange(len(tokens)), random.randint(1, 6)
        match random.randrange(7):
            case 0:
                del tokens[at : at + length]
            case 1:
                tokens[at:at] = tokens[at : at + length]
            case 2:
                to = random.randrange(len(tokens))
                tokens[at], tokens[to] = tokens[to], tokens[at]
            case 3:
                start = random.randrange(len(donor) or 1)
                tokens[at:at] = donor[start : start + length]
            case 4:
                tokens[at] = tokens[at] * random.choice((2, 10, 200))
            case _:
                tokens[at] = random.choice(_PIECES)
    return "".join(tokens)
