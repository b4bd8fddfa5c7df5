"""Products in sums, and sums in their factors, with one rounding."""

from __future__ import annotations

import pytest

from inlay.loop.parser import parse_function
from inlay.loop.printer import print_function
from inlay.schedule.primitives.use_fma import use_fma
from inlay.schedule.state import Illegal, Schedule
from tests.unit.schedule.programs import hold_law


def program(value: str) -> Schedule:
    text = f"""\
schedulable func f(x: f32[n, 3], z: f32[n]) -> (y: f32[n]) over (n) {{
  for i in 0..n {{ block b(v: spatial n = i) {{ y[v] = {value} }} }}
}}
"""
    return Schedule(parse_function(text))


@pytest.mark.parametrize(
    ("value", "fused"),
    [
        ("z[v] + (x[v, 0] * x[v, 1])", "fma(x[v, 0], x[v, 1], z[v])"),
        (
            "z[v] + (((x[v, 0] * z[v]) + (x[v, 1] * z[v])) * x[v, 2])",
            "fma(fma(x[v, 1], z[v], x[v, 0] * z[v]), x[v, 2], z[v])",
        ),
        (
            "((x[v, 0] * z[v]) + x[v, 1]) + (x[v, 2] * z[v])",
            "fma(x[v, 2], z[v], fma(x[v, 0], z[v], x[v, 1]))",
        ),
        ("(z[v] * x[v, 0]) + ((x[v, 1] - z[v]) * x[v, 2])", "fma(x[v, 1] - z[v], x[v, 2], z[v] * x[v, 0])"),
    ],
)
def test_sums_of_products_are_fused(value: str, fused: str) -> None:
    s = program(value)
    before = s.function
    use_fma(s, "b")
    assert fused in print_function(s.function)
    hold_law(before, s, (0,), (5,))


@pytest.mark.parametrize("value", ["x[v, 0] + z[v]", "(x[v, 0] + z[v]) * x[v, 1]"])
def test_other_values_are_refused(value: str) -> None:
    with pytest.raises(Illegal):
        use_fma(program(value), "b")
