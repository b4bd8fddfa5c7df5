"""Loops read back from programs: those of the builder, of text, and near misses."""

from __future__ import annotations

import pytest

from inlay.analysis.infer_types import infer_types
from inlay.analysis.loops import Loop, Role, loops_of
from inlay.arith.dtype import F32
from inlay.arith.expr import fresh, lit
from inlay.ir import make
from inlay.ir.builder import Builder
from inlay.ir.expr import Function
from inlay.ir.loop_trace import Step
from inlay.ir.parser import parse_module
from inlay.ops.table import op_ref, table
from inlay.passes.contract import PassContext
from inlay.transforms.to_anf import PASS as TO_ANF

COUNTER, INVARIANT, CARRIED = Role.COUNTER, Role.INVARIANT, Role.CARRIED
FILLED, GROWN = Role.FILLED, Role.GROWN


def in_text(body: str) -> tuple[Loop, ...]:
    text = f"fn main<n>(x: Tensor[n, f32], k: some int k. int[k]) {{ {body} }}"
    module = infer_types(parse_module(text, table()))
    return loops_of(TO_ANF.run(module, PassContext(table())).functions["main"])


def one(body: str) -> Loop:
    (loop,) = in_text(body)
    return loop


def test_a_counted_loop_of_the_builder() -> None:
    n = fresh("n")
    b = Builder()
    x = b.param("x", make.tensor_type((n, 4), F32))
    w = b.param("w", make.tensor_type((4,), F32))

    def step(s: Builder, _i: object, values: tuple) -> Step:
        (h,) = values
        next_ = s.emit(op_ref("add"), (h, w))
        return Step((next_,), (next_,))

    result = b.loop([x], step, count=make.to_int(n), names=("h",))
    f = b.function((result.carried[0], result.stacked[0]))
    (loop,) = loops_of(f)
    assert loop.roles == (COUNTER, CARRIED, FILLED)
    assert loop.start == 0
    assert loop.bound == make.to_int(n)
    assert loop.exact
    assert loop.captured == (w,)
    assert [p.name for p, r in zip(loop.function.params, loop.roles, strict=True) if r is FILLED] == [
        "stack0"
    ]


def test_a_loop_with_a_condition_appends_rows_and_has_no_count() -> None:
    b = Builder()
    x = b.param("x", make.tensor_type((4,), F32))
    flag = b.param("flag", make.bool_const(True).type)
    result = b.loop([x], lambda _s, _i, v: Step((v[0],), (v[0],)), condition=lambda _s, _i, _v: flag)
    (loop,) = loops_of(b.function((result.stacked[0],)))
    assert loop.roles == (COUNTER, INVARIANT, GROWN)
    assert loop.bound is None
    assert not loop.exact


def test_a_condition_beside_a_count_makes_it_a_bound() -> None:
    loop = one("""
      let loop = fn<i>(i: int[i], h) {
        if (bool_and(int_less(int(i), int(k)), int_equal(k, int(3)))) { loop(int(i + 1), neg(h)) }
        else { h }
      };
      loop(int(2), x)""")
    assert loop.roles == (COUNTER, CARRIED)
    assert str(loop.bound) == "k - 2"
    assert not loop.exact


def test_what_every_turn_hands_on_is_invariant() -> None:
    loop = one("""
      let loop = fn<i>(i: int[i], h, w) {
        if (int_less(i, int(5))) { loop(int(i + 1), add(h, w), w) } else { h }
      };
      loop(int(0), x, x)""")
    assert loop.roles == (COUNTER, CARRIED, INVARIANT)
    assert (loop.bound, loop.exact) == (lit(5), True)


def test_a_buffer_that_the_body_reads_is_carried() -> None:
    loop = one("""
      let loop = fn<i>(i: int[i], buffer) {
        if (int_less(int(i), int(n))) {
          let sum = reduce_sum{axes=[0]}(buffer);
          loop(int(i + 1), set_row(buffer, int(i), sum))
        } else { buffer }
      };
      loop(int(0), x)""")
    assert loop.roles == (COUNTER, CARRIED)


def test_a_way_out_in_the_middle_makes_the_count_a_bound() -> None:
    loop = one("""
      let loop = fn<i>(i: int[i], h) {
        if (int_less(int(i), int(8))) {
          if (int_equal(int(i), k)) { h } else { loop(int(i + 1), neg(h)) }
        } else { h }
      };
      loop(int(0), x)""")
    assert (loop.bound, loop.exact) == (lit(8), False)


def test_a_step_of_two_is_no_counter() -> None:
    loop = one("""
      let loop = fn<i>(i: int[i], h) {
        if (int_less(int(i), int(8))) { loop(int(i + 2), neg(h)) } else { h }
      };
      loop(int(0), x)""")
    assert loop.roles == (CARRIED, CARRIED)
    assert loop.bound is None


def test_loops_nest() -> None:
    outer, inner = in_text("""
      let outer = fn<i>(i: int[i], h) {
        if (int_less(int(i), int(3))) {
          let inner = fn<j>(j: int[j], g) {
            if (int_less(int(j), int(i))) { inner(int(j + 1), neg(g)) } else { g }
          };
          let g = inner(int(0), h);
          outer(int(i + 1), g)
        } else { h }
      };
      outer(int(0), x)""")
    assert (outer.var.name, outer.bound, outer.exact) == ("outer", lit(3), True)
    assert (inner.var.name, str(inner.bound), inner.exact) == ("inner", "i", True)


@pytest.mark.parametrize(
    "body",
    [
        "let f = fn(a) { neg(a) }; f(x)",  # one turn
        "let f = fn(a) { neg(a) }; f(f(x))",  # called twice
        """let f = fn<i>(i: int[i], h) {
             if (int_less(int(i), int(3))) { neg(f(int(i + 1), h)) } else { h }
           };
           f(int(0), x)""",  # a call that is not the last thing done
    ],
)
def test_what_is_no_loop(body: str) -> None:
    assert in_text(body) == ()


def test_functions_without_loops_have_none() -> None:
    x = make.var("x", make.tensor_type((4,), F32))
    f: Function = make.function((x,), x)
    assert loops_of(f) == ()
