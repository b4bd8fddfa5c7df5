"""Sides of selects that choose by lane are loaded without their condition, where that reads nothing outside."""

from __future__ import annotations

import numpy as np
import pytest

from inlay.interp.loop import run
from inlay.loop.func import LoopFunction
from inlay.loop.parser import parse_function
from inlay.loop.printer import print_function
from inlay.lower.load_sides import load_sides

TEXT = """\
lowered func f(c: i64[2, 16], x: f16[2, 16], w: f16[2, 16]) -> (y: f16[2, 16]) {{
  for i in 0..2 {{
    for l in 0..16 {kind} {{
      {body}
    }}
  }}
}}
"""
CHOICE = "select({condition}, {then}, w[i, l])"


def changed(body: str, kind: str = "vector") -> str:
    """Return what is stored, and the lets before it, having compared results."""
    f = parse_function(TEXT.format(body=body, kind=kind))
    made = LoopFunction(f.name, f.params, f.n_reads, f.dims, load_sides(f.body), f.stage, f.workspaces)
    rng = np.random.default_rng(3)
    given = [rng.integers(0, 20, (2, 16)), *(rng.standard_normal((2, 2, 16)).astype(np.float16))]
    for a, b in zip(run(f, given, {}), run(made, given, {}), strict=True):
        np.testing.assert_array_equal(a.view(np.uint8), b.view(np.uint8))
    lines = [line.strip() for line in print_function(made).splitlines()]
    return "; ".join(line for line in lines if line.startswith(("let", "y[")))


def choice(condition: str, then: str = "x[i, l]") -> str:
    return f"y[i, l] = {CHOICE.format(condition=condition, then=then)}"


def test_both_sides_are_loaded_once() -> None:
    assert changed(choice("c[i, l] < 8:i64")) == (
        "let side = x[i, l]; let side_1 = w[i, l]; y[i, l] = select(c[i, l] < 8:i64, side, side_1)"
    )


def test_parts_of_an_expression() -> None:
    made = changed(choice("[l] < [5]", "x[i, l] * select(c[i, l] < 3:i64, x[i, 0], 2.0:f16)"))
    assert made.count("let") == 4
    assert made.endswith("select([l] < [5], side * select(side_1 < 3:i64, side_2, 2.0:f16), side_3)")


def test_an_end_that_a_condition_says_is_one_of_the_loop() -> None:
    inside = choice("c[i, l] < 8:i64", "x[i, l + 3]")
    assert "x[i, l + 3]" in changed(f"y[i, l] = w[i, l] if [l] < [14] {{ {inside} }}")
    assert changed(f"y[i, l] = w[i, l] if [l] < [13] {{ {inside} }}").count("let") == 2
    assert changed(f"if [l] < [13] {{ {inside} }} else {{ y[i, l] = x[i, l] }}").count("let") == 2


@pytest.mark.parametrize(
    ("body", "kept"),
    [
        (choice("c[i, 0] < 8:i64"), "x[i, l], w[i, l]"),
        (choice("[i] < [1]"), "x[i, l], w[i, l]"),
        (choice("[l] < [15]", "x[i, l + 1]"), "x[i, l + 1], side"),
        (choice("[0] < [l]", "x[i, l - 1]"), "x[i, l - 1], side"),
        (choice("[i] < [1]", "select([l] < [3], x[i, l], x[i, 3])"), "x[i, l], x[i, 3]), w[i, l]"),
        ("let at = c[i, l] " + choice("[at] < [16]", "x[i, at]"), "x[i, at], side"),
    ],
    ids=["one value", "one side for all", "behind", "before", "under one side", "computed place"],
)
def test_what_is_outside_or_not_chosen_by_lane_stays(body: str, kept: str) -> None:
    assert kept in changed(body)


def test_loops_without_lanes_stay_as_they_are() -> None:
    f = parse_function(TEXT.format(body=choice("c[i, l] < 8:i64"), kind=""))
    assert load_sides(f.body) is f.body
