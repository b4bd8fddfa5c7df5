"""Spans: positions, covering, excerpts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from inlay.base.span import NO_SPAN, Source, Span, excerpt

TEXT = "let x = 1;\n\tlet y = f(x);\n\nend"


def test_positions_count_from_one() -> None:
    source = Source("a.inl", TEXT)
    assert source.position(0) == (1, 1)
    assert source.position(11) == (2, 1)
    assert source.position(len(TEXT)) == (4, 4)
    assert [source.line(n) for n in range(1, 5)] == TEXT.split("\n")


@given(st.text(alphabet="ab\n\t"), st.data())
def test_a_position_leads_back_to_its_offset(text: str, data: st.DataObject) -> None:
    source = Source("t", text)
    offset = data.draw(st.integers(0, len(text)))
    line, column = source.position(offset)
    before = sum(len(x) + 1 for x in text.split("\n")[: line - 1])
    assert before + column - 1 == offset


def test_a_span_is_in_text_or_named_or_nothing() -> None:
    source = Source("a.inl", TEXT)
    assert str(source.span(12, 15)) == "a.inl:2:2"
    assert source.span(12, 15).text == "let"
    named = Span.named("node 'conv1' (Conv)")
    assert str(named) == "node 'conv1' (Conv)"
    assert named.line == 0
    assert named
    assert not NO_SPAN
    assert str(NO_SPAN) == "<unknown place>"


def test_joining_spans_of_two_texts_keeps_the_first() -> None:
    source, other = Source("a", TEXT), Source("b", TEXT)
    assert source.span(4, 5).to(source.span(8, 9)) == source.span(4, 9)
    assert source.span(4, 5).to(other.span(8, 9)) == source.span(4, 5)
    assert NO_SPAN.to(Span.named("n")) == Span.named("n")


def test_an_excerpt_underlines_below_the_characters() -> None:
    source = Source("a", TEXT)
    marks = [(source.span(20, 21), ""), (source.span(4, 5), "defined here")]
    assert excerpt(marks).split("\n") == [
        "  |",
        "1 | let x = 1;",
        "  |     - defined here",
        "2 |     let y = f(x);",
        "  |             ^",
    ]


def test_an_excerpt_marks_a_jump_and_cuts_at_the_line_end() -> None:
    source = Source("a", TEXT)
    shown = excerpt([(source.span(27, 30), "last"), (source.span(0, 40), "all")])
    assert shown.split("\n") == [
        "  |",
        "1 | let x = 1;",
        "  | ---------- all",
        "....",
        "4 | end",
        "  | ^^^ last",
    ]
    assert excerpt([(Span.named("n"), "")]) == ""
    assert excerpt([]) == ""
