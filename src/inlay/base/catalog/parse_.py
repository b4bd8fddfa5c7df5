"""Errors of the text formats: tensor IR, loop IR, bytecode listings."""

from __future__ import annotations

from inlay.base.catalog.entry import Entry

ENTRIES = (
    Entry(
        id="parse.unexpected-character",
        title="a character that no token starts with",
        explanation=(
            "The text holds a character that the language does not use outside strings and comments."
        ),
        remedy="Remove the character, or put it inside a string.",
    ),
    Entry(
        id="parse.unterminated-string",
        title="a string without its closing quote",
        explanation="A string literal ends on the line it begins; the line ended first.",
        remedy="Close the string, and write a line break inside it as \\n.",
    ),
    Entry(
        id="parse.expected",
        title="another token was needed here",
        explanation=(
            "The text so far is right, and what follows is not what the grammar "
            "allows at this place. The message names both."
        ),
        remedy="Compare with the grammar in docs/language.",
    ),
    Entry(
        id="parse.bad-escape",
        title="a string with an escape that does not exist",
        explanation="Strings use the escapes of JSON and no others.",
        remedy="Write a backslash as two, or use one of the escapes of JSON.",
    ),
    Entry(
        id="parse.nesting",
        title="brackets that nest too deeply",
        explanation="The text has more brackets inside one another than the parser follows.",
        remedy="Name inner values with let.",
    ),
    Entry(
        id="parse.bad-attribute",
        title="an attribute that the operator does not have, or a value it cannot take",
        explanation="The attributes of an operator are the fields of its record, each with a type.",
        remedy="Use one of the names and kinds of value in the message.",
    ),
    Entry(
        id="parse.bad-number",
        title="a number that is none of the values needed",
        explanation=(
            "An element of a constant is out of the range of its element type, a constant has "
            "another number of elements than its shape, or a dim is divided by zero."
        ),
        remedy="Write a value of the element type, and as many as the shape says.",
    ),
)
