"""The scanner."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inlay.base.diagnostics import CompileError
from inlay.base.lexer import TokenKind, TokenStream, quote
from inlay.base.span import Source


def scan(text: str) -> TokenStream:
    return TokenStream(Source("t", text))


def texts(text: str) -> list[str]:
    stream = scan(text)
    found = []
    while not stream.is_end:
        found.append(stream.advance())
    return found


def test_tokens_of_a_line_of_program() -> None:
    text = "let %x.1: Tensor[n, 4] = @f(a.b.c, -1.5e-3) -> y; // done"
    assert texts(text) == ("let % x . 1 : Tensor [ n , 4 ] = @ f ( a.b.c , - 1.5e-3 ) -> y ;".split())


def test_long_signs_win_over_short_ones() -> None:
    assert texts("a=>b->c<=d>=e==f!=g&&h||i::j..k...l:=m") == (
        "a => b -> c <= d >= e == f != g && h || i :: j .. k ... l := m".split()
    )
    assert texts("List<List<a>>") == ["List", "<", "List", "<", "a", ">", ">"]


def test_a_number_after_a_dot_is_an_integer() -> None:
    assert texts("t.0.1") == ["t", ".", "0", ".", "1"]
    assert texts("0.1") == ["0.1"]


def test_values() -> None:
    stream = scan('12 -0x1F 1.5 -2 inf 0x1.8p1 "a\\n\\"b" x.y')
    assert stream.integer() == 12
    assert stream.integer() == -31
    assert stream.number() == 1.5
    assert stream.number() == -2
    assert stream.number() == math.inf
    assert stream.number() == 3.0
    assert stream.string() == 'a\n"b'
    assert stream.name() == "x.y"
    assert stream.is_end


@given(st.floats(allow_nan=False))
def test_a_float_is_read_as_it_is_printed(value: float) -> None:
    assert scan(repr(value)).number() == value
    assert scan(value.hex()).number() == value


@given(st.text())
def test_a_string_is_read_as_it_is_quoted(value: str) -> None:
    assert scan(quote(value)).string() == value


def test_spans_cover_what_was_read() -> None:
    stream = scan("let  x = f(y);")
    stream.expect("let")
    mark = stream.mark()
    stream.name()
    stream.expect("=")
    stream.name()
    assert stream.since(mark).text == "x = f"
    assert stream.span.text == "("


def test_marks_go_back() -> None:
    stream = scan("a b c")
    mark = stream.mark()
    assert [stream.advance(), stream.advance()] == ["a", "b"]
    stream.reset(mark)
    assert stream.at("a", "z")
    assert stream.ahead() == "b"
    assert stream.ahead(9) == ""
    assert stream.ahead_kind(9) is TokenKind.END


def test_sequences_allow_a_trailing_separator() -> None:
    for text in ("a, b)", "a, b,)"):
        stream = scan(text)
        assert stream.sequence(stream.name, ")") == ["a", "b"]
        assert stream.is_end
    stream = scan(")")
    assert stream.sequence(stream.name, ")") == []
    stream = scan("a b)")
    with pytest.raises(CompileError, match="found 'b', needed ',' or '\\)'"):
        stream.sequence(stream.name, ")")


@pytest.mark.parametrize(
    ("text", "read", "message"),
    [
        ("x", lambda s: s.expect("let"), "found 'x', needed 'let'"),
        ("", lambda s: s.expect("let"), "found the end of the text, needed 'let'"),
        ("1", lambda s: s.name("a variable"), "found '1', needed a variable"),
        ("-x", lambda s: s.integer(), "found '-', needed an integer"),
        ("x", lambda s: s.number(), "found 'x', needed a number"),
        ("1", lambda s: s.string(), "found '1', needed a string"),
    ],
)
def test_what_was_found_and_needed(text, read, message) -> None:
    with pytest.raises(CompileError) as caught:
        read(scan(text))
    assert caught.value.ids == ("parse.expected",)
    assert caught.value.diagnostics[0].message == message


def test_all_bad_characters_are_reported_at_once() -> None:
    with pytest.raises(CompileError) as caught:
        scan('a € b\n"open\nc £')
    assert caught.value.ids == (
        "parse.unexpected-character",
        "parse.unterminated-string",
        "parse.unexpected-character",
    )
    assert [d.span.line for d in caught.value.diagnostics] == [1, 2, 3]


def test_a_bad_escape_is_placed_inside_the_string() -> None:
    with pytest.raises(CompileError) as caught:
        scan('x "a\\q"').reset(1) or scan('"a\\q"').string()
    assert caught.value.ids == ("parse.bad-escape",)
    assert caught.value.diagnostics[0].span.start == 2
