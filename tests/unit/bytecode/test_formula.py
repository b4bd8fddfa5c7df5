"""Formulas: text, checks, values."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inlay.bytecode import formula
from inlay.bytecode.formula import OPERATORS, Arg


def steps(depth: int = 3) -> st.SearchStrategy[tuple]:
    leaf = st.one_of(st.integers(-10, 10).map(lambda v: (v,)), st.integers(0, 2).map(lambda i: (Arg(i),)))
    return st.recursive(
        leaf,
        lambda inner: st.one_of(
            st.tuples(inner, inner, st.sampled_from([n for n, o in OPERATORS.items() if o == 2])).map(
                lambda t: (*t[0], *t[1], t[2])
            ),
            st.tuples(inner, st.sampled_from(["neg", "not"])).map(lambda t: (*t[0], t[1])),
        ),
        max_leaves=8,
    )


@given(steps(), st.tuples(*[st.integers(-9, 9)] * 3))
def test_text_parses_to_the_same_meaning(source, values):
    names = ["n", "m", "k"]
    again = formula.parse(formula.text(source, names), names)
    assert formula.check(again, 3) is None
    assert formula.evaluate(again, values) == formula.evaluate(source, values)


def test_parse_reads_what_people_write():
    assert formula.parse("2*n + 1", ["n"]) == (2, Arg(0), "mul", 1, "add")
    assert formula.evaluate(formula.parse("ceildiv(n, 16)*16", ["n"]), [17]) == 32
    assert formula.evaluate(formula.parse("1 <= n <= 512", ["n"]), [513]) == 0
    assert formula.text(formula.parse("(n+1)*(m - 2)", ["n", "m"]), ["n", "m"]) == "(n + 1)*(m - 2)"


@pytest.mark.parametrize("bad", ["", "n +", "x", "n ** 2", "f(n)", "n / 2", "1.5", "True", "n[0]"])
def test_parse_refuses_the_rest(bad):
    with pytest.raises(ValueError, match=r"formula"):
        formula.parse(bad, ["n"])


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ((), "leaves 0"),
        ((1, 2), "leaves 2"),
        (("add",), "lacks operands"),
        ((Arg(1),), "argument 1 of 1"),
        ((1, "pow"), "unknown operator"),
        ((1 << 63,), "64 bits"),
        ((1,) * 40 + ("add",) * 39, "intermediate"),
        ((1, *(1, "add") * 600), "steps"),
    ],
)
def test_check_says_what_is_wrong(steps, message):
    assert message in (formula.check(steps, 1) or "")


@pytest.mark.parametrize("name", ["n", "?", "a.b", "in", "x y", "a`b", "`", "\ufb01", "2", "", "\n"])
def test_any_name_can_be_spelled(name):
    spelled = formula.quoted(name)
    assert formula.parse(f"2*{spelled} + m", [name, "m"]) == (2, formula.Arg(0), "mul", formula.Arg(1), "add")


def test_the_least_and_the_largest_of_more_than_two():
    steps = formula.parse("min(a, b, 3) + max(1, a, b, 2)", ["a", "b"])
    assert formula.evaluate(steps, [5, 7]) == 3 + 7


def test_undefined_values_are_none():
    assert formula.evaluate((1, 0, "floordiv"), []) is None
    assert formula.evaluate(((1 << 62), 2, "mul"), []) is None
