"""Quotients and remainders that belong together are one integer again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from inlay.arith.divisions import rejoined
from inlay.arith.expr import Int, evaluate, fresh, lit, to_int

ROW, COL = fresh("i"), fresh("j")


@given(
    st.integers(1, 9),
    st.integers(-20, 20),
    st.integers(-20, 20),
    st.integers(-3, 3),
    st.integers(-40, 40),
    st.integers(-40, 40),
)
def test_a_distance_over_two_axes_is_that_over_one(d: int, a: int, b: int, c: int, i: int, j: int) -> None:
    x: Int = to_int(ROW) * a + to_int(COL) * b
    e = ((x // d) * d + x % d) * c + (x // (d + 1)) * d + to_int(COL)
    assert evaluate(rejoined(e), {ROW: i, COL: j}) == evaluate(e, {ROW: i, COL: j})
    assert rejoined((x // d + 5) * d + x % d) == x + 5 * d


def test_what_does_not_belong_together_stays() -> None:
    i, j = to_int(ROW), to_int(COL)
    for e in (
        (i // 4) * 4 + j % 4,
        (i // 4) * 8 + i % 4,
        (i // 8) * 4 + i % 4,
        (i // 4) * j * 4 + i % 4,
        lit(3),
    ):
        assert rejoined(e) == e
    assert rejoined((i // 4) * j * 4 + (i % 4) * j) == i * j
