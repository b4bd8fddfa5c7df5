"""The document printer."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from inlay.base import doc
from inlay.base.doc import Doc, bracket, concat, group, hardline, line, nest, render, softline


def test_a_group_is_flat_where_it_fits_and_broken_where_not() -> None:
    call = concat("f", bracket("(", ["alpha", "beta", "gamma"], ")"))
    assert render(call, 30) == "f(alpha, beta, gamma)"
    assert render(call, 20) == "f(\n  alpha,\n  beta,\n  gamma\n)"


def test_the_inner_group_stays_flat_when_the_outer_breaks() -> None:
    inner = bracket("[", ["1", "2"], "]")
    outer = bracket("(", ["alpha", inner, "gamma"], ")")
    assert render(outer, 12) == "(\n  alpha,\n  [1, 2],\n  gamma\n)"


def test_what_follows_a_group_on_its_line_counts() -> None:
    made = concat(bracket("(", ["aaaa", "bbbb"], ")"), " + long")
    assert render(made, 20) == "(aaaa, bbbb) + long"
    assert render(made, 18) == "(\n  aaaa,\n  bbbb\n) + long"


def test_a_group_that_may_break_counts_only_up_to_its_break() -> None:
    made = concat(bracket("(", ["aaaa", "bbbb"], ")"), bracket("(", ["cccc", "dddd"], ")"))
    assert render(made, 14) == "(aaaa, bbbb)(\n  cccc,\n  dddd\n)"


def test_a_hard_line_breaks_every_group_around_it() -> None:
    made = group(concat("a", line(), group(concat("b", hardline(), "c"))))
    assert render(made) == "a\nb\nc"


def test_empty_documents_vanish() -> None:
    assert render(concat("", concat(), "x", doc.text(""))) == "x"
    assert render(bracket("(", [], ")")) == "()"
    assert render("") == ""


def test_no_line_ends_in_a_space() -> None:
    made = nest(4, concat("a", hardline(), hardline(), "b ", hardline(), "c"))
    assert render(made) == "a\n\n    b\n    c"


def test_long_and_deep_documents_need_no_recursion() -> None:
    rows = render(doc.lines(f"let x{i};" for i in range(20_000))).split("\n")
    assert rows[19_999] == "let x19999;"
    deep: Doc = doc.text("x")
    for _ in range(20_000):
        deep = group(concat("(", nest(1, concat(softline(), deep)), ")"))
    assert render(deep, 10).count("(") == 20_000


words = st.text(alphabet="abc", min_size=1, max_size=6)
trees = st.recursive(words, lambda inner: st.lists(inner, max_size=4), max_leaves=30)


def to_doc(tree: str | list) -> Doc:
    if isinstance(tree, str):
        return doc.text(tree)
    return bracket("(", [to_doc(x) for x in tree], ")")


@given(trees, st.integers(1, 60))
def test_the_width_changes_only_white_space(tree: str | list, width: int) -> None:
    made = to_doc(tree)
    laid_out = render(made, width)
    flat = render(made, 10_000)
    assert "\n" not in flat
    assert "".join(laid_out.split()) == "".join(flat.split())


@given(trees, st.integers(10, 60))
def test_a_line_too_long_has_no_group_that_could_break(tree: str | list, width: int) -> None:
    for row in render(to_doc(tree), width).split("\n"):
        # A broken bracket stands alone on its line, so a long line is one word or one bracket
        # that is flat because it fits.
        assert len(row) <= width or not any(c in row.strip("( ),") for c in " (")
