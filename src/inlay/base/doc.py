"""A document printer: say what belongs together, and let the width decide where lines break.

A document is text, a possible line break, an indentation, a sequence, or a *group*. A group is
printed on one line if it fits in what is left of the width, and otherwise all its own breaks
(not those of the groups inside it) become new lines.

    call = group(concat("conv2d(", nest(2, concat(softline(), separate(args))), softline(), ")"))
    print(render(call, width=80))

Every document knows its width on one line, and the width before its first possible break. So a
group is decided without looking into it, and rendering is linear in the size of the document.
Nothing recurses: a sequence of 100,000 parts, or as many nested groups, is printed with a stack.

Source: Wadler, "A prettier printer", 2003, in the strict form of Lindig, "Strictly pretty", 2000.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

# The width of what cannot be put on one line.
_ENDLESS = 1 << 60


class Doc:
    """A piece of a text that is not laid out yet.

    Attributes:
        flat: Characters on one line; beyond any width where a hard break forbids that.
        lead: Characters before the first break that can become a new line.
        breaks: Whether there is such a break.
    """

    __slots__ = ("breaks", "flat", "lead")

    flat: int
    lead: int
    breaks: bool


# Each kind sets the three measures itself: a large program is millions of documents, and a call to
# a common initializer would double the time to build them.


class _Text(Doc):
    __slots__ = ("content",)

    def __init__(self, content: str) -> None:
        self.flat = self.lead = len(content)
        self.breaks = False
        self.content = content


class _Line(Doc):
    __slots__ = ("otherwise",)

    def __init__(self, otherwise: str, *, hard: bool = False) -> None:
        self.flat = _ENDLESS if hard else len(otherwise)
        self.lead = 0
        self.breaks = True
        self.otherwise = otherwise


class _Nest(Doc):
    __slots__ = ("amount", "body")

    def __init__(self, amount: int, body: Doc) -> None:
        self.flat, self.lead, self.breaks = body.flat, body.lead, body.breaks
        self.amount = amount
        self.body = body


class _Group(Doc):
    __slots__ = ("body",)

    def __init__(self, body: Doc) -> None:
        self.flat, self.lead, self.breaks = body.flat, body.lead, body.breaks
        self.body = body


class _Concat(Doc):
    __slots__ = ("parts",)

    def __init__(self, parts: Sequence[Doc]) -> None:
        flat = lead = 0
        breaks = False
        for part in parts:
            flat += part.flat
            if not breaks:
                lead += part.lead
                breaks = part.breaks
        self.flat, self.lead, self.breaks = min(flat, _ENDLESS), lead, breaks
        self.parts = parts


_EMPTY = _Concat(())
_SPACE_LINE = _Line(" ")
_SOFT_LINE = _Line("")
_HARD_LINE = _Line("", hard=True)


def text(content: str) -> Doc:
    """Return text without line breaks in it."""
    assert "\n" not in content, "a line break in a document is a hardline()"
    return _Text(content)


def line() -> Doc:
    """Return a break that is a space when its group fits on one line."""
    return _SPACE_LINE


def softline() -> Doc:
    """Return a break that is nothing when its group fits on one line."""
    return _SOFT_LINE


def hardline() -> Doc:
    """Return a break that is always a new line, so that no group around it fits on one."""
    return _HARD_LINE


def concat(*parts: Doc | str) -> Doc:
    """Return documents one after another; empty ones vanish."""
    made: list[Doc] = []
    words = ""
    for part in parts:
        if isinstance(part, str):
            words += part
            continue
        if words:
            made.append(_Text(words))
            words = ""
        if part.flat or part.breaks:
            made.append(part)
    if words:
        made.append(_Text(words))
    if not made:
        return _EMPTY
    return made[0] if len(made) == 1 else _Concat(made)


def nest(amount: int, body: Doc | str) -> Doc:
    """Return a document whose new lines are indented by so many more spaces."""
    return _Nest(amount, concat(body))


def group(body: Doc | str) -> Doc:
    """Return a document that goes on one line if it fits."""
    made = concat(body)
    return _Group(made) if made.breaks else made


def separate(parts: Iterable[Doc | str], separator: Doc | str = ",", gap: Doc = _SPACE_LINE) -> Doc:
    """Return documents with a separator after each but the last, and a gap after the separator."""
    joined: list[Doc | str] = []
    for part in parts:
        if joined:
            joined += [separator, gap]
        joined.append(part)
    return concat(*joined)


def bracket(
    opening: str, parts: Iterable[Doc | str], closing: str, *, separator: str = ",", indent: int = 2
) -> Doc:
    """Return items between brackets: on one line, or one item to a line, indented."""
    inner = separate(parts, separator)
    if inner is _EMPTY:
        return text(opening + closing)
    return group(concat(opening, nest(indent, concat(_SOFT_LINE, inner)), _SOFT_LINE, closing))


def lines(parts: Iterable[Doc | str]) -> Doc:
    """Return documents each on a line of its own."""
    return separate(parts, "", _HARD_LINE)


def render(document: Doc | str, width: int = 100) -> str:
    """Lay a document out. Lines are at most ``width`` long where the breaks allow it.

    Cost: O(size of the document); the look at what follows a group stops within a line's width.
    """
    out: list[str] = []
    column = 0
    # What is still to print, next last: indentation, whether flat, document.
    todo: list[tuple[int, bool, Doc]] = [(0, False, concat(document))]
    while todo:
        indent, is_flat, doc = todo.pop()
        if isinstance(doc, _Text):
            out.append(doc.content)
            column += doc.flat
        elif isinstance(doc, _Concat):
            todo.extend((indent, is_flat, part) for part in reversed(doc.parts))
        elif isinstance(doc, _Group):
            fits = is_flat or column + doc.flat + _trailing(todo, width) <= width
            todo.append((indent, fits, doc.body))
        elif isinstance(doc, _Nest):
            todo.append((indent + doc.amount, is_flat, doc.body))
        elif is_flat:
            assert isinstance(doc, _Line), "the kinds of documents are closed"
            out.append(doc.otherwise)
            column += doc.flat
        else:
            while out and out[-1].isspace() and "\n" not in out[-1]:
                out.pop()
            out.append("\n" + " " * indent)
            column = indent
    return _strip_blank_ends("".join(out))


def _trailing(todo: Sequence[tuple[int, bool, Doc]], width: int) -> int:
    """Return how much text follows on the same line before the next place it can break."""
    total = 0
    for _, is_flat, doc in reversed(todo):
        total += doc.flat if is_flat else doc.lead
        if (doc.breaks and not is_flat) or total > width:
            break
    return total


def _strip_blank_ends(laid_out: str) -> str:
    if " \n" not in laid_out:
        return laid_out
    return "\n".join(row.rstrip(" ") for row in laid_out.split("\n"))
