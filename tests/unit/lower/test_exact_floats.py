"""Small integers are added up in floats, and rounded before they are clamped, only where nothing changes."""

from __future__ import annotations

import numpy as np
import pytest

from inlay.interp.loop import run
from inlay.loop.func import LoopFunction
from inlay.loop.parser import parse_function
from inlay.loop.printer import print_function
from inlay.lower.exact_floats import exact_floats
from inlay.machine.target import Target

SUM = """\
lowered func f(x: u8[512], q: i32[512]) -> (y: f32[512], z: u8[512]) {{
  for i in 0..512 {{
    let a = f32(q[i]) * 0.5:f32
    let b = select(a < {high}:f32, a, {high}:f32)
    let s = f32(((i32(u8(i32(round_even(select({low}:f32 < b, b, {low}:f32))) + {zero}:i32)) - {zero}:i32) * {m}:i32) + ((i32(x[i]) + -7:i32) * {n}:i32)) * {scale}:f32
    let t = select(s < 250.0:f32, s, 250.0:f32)
    y[i] = s
    z[i] = u8(i32(round_even(select(3.0:f32 < t, t, 3.0:f32))))
  }}
}}
"""
USUAL = {"low": -131.0, "high": 124.0, "zero": 131, "m": 23870, "n": -26481, "scale": 2.0**-14}


def changed(target: Target | None = None, **sizes: float) -> tuple[LoopFunction, LoopFunction]:
    text = SUM.format(**{**USUAL, **sizes})
    f = parse_function(text)
    made = exact_floats(f.body, target or Target())
    return f, LoopFunction(f.name, f.params, f.n_reads, f.dims, made, f.stage, f.workspaces)


def inputs() -> list[np.ndarray]:
    rng = np.random.default_rng(8)
    q = rng.integers(-600, 600, 512, np.int32)
    q[:4] = [2**31 - 1, -(2**31), 249, -263]
    return [rng.integers(0, 256, 512, np.uint8), q]


def same(f: LoopFunction, made: LoopFunction) -> None:
    for a, b in zip(run(f, inputs(), {}), run(made, inputs(), {}), strict=True):
        np.testing.assert_array_equal(a.view(np.uint8), b.view(np.uint8))


@pytest.mark.parametrize("has_fma", [False, True])
def test_sums_are_floats_and_clamps_integers(*, has_fma: bool) -> None:
    f, made = changed(Target(fma=has_fma))
    text = print_function(made)
    assert "23870" not in text
    assert "1.4569091796875:f32" in text
    assert ("fma(" in text) is has_fma
    assert "min(max(i32(round_even(s)), 3:i32), 250:i32)" in text
    assert "let t" not in text
    same(f, made)


@pytest.mark.parametrize(
    "sizes",
    [
        {"m": 190000},  # beyond what floats hold
        {"n": 70000},
        {"scale": 0.3},  # products with it are rounded
        {"scale": -0.5},  # a zero would lose its sign
        {"m": 1, "n": 1},  # nothing to gain
    ],
)
def test_what_might_be_rounded_stays(sizes: dict[str, float]) -> None:
    f, made = changed(**sizes)
    assert "let s = f32(((" in print_function(made)
    same(f, made)


def test_bytes_that_wrap_are_not_taken_for_what_they_were() -> None:
    f, made = changed(high=125.0)
    assert "u8(i32(round_even(" in print_function(made)
    same(f, made)


def test_floats_that_may_be_far_are_clamped_first() -> None:
    text = """\
lowered func f(x: f32[8]) -> (y: i8[8]) {
  for i in 0..8 {
    let t = select(x[i] < 9.0:f32, x[i], 9.0:f32)
    y[i] = i8(i32(round_even(select(-9.0:f32 < t, t, -9.0:f32))))
  }
}
"""
    f = parse_function(text)
    assert exact_floats(f.body, Target()) is f.body


@pytest.mark.parametrize(("most", "stays"), [(255, False), (256, True)])
def test_bytes_on_the_way_to_floats_are_left_out_where_they_fit(most: int, *, stays: bool) -> None:
    text = f"""\
lowered func f(q: i32[512]) -> (y: f32[512]) {{
  for i in 0..512 {{ y[i] = f32(u8(min(max(q[i], 0:i32), {most}:i32))) }}
}}
"""
    f = parse_function(text)
    made = LoopFunction(f.name, f.params, f.n_reads, f.dims, exact_floats(f.body, Target()), f.stage)
    assert ("u8(" in print_function(made)) is stays
    for a, b in zip(run(f, inputs()[1:], {}), run(made, inputs()[1:], {}), strict=True):
        np.testing.assert_array_equal(a, b)
