"""Sums of products of narrow integers become dots: where that is legal, and what moves with them."""

from __future__ import annotations

import pytest

from inlay.loop.parser import parse_function
from inlay.loop.printer import print_function
from inlay.schedule.primitives.decompose_reduction import decompose_reduction
from inlay.schedule.primitives.set_scope import set_scope
from inlay.schedule.primitives.split import split
from inlay.schedule.primitives.tensorize import tensorize
from inlay.schedule.state import Illegal, Schedule
from tests.unit.schedule.programs import hold_law


def program(body: str, *, sum_of: str = "r: reduce 8 = k") -> str:
    return f"""
    schedulable func f(x: i8[n, 8], w: u8[8], f: f32[8]) -> (y: i32[n]) over (n) {{
      for i in 0..n {{ for k in 0..8 {{
        block b(v: spatial n = i, {sum_of}) {{ init {{ y[v] = 0:i32 }} {body} }} }} }} }}"""


SUM = program("y[v] = y[v] + (i32(x[v, r]) * i32(w[r]))")


def test_part_of_an_axis() -> None:
    f = parse_function(SUM)
    s = Schedule(f)
    _, inner = split(s, "k", 4)
    tensorize(s, inner)
    assert "dot(k_i < 4, y[v], x[v, r + k_i], w[r + k_i])" in print_function(s.function)
    hold_law(f, s, (3,))


def test_all_of_a_sum_once_it_begins_elsewhere() -> None:
    f = parse_function(SUM)
    s = Schedule(f)
    with pytest.raises(Illegal, match="whole sum"):
        tensorize(s, "k")
    decompose_reduction(s, "b", "k")
    tensorize(s, "k")
    hold_law(f, s, (3,))


PRODUCTS_OF_BF16 = """
    schedulable func f(x: bf16[n, 8], w: bf16[8]) -> (y: f32[n]) over (n) {
      for i in 0..n { for k in 0..8 {
        block b(v: spatial n = i, r: reduce 8 = k) {
          init { y[v] = 0.0:f32 } y[v] = y[v] + (f32(x[v, r]) * f32(w[r])) } } } }"""


def test_products_of_bf16_are_added_in_f32() -> None:
    f = parse_function(PRODUCTS_OF_BF16)
    s = Schedule(f)
    _, inner = split(s, "k", 2)
    tensorize(s, inner)
    assert "dot(k_i < 2, y[v], x[v, r + k_i], w[r + k_i])" in print_function(s.function)
    hold_law(f, s, (3,))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (program("y[v] = y[v] + i32(x[v, r])"), "sum of products"),
        (program("y[v] = y[v] * (i32(x[v, r]) * i32(w[r]))"), "sum in i32"),
        (program("y[v] = y[v] + (i32(x[v, r]) * i32(f[r]))"), "factor"),
        (program("y[v] = y[v] + (i32(x[v, r]) * 3:i32)"), "factor"),
        (program("y[v] = max(y[v], i32(x[v, r]) * i32(w[r]))"), "sum in i32"),
        (PRODUCTS_OF_BF16.replace("bf16", "f16"), "bf16"),
        (SUM.replace("for k in 0..8", "for k in 0..8 unroll"), "unroll"),
        (SUM.replace("k) {", "k) where [i + k] < [n] {"), "some iterations"),
    ],
)
def test_what_is_no_dot_is_refused(text: str, reason: str) -> None:
    f = parse_function(text)
    s = Schedule(f)
    with pytest.raises(Illegal, match=reason):
        decompose_reduction(s, "b", "k")
        tensorize(s, "k")


def test_loops_that_are_not_the_terms_of_a_sum_are_refused() -> None:
    s = Schedule(parse_function(SUM))
    with pytest.raises(Illegal, match="innermost"):
        tensorize(s, "i")
    with pytest.raises(Illegal, match="extent"):
        tensorize(Schedule(parse_function(SUM.replace(" 8", " 17").replace("..8", "..17"))), "k")


def test_temporaries_keep_what_a_dot_reads() -> None:
    f = parse_function("""
    schedulable func f(x: i8[n, 4], w: i8[4]) -> (y: i32[n]) over (n) {
      alloc t: i16[n, 4] @workspace
      for i in 0..n {
        for c in 0..4 { block wide(a: spatial n = i, b: spatial 4 = c) { t[a, b] = i16(x[a, b]) } }
        for k in 0..4 { block b(v: spatial n = i, r: reduce 4 = k) {
          init { y[v] = 0:i32 } y[v] = y[v] + (i32(t[v, r]) * i32(w[r])) } } } }""")
    s = Schedule(f)
    set_scope(s, "t", "stack", at="i")
    _, inner = split(s, "k", 2)
    tensorize(s, inner)
    hold_law(f, s, (3,))
