"""Nests of loops become matrix instructions: where that is legal."""

from __future__ import annotations

import pytest

from inlay.loop.parser import parse_function
from inlay.loop.printer import print_function
from inlay.loop.verify import verify
from inlay.schedule.primitives.use_matrix_unit import use_matrix_unit
from inlay.schedule.state import Illegal, Schedule
from tests.unit.schedule.programs import hold_law


def program(**changed: str) -> str:
    """A product of 3 rows, 5 columns and 2 steps of 4 terms, with some parts changed."""
    parts = {
        "head": "x: u8[3, 8], w: i8[2, 5, 4]",
        "scope": "matrix",
        "zero": "c[u, v] = 0:i32",
        "left": "x[u, 4*r + j]",
        "right": "w[r, v, j]",
        "width": "4",
        "sum": "",
        "to": "y[u, v]",
        "rows": "3",
        "where": "",
        **changed,
    }
    parts["sum"] = parts["sum"] or "c[u, v] = dot(j < {width}, c[u, v], {left}, {right})".format(**parts)
    return """
    schedulable func f({head}) -> (y: i32[{rows}, 5]) {{
      alloc c: i32[{rows}, 5] @{scope}
      for i in 0..{rows} {{ for l in 0..5 {{ block zero(u: spatial {rows} = i, v: spatial 5 = l) {{ {zero} }} }} }}
      for i1 in 0..{rows} {{ for l1 in 0..5 {{ for k in 0..2 {{
        block sum(u: spatial {rows} = i1, v: spatial 5 = l1, r: reduce 2 = k) {where} {{ {sum} }} }} }} }}
      for i2 in 0..{rows} {{ for l2 in 0..5 {{
        block copy(u: spatial {rows} = i2, v: spatial 5 = l2) {{ {to} = c[u, v] }} }} }} }}""".format(**parts)


def marked(text: str) -> Schedule:
    s = Schedule(parse_function(text))
    for loop in ("i", "i1", "i2"):
        use_matrix_unit(s, loop, "u8i8")
    return s


def test_all_three_nests_are_marked_and_mean_the_same() -> None:
    s = marked(program())
    assert print_function(s.function).count("matrix {") == 7
    assert not verify(s.function)
    hold_law(parse_function(program()), s)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"head": "x: i8[3, 8], w: i8[2, 5, 4]"}, "found 4 terms of i8 and i8"),
        ({"width": "2", "left": "x[u, 2*r + j]", "head": "x: u8[3, 8], w: i8[2, 5, 2]"}, "found 2 terms"),
        ({"left": "x[u, 3*r + j]"}, "terms of a row of x"),
        ({"head": "x: u8[8, 8], w: i8[2, 5, 4]", "left": "x[u + v, 4*r + j]"}, "terms of a row of x"),
        (
            {"head": "x: u8[3, 8], w: i8[5, 2, 4]", "right": "w[v, r, j]"},
            "groups of neighboring columns of w",
        ),
        ({"scope": "stack"}, "needed the scope matrix"),
        ({"zero": "c[u, v] = 1:i32"}, "neither 0 nor sums"),
        ({"sum": "c[u, v] = c[u, v] + i32(x[u, r])"}, "no dot product"),
        ({"sum": "c[u, v] = dot(j < 4, y[u, v], x[u, 4*r + j], w[r, v, j])"}, "not added to where it is"),
        ({"head": "x: u8[17, 8], w: i8[2, 5, 4]", "rows": "17"}, "found 17 rows, needed at most 16"),
        ({"where": "where [i1 + l1] < 3:i64"}, "some iterations"),
    ],
)
def test_what_is_no_instruction_is_refused(changed: dict[str, str], reason: str) -> None:
    with pytest.raises(Illegal, match=reason):
        marked(program(**changed))


def test_what_is_no_nest_is_refused() -> None:
    s = Schedule(parse_function(program()))
    with pytest.raises(Illegal, match="needed one of"):
        use_matrix_unit(s, "i1", "f64")
    with pytest.raises(Illegal, match="two or three loops"):
        use_matrix_unit(s, "k", "u8i8")
    use_matrix_unit(s, "i1", "u8i8")
    with pytest.raises(Illegal, match="matrix loop"):
        use_matrix_unit(s, "i1", "u8i8")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("for i in 0..n matrix { y[i] = 0:i32 }", "extent n"),
        ("for i in 0..4 matrix { y[i] = 0:i32 y[i] = 1:i32 }", "more than one store"),
    ],
)
def test_matrix_loops_are_of_numbers_around_one_store(text: str, message: str) -> None:
    f = parse_function(f"lowered func f(x: i32[n]) -> (y: i32[n]) over (n) {{ {text} }}")
    assert message in " ".join(d.message for d in verify(f))
